//! Which hosts the component may call: the patterns of `allowed_outbound_hosts`.

use anyhow::{Context as _, Result, bail, ensure};
use url::{Host, Url};

use crate::variables::Values;

/// The patterns of the manifest, variables filled in.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts(Vec<Pattern>);

#[derive(Clone, Debug)]
struct Pattern {
    /// `None` is any.
    scheme: Option<String>,
    host: HostPattern,
    /// From, and up to but not including; `None` is any.
    ports: Option<(u32, u32)>,
}

#[derive(Clone, Debug)]
enum HostPattern {
    Any,
    /// Every name that ends so; begins with a dot.
    Suffix(String),
    One(Host),
}

impl AllowedHosts {
    /// Fills in the variables and reads the patterns. One whose variables leave nothing, or only
    /// `http://` or `https://`, allows nothing.
    ///
    /// # Errors
    /// A pattern Spin would refuse, or one this host does not know: requests to the application
    /// itself, other components (`spin.internal`) and networks (`10.0.0.0/8`).
    pub fn new(templates: &[String], values: &Values) -> Result<Self> {
        let mut patterns = Vec::new();
        for template in templates {
            let context = || format!("in allowed_outbound_hosts: {template:?}");
            let pattern = values.render(template).with_context(context)?;
            let optional = template.contains("{{");
            if optional && matches!(pattern.as_str(), "" | "http://" | "https://") {
                continue;
            }
            patterns.push(Pattern::parse(pattern.trim()).with_context(context)?);
        }
        Ok(Self(patterns))
    }

    /// Whether the component may send a request to `url`.
    pub fn allow(&self, url: &str) -> bool {
        let Ok(url) = Url::parse(url) else {
            return false;
        };
        let Some(host) = url.host().map(|host| host.to_owned()) else {
            return false;
        };
        let Some(port) = url.port_or_known_default() else {
            return false;
        };
        self.0
            .iter()
            .any(|pattern| pattern.allows(url.scheme(), &host, port.into()))
    }
}

impl Pattern {
    fn parse(pattern: &str) -> Result<Self> {
        let (scheme, rest) = pattern
            .split_once("://")
            .context("a host must have the form <scheme>://<host>[:<port>]")?;
        ensure!(
            scheme == "*" || (!scheme.is_empty() && scheme.chars().all(char::is_alphabetic)),
            "{scheme:?} is no scheme"
        );
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        ensure!(!rest.contains('/'), "a path or a network is not supported");
        // The last colon, unless it belongs to an IPv6 address.
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => (rest, ""),
        };
        Ok(Self {
            scheme: (scheme != "*").then(|| scheme.to_owned()),
            host: HostPattern::parse(host)?,
            ports: parse_ports(port, scheme)?,
        })
    }

    fn allows(&self, scheme: &str, host: &Host, port: u32) -> bool {
        self.scheme.as_ref().is_none_or(|allowed| allowed == scheme)
            && self
                .ports
                .is_none_or(|(from, end)| (from..end).contains(&port))
            && match (&self.host, host) {
                (HostPattern::Any, _) => true,
                (HostPattern::Suffix(suffix), Host::Domain(name)) => name.ends_with(suffix),
                (HostPattern::Suffix(_), _) => false,
                (HostPattern::One(allowed), host) => allowed == host,
            }
    }
}

impl HostPattern {
    fn parse(host: &str) -> Result<Self> {
        if host == "*" {
            return Ok(Self::Any);
        }
        ensure!(
            !matches!(host, "self" | "self.alt") && !host.ends_with("spin.internal"),
            "requests to the application itself are not supported"
        );
        let (wildcard, name) = match host.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, host),
        };
        ensure!(
            !name.contains('*'),
            "a '*' may only be the first part of a host"
        );
        match Host::parse(name).with_context(|| format!("{name:?} is no host"))? {
            Host::Domain(name) if wildcard => Ok(Self::Suffix(format!(".{name}"))),
            _ if wildcard => bail!("a '*.' must be followed by a name"),
            host => Ok(Self::One(host)),
        }
    }
}

fn parse_ports(ports: &str, scheme: &str) -> Result<Option<(u32, u32)>> {
    let number = |text: &str| -> Result<u32> {
        let port: u16 = text
            .parse()
            .with_context(|| format!("{text:?} is no port"))?;
        Ok(port.into())
    };
    let one = |port: u32| Some((port, port + 1));
    Ok(match (ports, scheme) {
        ("*", _) => None,
        ("", "http") => one(80),
        ("", "https") => one(443),
        ("", _) => bail!("no port is given and {scheme:?} has no usual one"),
        _ => match ports.split_once("..") {
            Some((from, end)) => Some((number(from)?, number(end)?)),
            None => one(number(ports)?),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::manifest::Variable;

    fn hosts(patterns: &[&str], values: &[(&str, &str)]) -> Result<AllowedHosts> {
        let declared: BTreeMap<_, _> = values
            .iter()
            .map(|(name, value)| {
                let default = Some((*value).to_owned());
                (
                    (*name).to_owned(),
                    Variable {
                        default,
                        ..Variable::default()
                    },
                )
            })
            .collect();
        let values = Values::resolve(&declared, &[], |_| None).unwrap();
        let patterns: Vec<_> = patterns
            .iter()
            .map(|pattern| (*pattern).to_owned())
            .collect();
        AllowedHosts::new(&patterns, &values)
    }

    fn allows(pattern: &str, url: &str) -> bool {
        hosts(&[pattern], &[]).unwrap().allow(url)
    }

    #[test]
    fn scheme_host_and_port_must_all_match() {
        assert!(allows("https://example.com", "https://example.com/x?y"));
        assert!(allows("https://example.com/", "https://example.com:443/"));
        assert!(allows("http://localhost:8080", "http://localhost:8080/"));
        assert!(allows("http://127.0.0.1:8080", "http://127.0.0.1:8080/"));
        assert!(allows("http://[::1]:8080", "http://[::1]:8080/"));
        assert!(!allows("https://example.com", "http://example.com/"));
        assert!(!allows("https://example.com", "https://example.com:8443/"));
        assert!(!allows("https://example.com", "https://www.example.com/"));
        assert!(!allows(
            "https://example.com",
            "https://example.com.evil.org/"
        ));
        assert!(!allows(
            "https://example.com",
            "https://example.com@evil.org/"
        ));
        assert!(!allows("http://localhost:8080", "http://localhost/"));
        assert!(!allows("https://example.com", "not a url"));
    }

    #[test]
    fn a_star_stands_for_any_part() {
        for url in ["http://a/", "https://b.c:1/", "http://127.0.0.1:9/"] {
            assert!(allows("*://*:*", url), "{url}");
        }
        assert!(allows("https://*.example.com", "https://a.b.example.com/"));
        assert!(!allows("https://*.example.com", "https://example.com/"));
        assert!(!allows("https://*.example.com", "https://notexample.com/"));
        assert!(allows("http://localhost:*", "http://localhost:1234/"));
        assert!(allows(
            "http://localhost:8000..8010",
            "http://localhost:8009/"
        ));
        assert!(!allows(
            "http://localhost:8000..8010",
            "http://localhost:8010/"
        ));
    }

    #[test]
    fn nothing_is_allowed_without_a_pattern() {
        assert!(!AllowedHosts::default().allow("http://localhost/"));
    }

    #[test]
    fn variables_are_filled_in_and_an_empty_one_allows_nothing() {
        let allowed = hosts(
            &["https://{{ host }}", "{{ url }}"],
            &[("host", "a.b"), ("url", "")],
        );
        let allowed = allowed.unwrap();
        assert!(allowed.allow("https://a.b/"));
        assert!(!allowed.allow("https://c.d/"));
        assert!(
            !hosts(&["http://{{ host }}"], &[("host", "")])
                .unwrap()
                .allow("http://x/")
        );
    }

    #[test]
    fn other_patterns_are_refused() {
        for pattern in [
            "*",
            "",
            "example.com",
            "http://",
            "https://a/b",
            "http://a.*.c",
            "ftp://a",
            "http://self",
            "http://x.spin.internal",
            "http://10.0.0.0/8",
            "http://a:b",
            "h2://*.1.2.3.4:1",
            "{{ nobody }}",
        ] {
            assert!(hosts(&[pattern], &[]).is_err(), "{pattern}");
        }
    }
}
