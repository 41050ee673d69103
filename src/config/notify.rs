//! Where events go, and what they are signed with.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;

use super::{Faults, parse_secrets};

/// The receivers of events.
#[derive(Clone, Debug, Default)]
pub struct Notify {
    /// Gets every event but messages. Without it they wait.
    pub url: Option<Uri>,
    /// Gets the messages to customers. Without it they wait.
    pub sms_gateway_url: Option<Uri>,
    /// The keys of the signatures: several while they are changed, none where there is no receiver.
    pub secrets: Vec<Vec<u8>>,
    /// How long a receiver may take to answer, milliseconds.
    pub timeout_ms: u64,
    /// The pause after the first failed attempt, milliseconds; each one after that is longer.
    pub pause_ms: u64,
    /// After how many attempts an event is given up.
    pub max_attempts: i64,
}

impl Notify {
    pub(super) async fn load(faults: &mut Faults) -> Self {
        let url = receiver(faults, "notify_url", "notify_host").await;
        let sms_gateway_url = receiver(faults, "sms_gateway_url", "sms_gateway_host").await;
        let mut secrets = Vec::new();
        if url.is_some() || sms_gateway_url.is_some() {
            let text = faults.text("notify_secret").await;
            match parse_webhook_secrets(&text) {
                Ok(parsed) => secrets = parsed,
                Err(_) if text.is_empty() => {}
                Err(detail) => faults.add("notify_secret", detail),
            }
        }
        Self {
            url,
            sms_gateway_url,
            secrets,
            timeout_ms: faults
                .number("notify_timeout_ms", 10, 120_000)
                .await
                .unsigned_abs(),
            pause_ms: faults
                .number("notify_pause_ms", 1, 3_600_000)
                .await
                .unsigned_abs(),
            max_attempts: faults.number("notify_max_attempts", 1, 100).await,
        }
    }
}

/// The URL of a receiver. The host must be the one that the manifest allows requests to: Spin takes that
/// from another variable, since a pattern of `allowed_outbound_hosts` has no path.
pub(super) async fn receiver(
    faults: &mut Faults,
    variable: &str,
    host_variable: &str,
) -> Option<Uri> {
    let text = faults.optional(variable).await?;
    let host = faults.optional(host_variable).await?;
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let Some(uri) = parse_url(text) else {
        faults.add(variable, "is not an http or https URL");
        return None;
    };
    if !is_allowed(host.trim(), &uri) {
        let detail = format!("is not the scheme, host and port of {variable}");
        faults.add(host_variable, detail);
        return None;
    }
    Some(uri)
}

fn parse_url(text: &str) -> Option<Uri> {
    let uri: Uri = text.parse().ok()?;
    let plain = matches!(uri.scheme_str(), Some("http" | "https"))
        && uri.authority().is_some_and(|authority| {
            !authority.host().is_empty() && !authority.as_str().contains('@')
        });
    plain.then_some(uri)
}

/// Whether Spin lets requests to `uri` through a pattern. One with wildcards is left to Spin.
fn is_allowed(pattern: &str, uri: &Uri) -> bool {
    let origin = |uri: &Uri| {
        let default = if uri.scheme_str() == Some("https") {
            443
        } else {
            80
        };
        let host = uri.host().map(str::to_ascii_lowercase);
        (
            uri.scheme_str().map(str::to_owned),
            host,
            uri.port_u16().unwrap_or(default),
        )
    };
    pattern.contains('*')
        || parse_url(pattern).is_some_and(|pattern| origin(&pattern) == origin(uri))
}

/// Secrets as the Standard Webhooks specification serializes them: `whsec_` and base64 of 24 to 64 bytes;
/// several are separated by commas or white space.
pub(super) fn parse_webhook_secrets(text: &str) -> Result<Vec<Vec<u8>>, &'static str> {
    let read = |secret: &str| {
        let secret = STANDARD.decode(secret.strip_prefix("whsec_")?).ok()?;
        (24..=64).contains(&secret.len()).then_some(secret)
    };
    parse_secrets(text, read).ok_or("expected whsec_ and base64 of 24 to 64 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_is_an_absolute_url_without_credentials() {
        for good in [
            "http://127.0.0.1:8080",
            "https://shop.example/hooks/payonce?x=1",
        ] {
            assert!(parse_url(good).is_some(), "{good}");
        }
        for bad in [
            "shop.example",
            "/hooks",
            "ftp://shop.example/",
            "https://",
            "https://user:pw@shop.example/",
        ] {
            assert!(parse_url(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn the_host_that_is_allowed_must_be_that_of_the_receiver() {
        let uri: Uri = "https://Shop.example/hooks".parse().unwrap();
        for good in [
            "https://shop.example",
            "https://shop.example:443/",
            "https://*.example",
            "*://*:*",
        ] {
            assert!(is_allowed(good, &uri), "{good}");
        }
        for bad in [
            "",
            "http://shop.example",
            "https://shop.example:8443",
            "https://other.example",
        ] {
            assert!(!is_allowed(bad, &uri), "{bad}");
        }
    }

    #[test]
    fn secrets_are_those_of_the_standard_and_there_may_be_several() {
        let good = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        assert_eq!(parse_webhook_secrets(good).unwrap().len(), 1);
        let two = format!("{good}, {good}");
        assert_eq!(parse_webhook_secrets(&two).unwrap().len(), 2);
        for bad in [
            "",
            ",",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_",
            "whsec_c2hvcnQ=",
            "whsec_!",
        ] {
            assert!(parse_webhook_secrets(bad).is_err(), "{bad}");
        }
    }
}
