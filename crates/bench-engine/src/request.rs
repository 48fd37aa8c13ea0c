//! A request, prepared to be sent many times.

use std::sync::Arc;

use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderMap, Method, Uri, header};
use watari_http1::{Client, ContentSize, Limits, Misuse};

use crate::ok_status::OkStatus;
use crate::site::Site;

/// A request with the expectations of its response.
#[derive(Clone, Debug)]
pub struct Request {
    /// The class of its URI: an index into the plan's classes.
    pub class: usize,
    pub site: Arc<Site>,
    pub expected: Expected,
    /// The statuses that count as success if none is expected.
    pub ok: Arc<OkStatus>,
    pub method: Method,
    /// As sent in HTTP/2.
    pub(crate) parts: http::Request<()>,
    pub body: Bytes,
    /// As written in HTTP/1.1, on a connection that stays open.
    pub persistent: Bytes,
    /// As written in HTTP/1.1, with `Connection: close`.
    pub last: Bytes,
}

/// The expected response. Any other is a MISMATCH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The required status; `None`: any. [`Requests::ok_status`](crate::requests::Requests::ok_status) defines success
    /// for all requests.
    pub status: Option<u16>,
    /// The required SHA-256 of the body; `None`: any.
    pub sha256: Option<[u8; 32]>,
}

/// The parts of a request.
#[derive(Clone, Debug)]
pub struct Parts {
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// Header fields besides `Host`, `Content-Length` and `Connection`, which [`Request::new`] adds unless they are
    /// given.
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// The request cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The path is invalid.
    #[error("{0:?} is not a path: {1}")]
    Path(String, http::Error),
    /// The header fields are invalid together.
    #[error("a request cannot be sent: {0}")]
    Head(#[from] Misuse),
}

impl Parts {
    /// A GET request without header fields and body.
    pub fn get(path: &str) -> Self {
        Self { method: Method::GET, path: path.to_owned(), headers: HeaderMap::new(), body: Bytes::new() }
    }
}

impl Request {
    /// Prepares a request.
    pub fn new(site: Arc<Site>, parts: Parts) -> Result<Self, RequestError> {
        let Parts { method, path, mut headers, body } = parts;
        let scheme = if site.tls { "https" } else { "http" };
        let uri = Uri::builder().scheme(scheme).authority(site.authority.as_str()).path_and_query(path.as_str());
        let uri = uri.build().map_err(|error| RequestError::Path(path, error))?;
        headers.entry(header::USER_AGENT).or_insert(const { header::HeaderValue::from_static(USER_AGENT) });
        headers.entry(header::ACCEPT).or_insert(const { header::HeaderValue::from_static("*/*") });
        if !body.is_empty() || matches!(method, Method::POST | Method::PUT | Method::PATCH) {
            headers.entry(header::CONTENT_LENGTH).or_insert_with(|| body.len().into());
        }
        let (mut head, ()) = http::Request::new(()).into_parts();
        (head.method, head.uri, head.headers) = (method.clone(), uri, headers);
        let persistent = written(&head, &body)?;
        head.headers.entry(header::CONNECTION).or_insert(const { header::HeaderValue::from_static("close") });
        let last = written(&head, &body)?;
        Ok(Self {
            class: 0,
            expected: Expected::default(),
            ok: Arc::default(),
            persistent,
            last,
            site,
            method,
            parts: of_http2(http::Request::from_parts(head, ())),
            body,
        })
    }

    /// Whether the status alone makes a complete response count as failed.
    pub(crate) fn is_error(&self, status: u16) -> bool {
        self.expected.status.is_none() && !self.ok.contains(status)
    }

    /// Whether it may be sent again if the connection ended before any response (RFC 9110, section 9.2.2).
    pub(crate) fn is_idempotent(&self) -> bool {
        self.method.is_idempotent()
    }
}

const USER_AGENT: &str = concat!("watari-bench/", env!("CARGO_PKG_VERSION"));

/// The bytes of a request in HTTP/1.1.
fn written(head: &http::request::Parts, body: &[u8]) -> Result<Bytes, Misuse> {
    let size = if body.is_empty() { ContentSize::None } else { ContentSize::Known(body.len() as u64) };
    let mut out = Vec::new();
    Client::new(Limits::default()).start_request(head, size, &mut out)?;
    out.extend_from_slice(body);
    Ok(out.into())
}

/// The request for HTTP/2: `Host` becomes `:authority`, and connection-specific fields are removed (RFC 9113, sections
/// 8.2.2 and 8.3.1).
fn of_http2(mut request: http::Request<()>) -> http::Request<()> {
    let host = request.headers_mut().remove(header::HOST);
    for name in ["connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"] {
        request.headers_mut().remove(name);
    }
    let mut parts = request.uri().clone().into_parts();
    // An invalid authority is left out. The server's own name remains.
    if let Some(Ok(authority)) = host.map(|host| Authority::try_from(host.as_bytes())) {
        parts.authority = Some(authority);
    }
    *request.uri_mut() = Uri::from_parts(parts).expect("another authority leaves a URI what it is");
    request
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn request(parts: Parts) -> Request {
        let (site, _) = Site::resolve("http://127.0.0.1:8080/").unwrap();
        Request::new(Arc::new(site), parts).unwrap()
    }

    #[test]
    fn a_request_is_written_as_http_1_1() {
        let request = request(Parts::get("/a?b"));
        let text = std::str::from_utf8(&request.persistent).unwrap();
        assert!(text.starts_with("GET /a?b HTTP/1.1\r\nhost: 127.0.0.1:8080\r\n"), "{text}");
        assert!(text.ends_with("\r\n\r\n") && !text.contains("connection"), "{text}");
        assert!(std::str::from_utf8(&request.last).unwrap().ends_with("\r\nconnection: close\r\n\r\n"));
    }

    #[test]
    fn http_2_has_no_fields_of_the_connection() {
        let mut parts = Parts::get("/a");
        for (name, value) in [("host", "www.example"), ("connection", "close"), ("te", "gzip"), ("x-kept", "yes")] {
            parts.headers.insert(name, value.parse().unwrap());
        }
        let request = request(parts);
        assert_eq!(request.parts.uri(), "http://www.example/a");
        assert!(["host", "connection", "te"].iter().all(|name| !request.parts.headers().contains_key(*name)));
        assert!(request.parts.headers().contains_key("x-kept"));
        let text = std::str::from_utf8(&request.persistent).unwrap();
        assert!(text.contains("host: www.example\r\n") && text.contains("connection: close\r\n"), "{text}");
    }

    #[test]
    fn a_host_that_is_none_is_not_sent_as_authority() {
        let mut parts = Parts::get("/");
        parts.headers.insert("host", "a b".parse().unwrap());
        assert_eq!(request(parts).parts.uri(), "http://127.0.0.1:8080/");
    }

    #[test]
    fn a_body_has_a_length() {
        let request = request(Parts { method: Method::POST, body: Bytes::from_static(b"watari"), ..Parts::get("/") });
        let text = std::str::from_utf8(&request.persistent).unwrap();
        assert!(text.contains("content-length: 6\r\n") && text.ends_with("\r\n\r\nwatari"), "{text}");
        assert!(!request.is_idempotent());
    }
}
