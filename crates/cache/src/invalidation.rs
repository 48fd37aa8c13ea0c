//! Invalidation by unsafe requests (RFC 9111, section 4.4).

use http::header::{CONTENT_LOCATION, LOCATION};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, request, response};

/// The targets at `host` whose entries the response to an unsafe request invalidates: its own, and those of `Location`
/// and `Content-Location` if they have the same origin. Empty for safe methods and for responses other than 2xx and
/// 3xx.
///
/// `host` has its port if it is not the scheme's. Methods whose safety is unknown are unsafe.
pub fn invalidated(host: &str, request: &request::Parts, response: &response::Parts) -> Vec<PathAndQuery> {
    let is_success = response.status.is_success() || response.status.is_redirection();
    if request.method.is_safe() || !is_success {
        return Vec::new();
    }
    let own = request.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let fields = [LOCATION, CONTENT_LOCATION].map(|name| response.headers.get(name));
    let others: Vec<_> = fields.into_iter().flatten().filter_map(|value| resolve(host, &own, value)).collect();
    let mut targets = vec![own];
    for other in others {
        if !targets.contains(&other) {
            targets.push(other);
        }
    }
    targets
}

/// The target of a URI reference (RFC 3986, section 5.2), if it is at `host`.
fn resolve(host: &str, base: &PathAndQuery, reference: &HeaderValue) -> Option<PathAndQuery> {
    let reference = reference.to_str().ok()?.trim_ascii();
    let reference = reference.split_once('#').map_or(reference, |(before, _)| before);
    let (scheme, rest) = match split_scheme(reference) {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, reference),
    };
    let target = match rest.strip_prefix("//") {
        Some(rest) => {
            let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            is_same_host(host, scheme, authority).then_some(target)?
        }
        // A scheme without an authority, such as `mailto:`.
        None if scheme.is_some() => return None,
        None if rest.is_empty() => return Some(base.clone()),
        None => rest,
    };
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let path = match path {
        "" if scheme.is_some() || rest.starts_with("//") => "/".to_owned(),
        "" => base.path().to_owned(),
        absolute if absolute.starts_with('/') => without_dots(absolute),
        relative => {
            let directory = base.path().rsplit_once('/').map_or("", |(directory, _)| directory);
            without_dots(&format!("{directory}/{relative}"))
        }
    };
    let target = query.map(|query| format!("{path}?{query}")).unwrap_or(path);
    target.parse().ok()
}

/// The scheme of a reference, and what follows its colon.
fn split_scheme(reference: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = reference.split_once(':')?;
    let is_scheme = scheme.starts_with(|char: char| char.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    is_scheme.then_some((scheme, rest))
}

fn is_same_host(host: &str, scheme: Option<&str>, authority: &str) -> bool {
    let default_port = match scheme.map(str::to_ascii_lowercase).as_deref() {
        None => None,
        Some("https") => Some(443),
        Some("http") => Some(80),
        Some(_) => return false,
    };
    let Ok(authority) = authority.parse::<Authority>() else {
        return false;
    };
    let has_user = authority.as_str().contains('@');
    let name = match authority.port_u16().filter(|port| Some(*port) != default_port) {
        Some(port) => format!("{}:{port}", authority.host()),
        None => authority.host().to_owned(),
    };
    !has_user && name.eq_ignore_ascii_case(host)
}

/// A path, which starts with `/`, without dot segments (RFC 3986, section 5.2.4).
fn without_dots(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    let mut is_directory = false;
    for segment in path[1..].split('/') {
        is_directory = matches!(segment, "." | "..");
        match segment {
            "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    let end = if is_directory && !segments.is_empty() { "/" } else { "" };
    format!("/{}{end}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::{HeaderName, Request, Response};
    use proptest::prelude::*;

    use super::*;

    fn targets(method: &str, status: u16, fields: &[(&'static str, &str)]) -> Vec<String> {
        let request = Request::builder().method(method).uri("/a/b?c").body(()).unwrap().into_parts().0;
        let mut response = Response::builder().status(status).body(()).unwrap().into_parts().0;
        for &(name, value) in fields {
            response.headers.insert(HeaderName::from_static(name), value.parse().unwrap());
        }
        invalidated("h.example", &request, &response).iter().map(ToString::to_string).collect()
    }

    /// RFC 9111, section 4.4.
    #[test]
    fn unsafe_requests_invalidate_their_target() {
        for method in ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH"] {
            for status in [200, 204, 303] {
                assert_eq!(targets(method, status, &[]), ["/a/b?c"], "{method} {status}");
            }
            for status in [404, 500] {
                assert!(targets(method, status, &[("location", "/x")]).is_empty(), "{method} {status}");
            }
        }
        for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
            assert!(targets(method, 200, &[("location", "/x")]).is_empty(), "{method}");
        }
    }

    /// RFC 9111, section 4.4; RFC 3986, section 5.4.
    #[test]
    fn locations_of_the_same_origin_are_invalidated() {
        for (location, expected) in [
            ("/x?y#z", Some("/x?y")),
            ("x", Some("/a/x")),
            ("./x", Some("/a/x")),
            ("../x", Some("/x")),
            ("../../../x/.", Some("/x/")),
            ("x/..", Some("/a/")),
            ("..", Some("/")),
            ("?y", Some("/a/b?y")),
            ("https://h.example/x", Some("/x")),
            ("HTTPS://H.Example:443/x", Some("/x")),
            ("http://h.example:80", Some("/")),
            ("https://h.example?y", Some("/?y")),
            ("//h.example/x", Some("/x")),
            ("//h.example", Some("/")),
            ("https://other.example/x", None),
            ("https://h.example:8443/x", None),
            ("https://h.example.other/x", None),
            ("https://user@h.example/x", None),
            ("//other.example/x", None),
            ("ftp://h.example/x", None),
            ("mailto:h.example", None),
            ("https:x", None),
            ("", None),
            ("#z", None),
            ("/a/b?c", None),
            ("http://[", None),
        ] {
            let mut all = vec!["/a/b?c"];
            all.extend(expected);
            assert_eq!(targets("POST", 201, &[("location", location)]), all, "{location}");
            assert_eq!(targets("POST", 200, &[("content-location", location)]), all, "{location}");
        }
        assert_eq!(targets("PUT", 200, &[("location", "/x"), ("content-location", "/y")]), ["/a/b?c", "/x", "/y"]);
    }

    proptest! {
        #[test]
        fn any_reference_is_read(reference in "\\PC{0,30}", likely in "[a./?#:]{0,20}") {
            let base = PathAndQuery::from_static("/a/b");
            for reference in [reference, likely] {
                if let Ok(value) = reference.parse() {
                    resolve("h", &base, &value);
                }
            }
        }
    }
}
