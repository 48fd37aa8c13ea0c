//! Refuses requests that RFC 9112 has a server refuse and that hyper accepts. Every HTTP/1 request is checked before
//! any other part uses it. In requests of any version, also checks the size of the head ([`Limits::head_fields_max`],
//! [`Limits::target_bytes_max`]).
//!
//! | hyper | here |
//! | --- | --- |
//! | refuses malformed or contradictory lengths, and codings that do not end in `chunked` | the same |
//! | refuses folded lines, spaces before a colon, NUL and bare CR | the same |
//! | accepts `chunked` after other codings, and more than once | refused: the content would be ambiguous |
//! | accepts any number of `Host` fields, and none | exactly one is required (section 3.2); HTTP/1.0 may have none |
//! | accepts a target of any form with any method | `*` only with OPTIONS (section 3.2), no authority alone |
//! | accepts CONNECT and TRACE | refused: they end at a proxy, and any bytes may follow a CONNECT |
//! | accepts PRI | refused in any version: no client uses it (RFC 9113, section 11.6) |
//! | accepts a target with any scheme | only `http` and `https` |
//! | ignores `Content-Length` beside `Transfer-Encoding`, and closes afterwards | the same, as section 6.1 allows |
//! | ends a line at a bare LF | the same, as section 2.2 allows; it is forwarded with CR LF |
//!
//! h2 refuses most malformed HTTP/2 messages (RFC 9113, section 8): connection-specific fields, names in upper case,
//! `TE` other than `trailers`, pseudo-header fields that are unknown, missing, repeated or after others, and lengths
//! that are malformed or differ from the content. This module refuses the rest:
//!
//! | h2 | here |
//! | --- | --- |
//! | accepts a `:path` that does not begin with `/` | refused, except `*` with OPTIONS (section 8.3.1) |
//! | accepts any `:scheme` | `http` is misdirected (421; RFC 9110, section 7.4), others are malformed |
//! | accepts user information, or no host, in `:authority` | refused (section 8.3.1) |
//! | accepts `Host` beside a different `:authority`, and several | refused (section 8.3.1) |
//! | accepts an empty `Content-Length` as 0 | refused |
//! | drops pseudo-header fields in trailers | refused by `watari_http2` (section 8.1) |
//! | drops `:scheme` if there is no `:authority` | not visible, and not forwarded |

use http::header::{CONNECTION, CONTENT_LENGTH, COOKIE, HOST, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use watari_body::Body;

use crate::settings::limits::Limits;
use crate::settings::refusal::refusal;

/// The reason that a request is refused. It is always the client's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Irregular {
    /// RFC 9112, section 3.2.
    #[error("The request must name exactly one host.")]
    Host,
    /// RFC 9110, section 9.3.6 and 9.3.8; RFC 9113, section 11.6.
    #[error("This method is not implemented.")]
    Method,
    /// RFC 9113, section 8.3.1.
    #[error("The scheme of the target must be https.")]
    Scheme,
    /// RFC 9110, section 7.4.
    #[error("This connection does not serve targets with the scheme http.")]
    Misdirected,
    /// RFC 9110, section 8.6.
    #[error("The Content-Length must be a number.")]
    Length,
    /// RFC 9112, section 3.2.
    #[error("The target is not valid for this method.")]
    Target,
    /// RFC 9112, section 6.1.
    #[error("The transfer coding chunked must be applied only once.")]
    Chunked,
    /// RFC 9112, section 6.1.
    #[error("The only supported transfer coding is chunked.")]
    Coding,
    /// RFC 6585, section 5.
    #[error("The request has too many header fields, or too long ones.")]
    Fields,
    /// RFC 9110, section 15.5.15.
    #[error("The target is too long.")]
    TargetLen,
}

/// Checks whether the request may be answered.
pub(crate) fn check<B>(request: &Request<B>, limits: &Limits) -> Result<(), Irregular> {
    check_size(request.uri(), request.headers(), limits)?;
    check_method(request.method())?;
    check_asterisk(request.method(), request.uri())?;
    check_scheme(request.version(), request.uri())?;
    if request.version() > Version::HTTP_11 {
        return check_http2(request);
    }
    check_len(request.uri(), request.headers(), limits)?;
    check_target(request.method(), request.uri())?;
    check_host(request.version(), request.headers())?;
    check_coding(request.headers())
}

impl Irregular {
    /// The response to a refused request. It closes the connection, because the start of the next request is uncertain,
    /// except if the request only exceeds a limit.
    pub(crate) fn response(self) -> Response<Body> {
        let mut response = refusal(self.status(), format!("{self}\n"));
        if !matches!(self, Self::Fields | Self::TargetLen) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    fn status(self) -> StatusCode {
        match self {
            Self::Method | Self::Coding => StatusCode::NOT_IMPLEMENTED,
            Self::Host | Self::Target | Self::Chunked | Self::Scheme | Self::Length => StatusCode::BAD_REQUEST,
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

/// hyper stops reading a head that is too long, but accepts one that arrives in a single read. The HTTP/2 library has
/// its own limit.
fn check_len(target: &Uri, headers: &HeaderMap, limits: &Limits) -> Result<(), Irregular> {
    let of_target = target.path_and_query().map_or(0, |target| target.as_str().len());
    let fields = headers.iter().map(|(name, value)| name.as_str().len() + ": \r\n".len() + value.len());
    if of_target + fields.sum::<usize>() > limits.head_bytes_max { Err(Irregular::Fields) } else { Ok(()) }
}

fn check_method(method: &Method) -> Result<(), Irregular> {
    // Comparison with an extension `Method` is slower than comparison of the text.
    if method.as_str() == "PRI" { Err(Irregular::Method) } else { Ok(()) }
}

/// Clients of HTTP/1.1 that take the agent for a proxy may send an `http` target in absolute form (RFC 9112, section
/// 3.2.2).
fn check_scheme(version: Version, target: &Uri) -> Result<(), Irregular> {
    let scheme = target.scheme_str().unwrap_or("https");
    if scheme.eq_ignore_ascii_case("https") {
        return Ok(());
    }
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(Irregular::Scheme);
    }
    if version > Version::HTTP_11 { Err(Irregular::Misdirected) } else { Ok(()) }
}

/// RFC 9113, section 8.3.1.
fn check_http2<B>(request: &Request<B>) -> Result<(), Irregular> {
    let target = request.uri();
    let path = target.path_and_query().map_or("", |path| path.as_str());
    // CONNECT has no path, unless it is an extended one (RFC 8441, section 4).
    if !(path.starts_with('/') || path == "*" || (path.is_empty() && *request.method() == Method::CONNECT)) {
        return Err(Irregular::Target);
    }
    if target.authority().is_some_and(|authority| !has_plain_host(authority)) {
        return Err(Irregular::Host);
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    if let Some(host) = hosts.next() {
        let host = Authority::try_from(host.as_bytes()).map_err(|_| Irregular::Host)?;
        let is_other = target.authority().is_some_and(|authority| *authority != host);
        if is_other || !has_plain_host(&host) || hosts.next().is_some() {
            return Err(Irregular::Host);
        }
    }
    let lengths = request.headers().get_all(CONTENT_LENGTH).iter();
    if lengths.into_iter().any(HeaderValue::is_empty) { Err(Irregular::Length) } else { Ok(()) }
}

fn check_asterisk(method: &Method, target: &Uri) -> Result<(), Irregular> {
    if target.path() == "*" && *method != Method::OPTIONS { Err(Irregular::Target) } else { Ok(()) }
}

fn check_target(method: &Method, target: &Uri) -> Result<(), Irregular> {
    if *method == Method::CONNECT || *method == Method::TRACE {
        return Err(Irregular::Method);
    }
    let is_authority = target.authority().is_some() && target.scheme().is_none();
    if is_authority { Err(Irregular::Target) } else { Ok(()) }
}

fn check_host(version: Version, headers: &HeaderMap) -> Result<(), Irregular> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_host(host) => Ok(()),
        (None, None) if version < Version::HTTP_11 => Ok(()),
        _ => Err(Irregular::Host),
    }
}

/// RFC 9110, section 7.2. User information is refused (section 4.2.4). A host is required: the value must not begin
/// with a port.
fn is_host(value: &HeaderValue) -> bool {
    Authority::try_from(value.as_bytes()).is_ok_and(|authority| has_plain_host(&authority))
}

fn has_plain_host(authority: &Authority) -> bool {
    !authority.as_str().starts_with(':') && !authority.as_str().contains('@')
}

fn check_coding(headers: &HeaderMap) -> Result<(), Irregular> {
    let values = headers.get_all(TRANSFER_ENCODING).iter();
    let codings = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let mut codings = codings.filter(|coding| !coding.is_empty());
    let Some(first) = codings.next() else { return Ok(()) };
    match codings.next() {
        _ if !first.eq_ignore_ascii_case(b"chunked") => Err(Irregular::Coding),
        None => Ok(()),
        Some(_) => Err(Irregular::Chunked),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn checked(method: &str, target: &str, version: Version, fields: &[(&str, &str)]) -> Result<(), Irregular> {
        let mut request = Request::builder().method(method).uri(target).version(version);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        check(&request.body(()).unwrap(), &Limits::default())
    }

    #[test]
    fn sizes() {
        let limits = Limits { head_fields_max: 3, target_bytes_max: 6, ..Limits::default() };
        let sized = |target: &str, fields: &[&str]| {
            let request = Request::get(target).version(Version::HTTP_2);
            let request = fields.iter().fold(request, |request, name| request.header(*name, "a"));
            check(&request.body(()).unwrap(), &limits)
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
    fn lengths() {
        let limits = Limits { head_bytes_max: 20, ..Limits::default() };
        for (value, expected) in [("123", Ok(())), ("1234", Err(Irregular::Fields))] {
            // The target has 1 byte, the host 9 and the name 7.
            let request = Request::get("/").header("host", "a").header("abc", value).body(()).unwrap();
            assert_eq!(check(&request, &limits), expected);
        }
    }

    #[test]
    fn targets() {
        let host = [("host", "a")];
        for (method, target, expected) in [
            ("GET", "/", Ok(())),
            ("GET", "http://a/", Ok(())),
            ("GET", "*", Err(Irregular::Target)),
            ("GET", "a:80", Err(Irregular::Target)),
            ("OPTIONS", "*", Ok(())),
            ("OPTIONS", "/", Ok(())),
            ("OPTIONS", "a:80", Err(Irregular::Target)),
            ("CONNECT", "a:80", Err(Irregular::Method)),
            ("TRACE", "/", Err(Irregular::Method)),
            ("PRI", "/", Err(Irregular::Method)),
            ("PRI", "*", Err(Irregular::Method)),
            ("PRIOR", "/", Ok(())),
            ("GET", "https://a/", Ok(())),
            ("GET", "HTTP://a/", Ok(())),
            ("GET", "ftp://a/", Err(Irregular::Scheme)),
        ] {
            assert_eq!(checked(method, target, Version::HTTP_11, &host), expected, "{method} {target}");
        }
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
            ("CONNECT", Uri::from_static("a:80"), Ok(())),
            ("CONNECT", parts(Some("a"), "/chat"), Ok(())),
            ("GET", Uri::from_static("http://a/"), Err(Irregular::Misdirected)),
            ("GET", Uri::from_static("ftp://a/"), Err(Irregular::Scheme)),
        ] {
            let request = Request::builder().method(method).uri(target.clone()).version(Version::HTTP_2);
            assert_eq!(check(&request.body(()).unwrap(), &Limits::default()), expected, "{method} {target:?}");
        }
    }

    #[test]
    fn hosts() {
        use Version as V;
        for (version, hosts, is_regular) in [
            (V::HTTP_11, &["a"][..], true),
            (V::HTTP_11, &["[::1]:8443"], true),
            (V::HTTP_11, &[], false),
            (V::HTTP_11, &[""], false),
            (V::HTTP_11, &["a", "a"], false),
            (V::HTTP_11, &["a/b"], false),
            (V::HTTP_11, &["u@a"], false),
            (V::HTTP_10, &[], true),
            (V::HTTP_10, &["a", "b"], false),
            (V::HTTP_2, &[], true),
        ] {
            let fields: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
            assert_eq!(checked("GET", "/", version, &fields).is_ok(), is_regular, "{version:?} {hosts:?}");
        }
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
            let is_ok = checked("GET", &target.to_string(), Version::HTTP_2, &fields).is_ok();
            assert_eq!(is_ok, is_regular, "{authority} {hosts:?}");
        }
    }

    #[test]
    fn lengths_of_http2() {
        for (length, expected) in [("", Err(Irregular::Length)), ("0", Ok(()))] {
            assert_eq!(checked("GET", "https://a/", Version::HTTP_2, &[("content-length", length)]), expected);
        }
    }

    #[test]
    fn codings() {
        for (codings, expected) in [
            (&["chunked"][..], Ok(())),
            (&["Chunked ,"], Ok(())),
            (&["", "chunked"], Ok(())),
            (&["chunked, chunked"], Err(Irregular::Chunked)),
            (&["chunked", "chunked"], Err(Irregular::Chunked)),
            (&["gzip, chunked"], Err(Irregular::Coding)),
            (&["gzip", "chunked"], Err(Irregular::Coding)),
            (&["xchunked"], Err(Irregular::Coding)),
        ] {
            let fields: Vec<_> = codings.iter().map(|coding| ("transfer-encoding", *coding)).collect();
            let fields = [&[("host", "a")], &fields[..]].concat();
            assert_eq!(checked("POST", "/", Version::HTTP_11, &fields), expected, "{codings:?}");
        }
    }

    #[test]
    fn whoever_is_refused_is_not_listened_to_any_more() {
        let response = Irregular::Host.response();
        assert_eq!((response.status().as_u16(), &response.headers()[CONNECTION]), (400, &"close".parse().unwrap()));
        assert_eq!(Irregular::Coding.response().status(), 501);
        assert!(!Irregular::Fields.response().headers().contains_key(CONNECTION));
    }
}
