//! Heads of responses (RFC 9112, section 4).

use std::mem::MaybeUninit;

use http::{Response, StatusCode, Version, response};

use super::Field;
use super::facts::{Coding, Facts, Length};
use super::parts::{Lengths, Shared};
use crate::content::Content;
use crate::fault::ResponseFault;

/// The head of a response, which borrows the input.
#[derive(Debug)]
pub struct ResponseHead<'a, 'r> {
    /// HTTP/1.1 or HTTP/1.0.
    pub version: Version,
    /// 100 to 999. A status above 599 is treated as a 5xx (RFC 9110, section 15).
    pub status: u16,
    pub fields: &'r [Field<'a>],
    /// All bytes of the head, with the empty line at its end.
    pub raw: &'a [u8],
    facts: Facts,
}

impl<'a, 'r> ResponseHead<'a, 'r> {
    /// Parses a head. `input` begins with its first byte and may continue after its end. `None`: it is incomplete.
    pub fn parse(input: &'a [u8], room: &'r mut [MaybeUninit<Field<'a>>]) -> Result<Option<Self>, ResponseFault> {
        // `httparse` skips empty lines, but only a request may follow them (RFC 9112, section 2.2).
        if matches!(input, [b'\r' | b'\n', ..]) {
            return Err(ResponseFault::Version);
        }
        let mut response = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let parsed = config.parse_response_with_uninit_headers(&mut response, input, room).map_err(fault)?;
        let httparse::Status::Complete(len) = parsed else { return Ok(None) };
        let status = response.code.unwrap_or_default();
        if status < 100 {
            return Err(ResponseFault::Status);
        }
        let version = if response.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
        let facts = Facts::of(response.headers);
        check_framing(version, &facts)?;
        Ok(Some(Self { version, status, fields: response.headers, raw: &input[..len], facts }))
    }

    /// The content of the response to a request (RFC 9112, section 6.3). `to_head`: the request was HEAD.
    pub fn content(&self, to_head: bool) -> Content {
        if to_head || matches!(self.status, 100..=199 | 204 | 304) {
            return Content::None;
        }
        match (self.facts.coding, self.facts.length) {
            (Coding::Chunked, _) => Content::Chunked,
            (_, Length::Known(length)) => Content::Length(length),
            _ => Content::UntilClose,
        }
    }

    /// Whether the server takes another request on this connection (RFC 9112, section 9.3), apart from content that
    /// lasts until it closes.
    pub fn persists(&self) -> bool {
        !self.facts.closes && (self.version == Version::HTTP_11 || self.facts.keeps_alive)
    }

    /// Copies the head.
    pub fn into_parts(self) -> Result<response::Parts, ResponseFault> {
        let lengths = if self.facts.has_surplus_length { Lengths::Merge(self.facts.length) } else { Lengths::Keep };
        let shared = Shared::new(self.raw);
        let fields = shared.fields(self.fields, lengths, 0).map_err(|_| ResponseFault::FieldLine)?;
        let (mut head, ()) = Response::new(()).into_parts();
        head.status = StatusCode::from_u16(self.status).map_err(|_| ResponseFault::Status)?;
        (head.version, head.headers) = (self.version, fields);
        Ok(head)
    }
}

fn fault(error: httparse::Error) -> ResponseFault {
    match error {
        httparse::Error::Token | httparse::Error::Status => ResponseFault::StatusLine,
        httparse::Error::Version => ResponseFault::Version,
        httparse::Error::HeaderName | httparse::Error::HeaderValue => ResponseFault::FieldLine,
        httparse::Error::NewLine => ResponseFault::LineEnd,
        httparse::Error::TooManyHeaders => ResponseFault::Fields,
    }
}

/// Refuses responses whose length is ambiguous (RFC 9112, section 6.3), even if they have no content: a cache or
/// another recipient may still use their fields.
fn check_framing(version: Version, facts: &Facts) -> Result<(), ResponseFault> {
    if facts.length == Length::Invalid {
        return Err(if facts.has_surplus_length { ResponseFault::Lengths } else { ResponseFault::Length });
    }
    match facts.coding {
        Coding::Absent => Ok(()),
        _ if version == Version::HTTP_10 => Err(ResponseFault::CodingVersion),
        Coding::ChunkedFirst | Coding::ChunkedLast | Coding::Other => Err(ResponseFault::Coding),
        Coding::Chunked if facts.length != Length::Absent => Err(ResponseFault::LengthAndCoding),
        Coding::Chunked => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::head::field_room;

    fn content(text: &str, to_head: bool) -> Result<Content, ResponseFault> {
        let text = format!("{text}\r\n\r\n");
        ResponseHead::parse(text.as_bytes(), &mut field_room()).map(|head| head.unwrap().content(to_head))
    }

    #[test]
    fn contents() {
        for (text, to_head, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 3", false, Content::Length(3)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3, 3", false, Content::Length(3)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3", true, Content::None),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", false, Content::Chunked),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", true, Content::None),
            ("HTTP/1.1 200 OK", false, Content::UntilClose),
            ("HTTP/1.0 200 OK", false, Content::UntilClose),
            ("HTTP/1.1 204 No Content", false, Content::None),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 3", false, Content::None),
            ("HTTP/1.1 103 Early Hints\r\nContent-Length: 3", false, Content::None),
        ] {
            assert_eq!(content(text, to_head), Ok(expected), "{text}");
        }
    }

    #[test]
    fn faults() {
        for (text, fault) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4", ResponseFault::Lengths),
            ("HTTP/1.1 204 No Content\r\nContent-Length: +1", ResponseFault::Length),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked", ResponseFault::LengthAndCoding),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked", ResponseFault::Coding),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: identity", ResponseFault::Coding),
            ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked", ResponseFault::CodingVersion),
            ("HTTP/1.1 099 OK", ResponseFault::Status),
            ("HTTP/1.1 20 OK", ResponseFault::StatusLine),
            ("HTTP/1.1  200 OK", ResponseFault::StatusLine),
            ("HTTP/2.0 200 OK", ResponseFault::Version),
            ("SSH-2.0-OpenSSH_9.2", ResponseFault::Version),
            ("\r\nHTTP/1.1 200 OK", ResponseFault::Version),
            ("HTTP/1.1 200 OK\r\n folded: x", ResponseFault::FieldLine),
            ("HTTP/1.1 200 OK\r\na : x", ResponseFault::FieldLine),
        ] {
            assert_eq!(content(text, false), Err(fault), "{text}");
        }
    }

    #[test]
    fn a_head_becomes_parts() {
        let text = b"HTTP/1.0 404 gone away\r\nContent-Length: 3\r\nContent-Length: 3\r\nX-One: 1\r\n\r\nabc";
        let mut room = field_room();
        let head = ResponseHead::parse(text, &mut room).unwrap().unwrap();
        assert_eq!((head.raw.len(), head.persists()), (text.len() - 3, false));
        let head = head.into_parts().unwrap();
        assert_eq!((head.status, head.version), (StatusCode::NOT_FOUND, Version::HTTP_10));
        assert_eq!((head.headers.len(), head.headers["x-one"].as_bytes()), (2, &b"1"[..]));
    }
}
