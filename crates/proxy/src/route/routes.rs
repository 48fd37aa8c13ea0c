//! Routes: which requests go to which pool.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use crate::admit::access::Access;
use crate::exchange::failure::{NoRoute, Refusal};
use crate::route::cache::RouteCache;
use crate::route::path;
use crate::route::redirect::Redirect;
use crate::route::rules::Rules;

/// A route: a pattern of requests, and their destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The host of the requests. `None`: all hosts.
    pub host: Option<HostPattern>,
    /// The path of the requests, and everything below it: `/` matches all paths, `/a` matches `/a` and `/a/b`, not
    /// `/ab`.
    pub path: PathPrefix,
    pub to: Destination,
    /// The networks that clients may come from.
    pub access: Access,
    /// The authority that decides whether requests may proceed, as an index in [`crate::Config::auths`].
    pub auth: Option<usize>,
    /// The changes of heads.
    pub rules: Rules,
    /// How responses are cached. `None`: they are not.
    pub cache: Option<Arc<RouteCache>>,
}

/// The destination of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// A pool, as an index in [`crate::Config::pools`].
    Pool(usize),
    /// The proxy refuses the requests.
    Refused(Refusal),
    /// The proxy redirects the clients.
    Redirect(Redirect),
}

/// The name of a host in lower case, or its address, without a port; or `*.` and a domain, for all names below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern(String);

/// A path that begins with `/` and has no query. It matches all spellings of the path in requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPrefix(String);

/// The text is not a [`HostPattern`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a host is a name such as www.example.com, all names below one (*.example.com), or an address")]
pub struct InvalidHost;

/// The text is not a [`PathPrefix`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a path begins with /, and has neither ? nor # nor segments such as ..")]
pub struct InvalidPath;

/// All routes, the most specific first: those for a host, then those for names below a domain, then those for all
/// hosts; longer paths before shorter ones. The first match applies.
#[derive(Debug)]
pub(crate) struct Routes(Vec<Route>);

impl Routes {
    pub(crate) fn new(mut routes: Vec<Route>) -> Self {
        let host_rank = |route: &Route| route.host.as_ref().map_or((0, 0), HostPattern::rank);
        routes.sort_by_key(|route| std::cmp::Reverse((host_rank(route), route.path.0.len())));
        Self(routes)
    }

    pub(crate) fn has_cache(&self) -> bool {
        self.0.iter().any(|route| route.cache.is_some())
    }

    /// The route of a request for `path` at `host`, which is the host of an authority, without its port.
    pub(crate) fn find(&self, host: &str, path: &str) -> Result<&Route, NoRoute> {
        let mut for_host = self.0.iter().filter(|route| route.is_for(host)).peekable();
        let none = if for_host.peek().is_none() { NoRoute::Host } else { NoRoute::Path };
        for_host.find(|route| route.path.covers(path)).ok_or(none)
    }

    /// The caches of all routes that have one.
    pub(crate) fn caches(&self) -> impl Iterator<Item = &RouteCache> {
        self.0.iter().filter_map(|route| route.cache.as_deref())
    }
}

impl Route {
    /// A route of all requests for `host` and `path` to one pool, without changes.
    pub fn to_pool(host: Option<HostPattern>, path: PathPrefix, pool: usize) -> Self {
        let (access, rules) = (Access::default(), Rules::default());
        Self { host, path, to: Destination::Pool(pool), access, auth: None, rules, cache: None }
    }

    fn is_for(&self, host: &str) -> bool {
        self.host.as_ref().is_none_or(|pattern| pattern.matches(host))
    }
}

impl HostPattern {
    fn matches(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        match self.0.strip_prefix('*') {
            // The rest begins with a dot.
            Some(suffix) => {
                let start = host.len().checked_sub(suffix.len()).filter(|start| *start > 0);
                start.and_then(|start| host.get(start..)).is_some_and(|end| end.eq_ignore_ascii_case(suffix))
            }
            None => host.eq_ignore_ascii_case(&self.0),
        }
    }

    /// The order of patterns: whole names first, then longer suffixes before shorter ones.
    fn rank(&self) -> (u8, usize) {
        (if self.0.starts_with('*') { 1 } else { 2 }, self.0.len())
    }
}

impl FromStr for HostPattern {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(allowed);
        let is_name = text.strip_prefix("*.").unwrap_or(text).split('.').all(is_label) && text.len() <= 253;
        let is_address = text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        if is_name || is_address { Ok(Self(text.to_ascii_lowercase())) } else { Err(InvalidHost) }
    }
}

impl PathPrefix {
    /// All paths.
    pub fn all() -> Self {
        Self("/".to_owned())
    }

    fn covers(&self, path: &str) -> bool {
        let rest = path.strip_prefix(self.0.strip_suffix('/').unwrap_or(&self.0));
        // `OPTIONS *` is for a host as a whole (RFC 9112, section 3.2.4).
        rest.is_some_and(|rest| rest.starts_with('/') || rest.is_empty()) || self.0 == "/"
    }
}

impl FromStr for PathPrefix {
    type Err = InvalidPath;

    fn from_str(text: &str) -> Result<Self, InvalidPath> {
        if !text.starts_with('/') || text.contains(['?', '#']) {
            return Err(InvalidPath);
        }
        path::plain(text).map(|path| Self(path.into_owned())).map_err(|_| InvalidPath)
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for PathPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn routes(routes: &[(&str, &str)]) -> Routes {
        let route = |(pool, (host, path)): (usize, &(&str, &str))| {
            Route::to_pool((!host.is_empty()).then(|| host.parse().unwrap()), path.parse().unwrap(), pool)
        };
        Routes::new(routes.iter().enumerate().map(route).collect())
    }

    #[test]
    fn the_most_particular_route_counts() {
        let routes = routes(&[
            ("", "/"),
            ("*.example.org", "/"),
            ("www.example.org", "/"),
            ("www.example.org", "/a"),
            ("*.b.example.org", "/"),
            ("", "/static/"),
        ]);
        for (host, path, pool) in [
            ("other", "/", 0),
            ("x.example.org", "/", 1),
            ("x.y.example.org", "/", 1),
            ("WWW.EXAMPLE.org", "/", 2),
            ("www.example.org.", "/", 2),
            ("www.example.org", "/a", 3),
            ("www.example.org", "/a/b", 3),
            ("www.example.org", "/ab", 2),
            ("c.b.example.org", "/", 4),
            ("example.org", "/", 0),
            (".example.org", "/", 0),
            ("www.example.org", "/static/x", 2),
            ("other", "/static/x", 5),
            ("other", "/static", 5),
            ("other", "/statics", 0),
            ("other", "*", 0),
        ] {
            assert_eq!(routes.find(host, path).unwrap().to, Destination::Pool(pool), "{host}{path}");
        }
    }

    #[test]
    fn a_missing_route_names_host_or_path() {
        let routes = routes(&[("a", "/x"), ("127.0.0.1", "/"), ("[::1]", "/")]);
        assert_eq!(routes.find("b", "/x"), Err(NoRoute::Host));
        assert_eq!(routes.find("a", "/y"), Err(NoRoute::Path));
        assert_eq!(routes.find("a", "*"), Err(NoRoute::Path));
        assert_eq!(routes.find("127.0.0.1", "*").unwrap().to, Destination::Pool(1));
        assert_eq!(routes.find("[::1]", "/").unwrap().to, Destination::Pool(2));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in ["", "*", "*.", "a..b", "a b", "a:80", "a/b", "*.*.a", "a*"] {
            assert_eq!(text.parse::<HostPattern>(), Err(InvalidHost), "{text}");
        }
        for text in ["", "a", "/a?b", "/#"] {
            assert_eq!(text.parse::<PathPrefix>(), Err(InvalidPath), "{text}");
        }
    }
}
