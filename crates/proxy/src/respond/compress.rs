//! Compresses responses for clients.
//!
//! Some responses are not compressed:
//!
//! * parts of a representation;
//! * coded content;
//! * responses with `no-transform` (RFC 9110, section 7.7);
//! * responses with digests of their bytes;
//! * responses that could continue at another origin, because coded bytes cannot be joined to those of another origin.

mod accept;
mod body;
mod coding;

use std::sync::Arc;

use http::header::{self, HeaderName};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::sync::Semaphore;

use crate::exchange::fields;
use crate::transfer::forward::Movable;
use crate::transport::tunnel::Tunnel;

use body::{CompressedBody, Encoder};
use coding::Coding;
use watari_body::Body;

/// Which responses are compressed, for clients that accept it.
///
/// Do not compress pages that contain a secret next to text that an attacker can inject: over TLS, their length reveals
/// the secret (BREACH). A rule that sets `Cache-Control: no-transform` turns compression off for a route.
#[derive(Debug, Clone)]
pub struct Compression {
    /// Media types, in lower case and without parameters.
    pub types: Vec<String>,
    /// The minimum length of a response, in bytes. A response without an announced length counts as long enough.
    pub length_min: u64,
}

impl Default for Compression {
    fn default() -> Self {
        Self { types: TYPES.map(str::to_owned).into(), length_min: 1024 }
    }
}

/// The properties of a request that decide about compression.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Accepted {
    coding: Option<Coding>,
    head_only: bool,
    /// Whether the request has a weak tag, which may be that of a compressed response.
    has_weak: bool,
}

/// Compresses responses.
#[derive(Debug)]
pub(super) struct Compressor {
    compression: Compression,
    places: Arc<Semaphore>,
}

impl Accepted {
    pub(crate) fn of(method: &Method, headers: &HeaderMap) -> Self {
        let mut tags = headers.get_all(header::IF_NONE_MATCH).iter();
        let has_weak = tags.any(|tags| tags.as_bytes().windows(3).any(|start| start == b"W/\""));
        Self { coding: accept::preferred(headers), head_only: method == Method::HEAD, has_weak }
    }
}

impl Compressor {
    pub(crate) fn new(compression: Compression) -> Self {
        Self { compression, places: Arc::new(Semaphore::new(AT_ONCE_MAX)) }
    }

    /// Compresses the response if the client accepts that. If [`AT_ONCE_MAX`] responses are being compressed, it stays
    /// unchanged.
    pub(crate) fn compress(&self, response: Response<Body>, accepted: Accepted) -> Response<Body> {
        let (mut head, body) = response.into_parts();
        if head.status == StatusCode::NOT_MODIFIED && accepted.has_weak {
            vary(&mut head.headers);
            weaken(&mut head.headers);
            return Response::from_parts(head, body);
        }
        // In a response to HEAD, only the field has the length.
        let length = content_length(&head.headers).or(body.size_hint().exact().filter(|_| !accepted.head_only));
        if !self.is_worth_it(&head, length) {
            return Response::from_parts(head, body);
        }
        vary(&mut head.headers);
        let place = Arc::clone(&self.places).try_acquire_owned();
        let (Some(coding), Ok(place)) = (accepted.coding, place) else { return Response::from_parts(head, body) };
        if accepted.head_only {
            code(&mut head.headers, coding);
            return Response::from_parts(head, body);
        }
        let Ok(encoder) = Encoder::new(coding) else { return Response::from_parts(head, body) };
        code(&mut head.headers, coding);
        Response::from_parts(head, CompressedBody::new(body, encoder, place).boxed_unsync())
    }

    fn is_worth_it(&self, head: &Parts, length: Option<u64>) -> bool {
        has_content(head.status)
            && head.extensions.get::<Movable>().is_none()
            && !Tunnel::is_in(&head.extensions)
            && !FORBIDDING.iter().any(|name| head.headers.contains_key(name))
            && !fields::lists(&head.headers, &header::CACHE_CONTROL, "no-transform")
            && length.is_none_or(|length| length >= self.compression.length_min.max(1))
            && self.is_of_a_type(&head.headers)
    }

    fn is_of_a_type(&self, headers: &HeaderMap) -> bool {
        let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let essence = value.split(';').next().unwrap_or_default().trim_ascii();
        self.compression.types.iter().any(|listed| listed.eq_ignore_ascii_case(essence))
    }
}

/// The maximum number of responses that are compressed at the same time. Each takes up to 1 MB of memory.
const AT_ONCE_MAX: usize = 512;

/// Text formats, and image formats that are text.
const TYPES: [&str; 10] = [
    "text/html",
    "text/css",
    "text/plain",
    "text/javascript",
    "text/xml",
    "application/javascript",
    "application/json",
    "application/wasm",
    "application/xml",
    "image/svg+xml",
];

/// A response with one of these fields is coded, a part, or has a digest of its bytes, also in its trailers.
const FORBIDDING: [HeaderName; 7] = [
    header::CONTENT_ENCODING,
    header::CONTENT_RANGE,
    header::TRAILER,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("repr-digest"),
];

/// Whether responses with this status have content (RFC 9110, sections 6.4.1 and 15.3.7). A switch of protocols has
/// none either.
fn has_content(status: StatusCode) -> bool {
    use StatusCode as S;
    let without = [S::NO_CONTENT, S::RESET_CONTENT, S::PARTIAL_CONTENT, S::NOT_MODIFIED];
    !status.is_informational() && !without.contains(&status)
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Adds `Vary`, also to responses that stay unchanged: another client may get a coded one (RFC 9110, section 12.5.5).
fn vary(headers: &mut HeaderMap) {
    let has = |token| fields::lists(headers, &header::VARY, token);
    if !has("*") && !has("accept-encoding") {
        headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
}

/// The coded bytes differ from the origin's. So the response has no known length and no ranges, and its tag becomes
/// weak (RFC 9110, section 8.8.1).
fn code(headers: &mut HeaderMap, coding: Coding) {
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::ACCEPT_RANGES);
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding.as_str()));
    weaken(headers);
}

fn weaken(headers: &mut HeaderMap) {
    let strong = headers.get(header::ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/"));
    let weak = strong.and_then(|tag| HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()).ok());
    if let Some(weak) = weak {
        headers.insert(header::ETAG, weak);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http_body_util::Full;

    use super::*;

    fn compress(fields: &[(&'static str, &'static str)], change: impl FnOnce(&mut Response<Body>)) -> HeaderMap {
        let mut headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("text/html"))]);
        for (name, value) in fields {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        let body = Full::from("x".repeat(2000)).map_err(|never| match never {}).boxed_unsync();
        let mut response = Response::new(body);
        *response.headers_mut() = headers;
        change(&mut response);
        let accepted = Accepted { coding: Some(Coding::Gzip), head_only: false, has_weak: true };
        Compressor::new(Compression::default()).compress(response, accepted).headers().clone()
    }

    #[test]
    fn the_head_says_how_the_body_is() {
        let fields = [("content-length", "2000"), ("etag", "\"a\""), ("accept-ranges", "bytes"), ("vary", "cookie")];
        let headers = compress(&fields, |_| ());
        assert_eq!(headers["content-encoding"], "gzip");
        assert_eq!(headers["etag"], "W/\"a\"");
        assert_eq!(headers.get_all("vary").iter().collect::<Vec<_>>(), ["cookie", "accept-encoding"]);
        assert!(!headers.contains_key("content-length") && !headers.contains_key("accept-ranges"));
        let fields = [("etag", "W/\"a\""), ("vary", "Accept-Encoding"), ("content-type", "Text/HTML; charset=utf-8")];
        let headers = compress(&fields, |_| ());
        assert_eq!(
            (&headers["content-encoding"], &headers["etag"]),
            (&"gzip".parse().unwrap(), &"W/\"a\"".parse().unwrap())
        );
        assert_eq!(headers.get_all("vary").iter().count(), 1);
    }

    /// A cache would not find its stored response by a strong tag (RFC 9111, section 4.3.4).
    #[test]
    fn what_is_not_modified_is_called_as_it_was() {
        let not_modified = |tags: &'static str| {
            let asked = HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_static(tags))]);
            let mut response = Response::new(watari_body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response.headers_mut().insert(header::ETAG, HeaderValue::from_static("\"a\""));
            let accepted = Accepted::of(&Method::GET, &asked);
            let headers = Compressor::new(Compression::default()).compress(response, accepted).headers().clone();
            (headers["etag"].to_str().unwrap().to_owned(), headers.contains_key("vary"))
        };
        assert_eq!(not_modified("\"b\", W/\"a\""), ("W/\"a\"".to_owned(), true));
        assert_eq!(not_modified("\"a\""), ("\"a\"".to_owned(), false));
    }

    #[test]
    fn what_would_lose_by_it_is_left_alone() {
        for (name, value) in [
            ("content-encoding", "br"),
            ("content-encoding", "identity"),
            ("content-range", "bytes 0-1999/9000"),
            ("cache-control", "max-age=1, No-Transform"),
            ("content-length", "1023"),
            ("content-type", "image/png"),
            ("content-type", "text/html-sandboxed"),
            ("content-type", ""),
            ("content-digest", "sha-256=:AAAA:"),
            ("trailer", "repr-digest"),
        ] {
            let headers = compress(&[(name, value)], |_| ());
            assert!(headers.get("content-encoding").is_none_or(|coding| coding != "gzip"), "{name}: {value}");
            assert!(!headers.contains_key("vary"), "{name}: {value}");
        }
        for status in [101, 204, 205, 206, 304] {
            let headers = compress(&[], |response| *response.status_mut() = StatusCode::from_u16(status).unwrap());
            assert!(!headers.contains_key("content-encoding"), "{status}");
        }
        let movable = compress(&[], |response| {
            response.extensions_mut().insert(Movable);
        });
        assert!(!movable.contains_key("content-encoding"));
    }
}
