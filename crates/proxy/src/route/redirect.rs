//! Redirects that the operator configures.

use http::header::{CONTENT_LENGTH, LOCATION};
use http::uri::Authority;
use http::{HeaderValue, Response, StatusCode};
use watari_body::{Body, empty};

use crate::route::template::{Facts, InvalidTemplate, Template};

/// Redirects clients to another URL. Only the operator determines the host: no part of a request can change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    to: Template,
    status: StatusCode,
}

/// The arguments make no [`Redirect`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRedirect {
    /// The target is not a template.
    #[error("{0}")]
    Template(#[from] InvalidTemplate),
    /// The target would allow clients to be led to any host.
    #[error("expected http://HOST[/PATH] or https://HOST[/PATH], or a path such as /new%{{path}}")]
    Open,
    /// The status is not one of a redirect.
    #[error("the status of a redirect is 301, 302, 303, 307 or 308")]
    Status,
}

impl Redirect {
    /// The statuses of redirects (RFC 9110, section 15.4).
    pub const STATUSES: [u16; 5] = [301, 302, 303, 307, 308];

    /// * `to`: a [`Template`] that begins with `http://HOST` or `https://HOST`, or with `/` and a character other than
    ///   `/`, `\` and `%`.
    /// * `status`: one of [`Redirect::STATUSES`].
    pub fn new(to: &str, status: u16) -> Result<Self, InvalidRedirect> {
        let template = to.parse()?;
        if to.contains(' ') || !(leads_to_one_host(to) || stays_at_its_host(to)) {
            return Err(InvalidRedirect::Open);
        }
        let is_redirect = Self::STATUSES.contains(&status);
        let status = StatusCode::from_u16(status).ok().filter(|_| is_redirect).ok_or(InvalidRedirect::Status)?;
        Ok(Self { to: template, status })
    }

    pub(crate) fn response(&self, facts: Facts<'_>) -> Response<Body> {
        let mut response = Response::new(empty());
        *response.status_mut() = self.status;
        response.headers_mut().insert(LOCATION, self.to.value(facts));
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        response
    }
}

/// Whether the host is fixed text, and ends before the first placeholder.
fn leads_to_one_host(to: &str) -> bool {
    let Some(rest) = to.strip_prefix("https://").or_else(|| to.strip_prefix("http://")) else { return false };
    let ends = ["/", "?", "#", "%{path}"].into_iter().filter_map(|end| rest.find(end));
    let host = &rest[..ends.min().unwrap_or(rest.len())];
    let ends_well = |host: &Authority| host.as_str() == host.host() || host.port_u16().is_some();
    let is_plain = |host: &Authority| !host.as_str().contains(['@', '%']) && !host.host().is_empty() && ends_well(host);
    host.parse::<Authority>().is_ok_and(|host| is_plain(&host))
}

/// Browsers read a host after two slashes of either kind (RFC 3986, section 4.2).
fn stays_at_its_host(to: &str) -> bool {
    to.strip_prefix('/').is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', '\\', '%']))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::uri::PathAndQuery;
    use proptest::prelude::*;

    use super::*;
    use crate::exchange::client::Client;

    fn location(to: &str, path: &str) -> String {
        let client = Client::new("192.0.2.7:1".parse().unwrap(), "192.0.2.1:443".parse().unwrap(), None);
        let (host, path) = ("evil.example".parse().unwrap(), path.parse::<PathAndQuery>().unwrap());
        let facts = Facts { client: &client, host: &host, path: Some(&path) };
        let response = Redirect::new(to, 308).unwrap().response(facts);
        response.headers()[LOCATION].to_str().unwrap().to_owned()
    }

    #[test]
    fn locations() {
        for (to, path, expected) in [
            ("https://www.example.org%{path}", "/a?b=c", "https://www.example.org/a?b=c"),
            ("https://www.example.org%{path}", "//evil", "https://www.example.org//evil"),
            ("http://[::1]:8080/x", "/a", "http://[::1]:8080/x"),
            ("https://www.example.org", "/a", "https://www.example.org"),
            ("https://a?from=%{host}%{path}", "/a", "https://a?from=evil.example/a"),
            ("/new%{path}", "//evil", "/new//evil"),
        ] {
            assert_eq!(location(to, path), expected);
        }
    }

    #[test]
    fn open_redirects_are_refused() {
        for to in [
            "",
            "/",
            "//evil",
            "/\\evil",
            "/%{path}",
            "/%{host}",
            "%{path}",
            "%{host}",
            "www.example.org",
            "https:/www",
            "https://",
            "https:///x",
            "https://%{host}/",
            "https://a%{host}/",
            "https://a%{client}%{path}",
            "https://user@a/",
            "https://a:b%{path}",
            "https://a b/",
            "https://a/ b",
            "javascript://a/",
        ] {
            assert_eq!(Redirect::new(to, 308), Err(InvalidRedirect::Open), "{to}");
        }
        for status in [0, 200, 300, 304, 305, 306, 400] {
            assert_eq!(Redirect::new("/a", status), Err(InvalidRedirect::Status), "{status}");
        }
    }

    proptest! {
        #[test]
        fn no_request_leads_elsewhere(to in "(https://a\\.example(/|\\?|%\\{path\\})|/x)([/?#%a@\\\\]|%\\{(client|host|path)\\}){0,6}", path in "/[!-~]{0,16}") {
            prop_assume!(Redirect::new(&to, 308).is_ok() && path.parse::<PathAndQuery>().is_ok());
            let location = location(&to, &path);
            // Other text would continue the host, and `//` would begin one.
            let ends = |rest: &str| rest.is_empty() || rest.starts_with(['/', '?', '#']);
            let led = location.strip_prefix("https://a.example").is_some_and(ends) || location.starts_with("/x");
            prop_assert!(led, "{location}");
        }
    }
}
