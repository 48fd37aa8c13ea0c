//! A response that continues elsewhere: what it needs, and how another site is asked for the rest of it.
//!
//! The other site gets the client's request once more, for the rest of the resource (`Range`), and only in the version
//! that the client has a part of (`If-Range`; RFC 9110, sections 13.1.5 and 14). Its response has to be exactly that
//! part, with the same strong validator.

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, EXPECT, HeaderMap, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};
use http::{Method, Request, Response, StatusCode, response};
use watari_http1::{Limits, Server};

/// A part of a resource: offsets of its first and its last byte, and the length of the resource, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub first: u64,
    pub last: u64,
    pub complete_len: u64,
}

/// What a response needs to continue elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// The head of the request, as it came.
    pub request: Bytes,
    /// The strong validator of the response.
    pub etag: HeaderValue,
    /// The part of the resource that the whole response is.
    pub part: Part,
}

/// Another site cannot continue a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CannotResume {
    #[error("the request cannot be repeated")]
    Request,
    #[error("the response is not the requested part of the resource")]
    Part,
    #[error("the resource has another validator")]
    Validator,
}

impl Resume {
    /// What the response to a request needs, if it can continue: the request is a GET, and the response is a
    /// representation or one part of it, of `len` bytes, with a strong validator.
    pub fn of(method: &Method, request: &Bytes, response: &response::Parts, len: u64) -> Option<Self> {
        if *method != Method::GET || len == 0 {
            return None;
        }
        let etag = strong_validator(&response.headers)?.clone();
        let part = match response.status {
            StatusCode::OK if response.headers.get(ACCEPT_RANGES).is_none_or(|value| value != "none") => {
                Part { first: 0, last: len - 1, complete_len: len }
            }
            StatusCode::PARTIAL_CONTENT => Part::parse(response.headers.get(CONTENT_RANGE)?)?,
            _ => return None,
        };
        (part.content_len() == len).then(|| Self { request: request.clone(), etag, part })
    }

    /// What the rest of the response needs, from this position of its body on. `None`: nothing is left.
    pub fn rest(&self, position: u64) -> Option<Self> {
        let first = self.part.first.checked_add(position).filter(|first| *first <= self.part.last)?;
        Some(Self { part: Part { first, ..self.part }, ..self.clone() })
    }

    /// The request for this part.
    pub fn request(&self) -> Result<Request<()>, CannotResume> {
        let limits =
            Limits { head_bytes_max: self.request.len(), fields_max: usize::MAX, target_bytes_max: usize::MAX };
        let parsed = Server::new(limits).parse_request(&self.request);
        let mut head =
            parsed.ok().flatten().filter(|parsed| parsed.content.is_empty()).ok_or(CannotResume::Request)?.head;
        for name in [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, EXPECT, CONTENT_LENGTH] {
            head.headers.remove(name);
        }
        let range = format!("bytes={}-{}", self.part.first, self.part.last);
        head.headers.insert(RANGE, HeaderValue::try_from(range).map_err(|_| CannotResume::Request)?);
        head.headers.insert(IF_RANGE, self.etag.clone());
        Ok(Request::from_parts(head, ()))
    }

    /// Returns the body of the response to [`Resume::request`], if it is the part.
    pub fn accept<B: http_body::Body>(&self, response: Response<B>) -> Result<B, CannotResume> {
        let (head, body) = response.into_parts();
        let is_part = head.status == StatusCode::PARTIAL_CONTENT
            && head.headers.get(CONTENT_RANGE).and_then(Part::parse) == Some(self.part);
        let len = body.size_hint().exact();
        if strong_validator(&head.headers) != Some(&self.etag) {
            return Err(CannotResume::Validator);
        }
        if is_part && len == Some(self.part.content_len()) { Ok(body) } else { Err(CannotResume::Part) }
    }
}

impl Part {
    /// The number of bytes.
    pub fn content_len(&self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }

    /// Parses `Content-Range` (RFC 9110, section 14.4). The length of the resource has to be known.
    fn parse(value: &HeaderValue) -> Option<Self> {
        let (range, complete) = value.to_str().ok()?.strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let part = Self { first: number(first)?, last: number(last)?, complete_len: number(complete)? };
        (part.first <= part.last && part.last < part.complete_len).then_some(part)
    }
}

/// Digits only, without the sign that `str::parse` accepts.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// RFC 9110, section 8.8.1: equal strong validators mean equal bytes.
fn strong_validator(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut values = headers.get_all(ETAG).iter();
    let value = values.next().filter(|value| value.as_bytes().starts_with(b"\""))?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http_body_util::Full;

    use super::*;

    const GET: &str = "GET /a?b HTTP/1.1\r\nHost: h\r\nCookie: c=1\r\nRange: bytes=5-\r\nIf-None-Match: \"x\"\r\n\r\n";

    fn head(status: u16, fields: &[(&str, &str)]) -> response::Parts {
        let response = Response::builder().status(status);
        let response = fields.iter().fold(response, |response, (name, value)| response.header(*name, *value));
        response.body(()).unwrap().into_parts().0
    }

    fn of(method: &Method, status: u16, fields: &[(&str, &str)], len: u64) -> Option<Part> {
        Resume::of(method, &Bytes::from_static(GET.as_bytes()), &head(status, fields), len).map(|resume| resume.part)
    }

    #[test]
    fn a_response_that_can_continue_is_a_part_with_a_strong_validator() {
        let etag = ("etag", "\"v\"");
        let multipart = ("content-type", "multipart/byteranges; boundary=b");
        let whole = Some(Part { first: 0, last: 99, complete_len: 100 });
        let part = Some(Part { first: 5, last: 104, complete_len: 200 });
        for (method, status, fields, len, expected) in [
            (Method::GET, 200, &[etag][..], 100, whole),
            (Method::GET, 200, &[etag, ("accept-ranges", "bytes")], 100, whole),
            (Method::GET, 206, &[etag, ("content-range", "bytes 5-104/200")], 100, part),
            // Coded by the origin: its validator is that of the coded bytes, and the request is repeated with its
            // `Accept-Encoding`.
            (Method::GET, 200, &[etag, ("content-encoding", "gzip"), ("vary", "accept-encoding")], 100, whole),
            (Method::GET, 206, &[etag, ("content-encoding", "br"), ("content-range", "bytes 5-104/200")], 100, part),
            // Coded by an agent.
            (Method::GET, 200, &[("etag", "W/\"v\""), ("content-encoding", "gzip")], 100, None),
            // Several ranges (RFC 9110, section 15.3.7.2), also with a field that is not allowed there.
            (Method::GET, 206, &[etag, multipart], 300, None),
            (Method::GET, 206, &[etag, multipart, ("content-range", "bytes 5-104/200")], 300, None),
            (Method::GET, 200, &[etag, ("accept-ranges", "none")], 100, None),
            (Method::GET, 200, &[etag], 0, None),
            (Method::GET, 200, &[], 100, None),
            (Method::GET, 200, &[("etag", "W/\"v\"")], 100, None),
            (Method::GET, 200, &[etag, ("etag", "\"w\"")], 100, None),
            (Method::GET, 404, &[etag], 100, None),
            (Method::HEAD, 200, &[etag], 100, None),
            (Method::POST, 200, &[etag], 100, None),
            (Method::GET, 206, &[etag], 100, None),
            (Method::GET, 206, &[etag, ("content-range", "bytes 5-104/200")], 99, None),
            (Method::GET, 206, &[etag, ("content-range", "bytes 5-104/*")], 100, None),
            (Method::GET, 206, &[etag, ("content-range", "bytes 5-104/104")], 100, None),
            (Method::GET, 206, &[etag, ("content-range", "bytes +5-104/200")], 100, None),
            (Method::GET, 206, &[etag, ("content-range", "bytes 104-5/200")], 100, None),
        ] {
            assert_eq!(of(&method, status, fields, len), expected, "{status} {fields:?} {len}");
        }
    }

    fn resume() -> Resume {
        let part = Part { first: 5, last: 104, complete_len: 200 };
        Resume { request: Bytes::from_static(GET.as_bytes()), etag: HeaderValue::from_static("\"v\""), part }
    }

    #[test]
    fn the_rest_is_requested_in_the_same_version() {
        let rest = resume().rest(10).unwrap();
        let request = rest.request().unwrap();
        let mut fields: Vec<_> =
            request.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        fields.sort_unstable_by_key(|(name, _)| *name);
        assert_eq!((request.uri(), request.method()), (&"/a?b".parse().unwrap(), &Method::GET));
        assert_eq!(fields, [("cookie", "c=1"), ("host", "h"), ("if-range", "\"v\""), ("range", "bytes=15-104")]);
        assert!(resume().rest(99).is_some());
        assert_eq!((resume().rest(100), resume().rest(u64::MAX)), (None, None));
    }

    #[test]
    fn requests_with_content_are_not_repeated() {
        let request = "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n";
        for request in [request, "GET / HTTP/1.1\r\nHost: h\r\n", "x"] {
            let resume = Resume { request: Bytes::from_static(request.as_bytes()), ..resume() };
            assert_eq!(resume.request().unwrap_err(), CannotResume::Request);
        }
    }

    #[test]
    fn only_the_same_part_of_the_same_version_is_accepted() {
        let accepted = |status, fields: &[(&str, &str)], len| {
            let response = Response::from_parts(head(status, fields), Full::new(Bytes::from(vec![0; len])));
            resume().accept(response).map(drop)
        };
        let (etag, range) = (("etag", "\"v\""), ("content-range", "bytes 5-104/200"));
        for (status, fields, len, expected) in [
            (206, &[etag, range][..], 100, Ok(())),
            (200, &[etag, range], 100, Err(CannotResume::Part)),
            (206, &[etag, ("content-range", "bytes 4-104/200")], 101, Err(CannotResume::Part)),
            (206, &[etag, ("content-range", "bytes 5-104/201")], 100, Err(CannotResume::Part)),
            (206, &[etag, range], 99, Err(CannotResume::Part)),
            (206, &[("etag", "\"w\""), range], 100, Err(CannotResume::Validator)),
            (206, &[("etag", "W/\"v\""), range], 100, Err(CannotResume::Validator)),
            (206, &[range], 100, Err(CannotResume::Validator)),
            (416, &[etag], 0, Err(CannotResume::Part)),
        ] {
            assert_eq!(accepted(status, fields, len), expected, "{status} {fields:?} {len}");
        }
    }
}
