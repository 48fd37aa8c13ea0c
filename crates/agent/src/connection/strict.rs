//! Refuses HTTP/2 requests that RFC 9113 has a server refuse, with a response. `http1` checks those of HTTP/1. Also
//! checks the size of the head ([`Limits::head_fields_max`], [`Limits::target_bytes_max`]).
//!
//! `watari_http2` resets the streams of most malformed requests (RFC 9113, section 8): connection-specific fields, names
//! in upper case, `TE` other than `trailers`, pseudo-header fields that are unknown, missing, repeated or after others,
//! and lengths that are malformed or differ from the content. This module refuses the rest:
//!
//! * a `:path` that does not begin with `/`, except `*` with OPTIONS (section 8.3.1)
//! * a `:scheme` of `http`, which is misdirected (421; RFC 9110, section 7.4), and others
//! * user information, or no host, in `:authority` (section 8.3.1)
//! * `Host` beside a different `:authority`, and several (section 8.3.1)
//! * PRI, which no client uses (section 11.6)
//!
//! `:scheme` is not visible, and not forwarded, if there is no `:authority`.

use http::header::{COOKIE, HOST};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use watari_body::Body;

use crate::settings::limits::Limits;
use crate::settings::refusal::refusal;

/// The reason that a request is refused. It is always the client's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Irregular {
    /// RFC 9113, section 8.3.1.
    #[error("The request must name exactly one host.")]
    Host,
    /// RFC 9113, section 11.6.
    #[error("This method is not implemented.")]
    Method,
    /// RFC 9113, section 8.3.1.
    #[error("The scheme of the target must be https.")]
    Scheme,
    /// RFC 9110, section 7.4.
    #[error("This connection does not serve targets with the scheme http.")]
    Misdirected,
    /// RFC 9113, section 8.3.1.
    #[error("The target is not valid for this method.")]
    Target,
    /// RFC 6585, section 5.
    #[error("The request has too many header fields, or too long ones.")]
    Fields,
    /// RFC 9110, section 15.5.15.
    #[error("The target is too long.")]
    TargetLen,
}

/// Checks whether an HTTP/2 request may be answered.
pub(crate) fn check(request: &Parts, limits: &Limits) -> Result<(), Irregular> {
    check_size(&request.uri, &request.headers, limits)?;
    check_method(&request.method)?;
    check_asterisk(&request.method, &request.uri)?;
    check_scheme(&request.uri)?;
    check_authority_and_path(request)
}

impl Irregular {
    /// The response to a refused request.
    pub(crate) fn response(self) -> Response<Body> {
        refusal(self.status(), format!("{self}\n"))
    }

    fn status(self) -> StatusCode {
        match self {
            Self::Method => StatusCode::NOT_IMPLEMENTED,
            Self::Host | Self::Target | Self::Scheme => StatusCode::BAD_REQUEST,
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::Fields => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::TargetLen => StatusCode::URI_TOO_LONG,
        }
    }
}

fn check_size(target: &Uri, headers: &HeaderMap, limits: &Limits) -> Result<(), Irregular> {
    // HTTP/2 clients may split cookies into several fields for compression (RFC 9113, section 8.2.3). They count as
    // one.
    let more_cookies = headers.get_all(COOKIE).iter().skip(1).count();
    if headers.len() - more_cookies > limits.head_fields_max {
        return Err(Irregular::Fields);
    }
    let len = target.path_and_query().map_or(0, |target| target.as_str().len());
    if len > limits.target_bytes_max { Err(Irregular::TargetLen) } else { Ok(()) }
}

fn check_method(method: &Method) -> Result<(), Irregular> {
    // Comparison with an extension `Method` is slower than comparison of the text.
    if method.as_str() == "PRI" { Err(Irregular::Method) } else { Ok(()) }
}

fn check_scheme(target: &Uri) -> Result<(), Irregular> {
    let scheme = target.scheme_str().unwrap_or("https");
    if scheme.eq_ignore_ascii_case("https") {
        return Ok(());
    }
    if scheme.eq_ignore_ascii_case("http") { Err(Irregular::Misdirected) } else { Err(Irregular::Scheme) }
}

/// RFC 9113, section 8.3.1.
fn check_authority_and_path(request: &Parts) -> Result<(), Irregular> {
    let target = &request.uri;
    let path = target.path_and_query().map_or("", |path| path.as_str());
    // CONNECT has no path, unless it is an extended one (RFC 8441, section 4).
    if !(path.starts_with('/') || path == "*" || (path.is_empty() && request.method == Method::CONNECT)) {
        return Err(Irregular::Target);
    }
    if target.authority().is_some_and(|authority| !has_plain_host(authority)) {
        return Err(Irregular::Host);
    }
    let mut hosts = request.headers.get_all(HOST).iter();
    if let Some(host) = hosts.next() {
        let host = Authority::try_from(host.as_bytes()).map_err(|_| Irregular::Host)?;
        let is_other = target.authority().is_some_and(|authority| *authority != host);
        if is_other || !has_plain_host(&host) || hosts.next().is_some() {
            return Err(Irregular::Host);
        }
    }
    Ok(())
}

fn check_asterisk(method: &Method, target: &Uri) -> Result<(), Irregular> {
    if target.path() == "*" && *method != Method::OPTIONS { Err(Irregular::Target) } else { Ok(()) }
}

fn has_plain_host(authority: &Authority) -> bool {
    !authority.as_str().starts_with(':') && !authority.as_str().contains('@')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::{Request, Version};

    use super::*;

    fn checked(method: &str, target: &str, fields: &[(&str, &str)]) -> Result<(), Irregular> {
        let mut request = Request::builder().method(method).uri(target).version(Version::HTTP_2);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        check(&request.body(()).unwrap().into_parts().0, &Limits::default())
    }

    #[test]
    fn sizes() {
        let limits = Limits { head_fields_max: 3, target_bytes_max: 6, ..Limits::default() };
        let sized = |target: &str, fields: &[&str]| {
            let request = Request::get(target).version(Version::HTTP_2);
            let request = fields.iter().fold(request, |request, name| request.header(*name, "a"));
            check(&request.body(()).unwrap().into_parts().0, &limits)
        };
        for (target, fields, expected) in [
            ("https://any.host/1?345", &["a", "b", "c"][..], Ok(())),
            ("https://any.host/1?3456", &[], Err(Irregular::TargetLen)),
            ("/1?345", &["a", "a", "a", "a"], Err(Irregular::Fields)),
            ("/", &["a", "cookie", "cookie", "cookie", "b"], Ok(())),
        ] {
            assert_eq!(sized(target, fields), expected, "{target} {fields:?}");
        }
    }

    #[test]
    fn targets() {
        let parts = |authority: Option<&'static str>, path: &'static str| {
            let target = Uri::builder().path_and_query(path);
            let target = authority.into_iter().fold(target, |target, host| target.scheme("https").authority(host));
            target.build().unwrap()
        };
        for (method, target, expected) in [
            ("GET", parts(None, "*"), Err(Irregular::Target)),
            ("OPTIONS", parts(None, "*"), Ok(())),
            ("OPTIONS", parts(Some("a"), "*"), Ok(())),
            ("GET", parts(Some("a"), "/?q"), Ok(())),
            ("GET", Uri::from_static("https://a?q"), Err(Irregular::Target)),
            ("PRI", parts(Some("a"), "/"), Err(Irregular::Method)),
            ("PRIOR", parts(Some("a"), "/"), Ok(())),
            ("CONNECT", Uri::from_static("a:80"), Ok(())),
            ("CONNECT", parts(Some("a"), "/chat"), Ok(())),
            ("GET", Uri::from_static("http://a/"), Err(Irregular::Misdirected)),
            ("GET", Uri::from_static("ftp://a/"), Err(Irregular::Scheme)),
        ] {
            let request = Request::builder().method(method).uri(target.clone()).version(Version::HTTP_2);
            assert_eq!(
                check(&request.body(()).unwrap().into_parts().0, &Limits::default()),
                expected,
                "{method} {target:?}"
            );
        }
    }

    #[test]
    fn hosts() {
        for (authority, hosts, is_regular) in [
            ("a", &[][..], true),
            ("a", &["a"], true),
            ("a", &["A"], true),
            ("a", &["b"], false),
            ("a", &["a", "a"], false),
            ("a", &["a b"], false),
            ("u@a", &[], false),
            ("u@a", &["u@a"], false),
            (":80", &[], false),
        ] {
            let fields: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
            let target = Uri::builder().scheme("https").authority(authority).path_and_query("/").build().unwrap();
            let is_ok = checked("GET", &target.to_string(), &fields).is_ok();
            assert_eq!(is_ok, is_regular, "{authority} {hosts:?}");
        }
    }
}
