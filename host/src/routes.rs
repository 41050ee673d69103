//! The routes of the HTTP trigger: exact paths and prefixes that end in `/...`.

use anyhow::{Result, ensure};

/// One route of the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// As the manifest has it.
    pub raw: String,
    /// The path, without a final `/...`.
    path: String,
    wildcard: bool,
}

impl Route {
    /// Reads a route of the manifest.
    ///
    /// # Errors
    /// Named segments (`/:name`) and wildcards elsewhere than at the end are not supported.
    pub fn parse(raw: &str) -> Result<Self> {
        let (path, wildcard) = match raw.strip_suffix("/...").or_else(|| raw.strip_suffix("/*")) {
            Some(path) => (path, true),
            None => (raw.trim_end_matches('/'), false),
        };
        ensure!(
            raw.starts_with('/'),
            "the route {raw:?} does not start with a slash"
        );
        ensure!(
            !path.contains(['*', ':']) && !path.contains("..."),
            "the route {raw:?} is not supported, only exact ones and those that end in /..."
        );
        Ok(Self {
            raw: raw.to_owned(),
            path: path.to_owned(),
            wildcard,
        })
    }

    /// What a path has after the route's prefix, when the route matches.
    fn rest<'path>(&self, path: &'path str) -> Option<&'path str> {
        let rest = path.strip_prefix(&self.path)?;
        let matches = if self.wildcard {
            rest.is_empty() || rest.starts_with('/')
        } else {
            rest.is_empty() || rest == "/"
        };
        matches.then_some(rest)
    }

    /// The route without the `/...`, as Spin's headers have it.
    pub fn prefix(&self) -> &str {
        if self.wildcard { &self.path } else { &self.raw }
    }
}

/// The route that serves `path`, and what the path has after it: an exact one before the longest
/// prefix.
pub fn find<'a>(routes: &'a [Route], path: &'a str) -> Option<(&'a Route, &'a str)> {
    routes
        .iter()
        .filter_map(|route| Some((route, route.rest(path)?)))
        .max_by_key(|(route, _)| (!route.wildcard, route.path.len()))
        .map(|(route, rest)| (route, if route.wildcard { rest } else { "" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_route_comes_before_the_longest_prefix() {
        let routes: Vec<_> = ["/...", "/a/...", "/a/b", "/a/b/..."]
            .map(|raw| Route::parse(raw).unwrap())
            .into();
        for (path, raw, rest) in [
            ("/", "/...", "/"),
            ("/x/y", "/...", "/x/y"),
            ("/ab", "/...", "/ab"),
            ("/a", "/a/...", ""),
            ("/a/c", "/a/...", "/c"),
            ("/a/b", "/a/b", ""),
            ("/a/b/c", "/a/b/...", "/c"),
        ] {
            let (route, found) = find(&routes, path).unwrap();
            assert_eq!((route.raw.as_str(), found), (raw, rest), "{path}");
        }
        assert_eq!(find(&routes[2..3], "/a"), None);
    }

    #[test]
    fn named_segments_are_refused() {
        for raw in ["/:id", "/a/*/b", "/.../b", "a"] {
            assert!(Route::parse(raw).is_err(), "{raw}");
        }
    }
}
