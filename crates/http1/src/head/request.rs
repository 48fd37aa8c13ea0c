//! Heads of requests (RFC 9112, section 3).

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::uri::Uri;
use http::{Method, Request, Version, request};

use super::Field;
use super::facts::{Coding, Facts, Host, Length};
use super::host::is_host;
use super::parts::{Lengths, Shared};
use crate::content::Content;
use crate::fault::RequestFault;

/// The head of a request, which borrows the input. Its fields were checked, its target not yet:
/// [`RequestHead::into_parts`] does that.
#[derive(Debug)]
pub struct RequestHead<'a, 'r> {
    pub method: &'a str,
    pub target: &'a str,
    /// HTTP/1.1 or HTTP/1.0.
    pub version: Version,
    pub fields: &'r [Field<'a>],
    pub content: Content,
    /// All bytes of the head, with the empty line at its end.
    pub raw: &'a [u8],
    facts: Facts,
}

impl<'a, 'r> RequestHead<'a, 'r> {
    /// Parses a head. `input` begins with its first byte and may continue after its end. `None`: it is incomplete.
    pub fn parse(input: &'a [u8], room: &'r mut [MaybeUninit<Field<'a>>]) -> Result<Option<Self>, RequestFault> {
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(input, room).map_err(|error| fault(error, input))?;
        let httparse::Status::Complete(len) = parsed else { return Ok(None) };
        let version = if request.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
        let facts = Facts::of(request.headers);
        check_host(version, facts.host)?;
        let content = content(version, &facts)?;
        let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
        Ok(Some(Self { method, target, version, fields: request.headers, content, raw: &input[..len], facts }))
    }

    /// Whether the client can take another response on this connection (RFC 9112, section 9.3).
    ///
    /// Not after a message with two lengths (section 6.1).
    pub fn persists(&self) -> bool {
        let has_two_lengths = self.content == Content::Chunked && self.facts.length != Length::Absent;
        !self.facts.closes && !has_two_lengths && (self.version == Version::HTTP_11 || self.facts.keeps_alive)
    }

    /// Whether the client announces that it sends no further request (RFC 9112, section 9.6).
    pub fn is_last(&self) -> bool {
        self.facts.closes
    }

    /// Whether the client waits for a 100 before it sends the content (RFC 9110, section 10.1.1).
    pub fn expects_continue(&self) -> bool {
        self.facts.expects_continue && self.version == Version::HTTP_11 && !self.content.is_empty()
    }

    /// Whether the client asks for another protocol (RFC 9110, section 7.8).
    pub fn asks_upgrade(&self) -> bool {
        self.facts.has_upgrade && self.facts.has_upgrade_option && self.version == Version::HTTP_11
    }

    /// Whether the client processes trailers (RFC 9110, section 6.5.1).
    pub fn takes_trailers(&self) -> bool {
        self.facts.takes_trailers && self.version == Version::HTTP_11
    }

    /// Copies the head, and checks method and target. Returns the copy, too: the fields share its memory.
    pub fn into_parts(self) -> Result<(request::Parts, Bytes), RequestFault> {
        let method = Method::from_bytes(self.method.as_bytes()).map_err(|_| RequestFault::RequestLine)?;
        check_method(&method)?;
        let shared = Shared::new(self.raw);
        let target = target(&method, self.target, &shared)?;
        let lengths = match self.content {
            Content::Chunked if self.facts.length != Length::Absent => Lengths::Remove,
            _ if self.facts.has_surplus_length => Lengths::Merge(self.facts.length),
            _ => Lengths::Keep,
        };
        let fields = shared.fields(self.fields, lengths, ADDED_FIELDS).map_err(|_| RequestFault::FieldLine)?;
        let (mut head, ()) = Request::new(()).into_parts();
        (head.method, head.uri, head.version, head.headers) = (method, target, self.version, fields);
        Ok((head, shared.into_bytes()))
    }
}

fn fault(error: httparse::Error, input: &[u8]) -> RequestFault {
    match error {
        httparse::Error::Version if names_version(input) => RequestFault::Version,
        httparse::Error::Token | httparse::Error::Status | httparse::Error::Version => RequestFault::RequestLine,
        httparse::Error::HeaderName | httparse::Error::HeaderValue => RequestFault::FieldLine,
        httparse::Error::NewLine => RequestFault::LineEnd,
        httparse::Error::TooManyHeaders => RequestFault::Fields,
    }
}

/// Whether the request line has three words, and the third is a version of HTTP (RFC 9112, section 2.3).
fn names_version(input: &[u8]) -> bool {
    let line = input.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ').skip(2);
    match (words.next(), words.next()) {
        (Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor]), None) => {
            major.is_ascii_digit() && minor.is_ascii_digit()
        }
        _ => false,
    }
}

fn check_host(version: Version, host: Host) -> Result<(), RequestFault> {
    match host {
        Host::One => Ok(()),
        Host::Absent if version == Version::HTTP_10 => Ok(()),
        Host::Absent | Host::Invalid => Err(RequestFault::Host),
    }
}

/// RFC 9112, section 6.3, as it applies to requests.
fn content(version: Version, facts: &Facts) -> Result<Content, RequestFault> {
    if facts.length == Length::Invalid || facts.has_length_list {
        return Err(RequestFault::Length);
    }
    match facts.coding {
        Coding::Absent => {}
        // A message of HTTP/1.0 with a coding is faulty, even if it has a length, too (section 6.1).
        _ if version == Version::HTTP_10 => return Err(RequestFault::CodingVersion),
        Coding::Chunked => return Ok(Content::Chunked),
        Coding::ChunkedFirst => return Err(RequestFault::Chunked),
        Coding::ChunkedLast => return Err(RequestFault::Coding),
        Coding::Other => return Err(RequestFault::LastCoding),
    }
    Ok(if let Length::Known(length) = facts.length { Content::Length(length) } else { Content::None })
}

/// CONNECT and TRACE end at a proxy, and any bytes may follow a CONNECT. No client uses PRI (RFC 9113, section 11.6).
fn check_method(method: &Method) -> Result<(), RequestFault> {
    // Comparison with an extension `Method` is slower than comparison of the text.
    let is_refused = *method == Method::CONNECT || *method == Method::TRACE || method.as_str() == "PRI";
    if is_refused { Err(RequestFault::Method) } else { Ok(()) }
}

/// RFC 9112, section 3.2.
fn target(method: &Method, text: &str, shared: &Shared<'_>) -> Result<Uri, RequestFault> {
    if text.len() > URI_LEN_MAX {
        return Err(RequestFault::TargetLen);
    }
    let target = Uri::from_maybe_shared(shared.slice(text.as_bytes())).map_err(|_| RequestFault::Target)?;
    if text == "*" {
        return if *method == Method::OPTIONS { Ok(target) } else { Err(RequestFault::Target) };
    }
    // A target has no fragment (RFC 9110, section 7.1). `Uri` removes it.
    let path_len = target.path_and_query().map_or(0, |path| path.as_str().len());
    match (target.scheme_str(), target.authority()) {
        (None, None) if path_len == text.len() => Ok(target),
        // Clients that take the server for a proxy may send the absolute form (section 3.2.2).
        (Some(scheme), Some(authority)) => {
            if !scheme.eq_ignore_ascii_case("https") && !scheme.eq_ignore_ascii_case("http") {
                return Err(RequestFault::Scheme);
            }
            if !is_host(authority.as_str().as_bytes()) {
                return Err(RequestFault::Host);
            }
            if text.contains('#') { Err(RequestFault::Target) } else { Ok(target) }
        }
        _ => Err(RequestFault::Target),
    }
}

/// Room for the fields that a proxy adds. A map that grows is built again, each time.
const ADDED_FIELDS: usize = 6;

/// The longest target that `Uri` can hold, in bytes.
const URI_LEN_MAX: usize = u16::MAX as usize - 1;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::head::field_room;

    fn parsed(text: &str) -> Result<request::Parts, RequestFault> {
        let mut room = field_room();
        RequestHead::parse(text.as_bytes(), &mut room)?.expect("it is complete").into_parts().map(|(head, _)| head)
    }

    fn line(line: &str) -> Result<request::Parts, RequestFault> {
        parsed(&format!("{line}\r\nHost: a\r\n\r\n"))
    }

    fn with_fields(version: &str, fields: &[&str]) -> Result<Content, RequestFault> {
        let text = format!("POST / HTTP/{version}\r\n{}\r\n\r\n", fields.join("\r\n"));
        RequestHead::parse(text.as_bytes(), &mut field_room()).map(|head| head.unwrap().content)
    }

    #[test]
    fn a_head_becomes_parts() {
        let head = parsed("PUT /a?b HTTP/1.0\r\nHost: a\r\nX-One: 1\r\nx-one:\t2 \r\n\r\nbody").unwrap();
        assert_eq!((head.method, head.uri.to_string(), head.version), (Method::PUT, "/a?b".into(), Version::HTTP_10));
        assert_eq!(head.headers.get_all("x-one").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(head.headers.len(), 3);
    }

    #[test]
    fn request_lines() {
        for (text, fault) in [
            ("GET /", RequestFault::RequestLine),
            ("GET  / HTTP/1.1", RequestFault::RequestLine),
            (" GET / HTTP/1.1", RequestFault::RequestLine),
            ("GET /a b HTTP/1.1", RequestFault::RequestLine),
            ("GET / HTTP/1.1 ", RequestFault::LineEnd),
            ("GET / HTTP/2.0", RequestFault::Version),
            ("GET / HTTP/1.2", RequestFault::Version),
            ("GET / http/1.1", RequestFault::RequestLine),
            ("GE(T / HTTP/1.1", RequestFault::RequestLine),
        ] {
            assert_eq!(line(text).unwrap_err(), fault, "{text}");
        }
    }

    #[test]
    fn targets() {
        for (method, target, expected) in [
            ("GET", "/", Ok(())),
            ("GET", "http://a/", Ok(())),
            ("GET", "HTTP://a/", Ok(())),
            ("GET", "https://a:80?b", Ok(())),
            ("OPTIONS", "*", Ok(())),
            ("OPTIONS", "/", Ok(())),
            ("PRIOR", "/", Ok(())),
            ("GET", "*", Err(RequestFault::Target)),
            ("GET", "a:80", Err(RequestFault::Target)),
            ("OPTIONS", "a:80", Err(RequestFault::Target)),
            ("GET", "a/b", Err(RequestFault::Target)),
            ("GET", "?a", Err(RequestFault::Target)),
            ("GET", "/a#b", Err(RequestFault::Target)),
            ("GET", "http://a/#b", Err(RequestFault::Target)),
            ("GET", "/a\"b<", Err(RequestFault::Target)),
            ("GET", "http:///a", Err(RequestFault::Target)),
            ("GET", "ftp://a/", Err(RequestFault::Scheme)),
            ("GET", "http://u@a/", Err(RequestFault::Host)),
            ("GET", "http://:80/", Err(RequestFault::Host)),
            ("CONNECT", "a:80", Err(RequestFault::Method)),
            ("TRACE", "/", Err(RequestFault::Method)),
            ("PRI", "/", Err(RequestFault::Method)),
            ("PRI", "*", Err(RequestFault::Method)),
        ] {
            assert_eq!(line(&format!("{method} {target} HTTP/1.1")).map(drop), expected, "{method} {target}");
        }
        let long = format!("GET /{} HTTP/1.1", "a".repeat(URI_LEN_MAX));
        assert_eq!(line(&long).map(drop), Err(RequestFault::TargetLen));
    }

    #[test]
    fn hosts() {
        for (version, hosts, is_regular) in [
            ("1.1", &["Host: a"][..], true),
            ("1.1", &["Host: [::1]:8443"], true),
            ("1.1", &[], false),
            ("1.1", &["Host:"], false),
            ("1.1", &["Host: a", "Host: a"], false),
            ("1.1", &["Host: a/b"], false),
            ("1.0", &[], true),
            ("1.0", &["Host: a", "Host: b"], false),
        ] {
            let fields = [hosts, &["A: b"]].concat();
            let expected = if is_regular { Ok(Content::None) } else { Err(RequestFault::Host) };
            assert_eq!(with_fields(version, &fields), expected, "{version} {hosts:?}");
        }
    }

    #[test]
    fn contents() {
        const CHUNKED: &str = "Transfer-Encoding: chunked";
        for (fields, expected) in [
            (&["Content-Length: 5"][..], Ok(Content::Length(5))),
            (&["Content-Length: 5", "Content-Length: 5"], Ok(Content::Length(5))),
            (&[CHUNKED], Ok(Content::Chunked)),
            (&[CHUNKED, "Content-Length: 5"], Ok(Content::Chunked)),
            (&["Content-Length: 5", "Content-Length: 6"], Err(RequestFault::Length)),
            (&["Content-Length: 5, 5"], Err(RequestFault::Length)),
            (&["Content-Length:"], Err(RequestFault::Length)),
            (&[CHUNKED, "Content-Length: x"], Err(RequestFault::Length)),
            (&[CHUNKED, CHUNKED], Err(RequestFault::Chunked)),
            (&["Transfer-Encoding: gzip, chunked"], Err(RequestFault::Coding)),
        ] {
            let fields = [&["Host: a"], fields].concat();
            assert_eq!(with_fields("1.1", &fields), expected, "{fields:?}");
        }
        assert_eq!(with_fields("1.0", &[CHUNKED, "Content-Length: 5"]), Err(RequestFault::CodingVersion));
    }

    #[test]
    fn one_length_is_left() {
        let head = parsed("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n").unwrap();
        assert_eq!(head.headers.get_all("content-length").iter().count(), 1);
        let head = parsed("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert!(!head.unwrap().headers.contains_key("content-length"));
    }

    #[test]
    fn connections_persist_as_their_version_says() {
        for (version, fields, persists) in [
            ("1.1", &["Host: a"][..], true),
            ("1.1", &["Host: a", "Connection: Close"], false),
            ("1.1", &["Host: a", "Connection: keep-alive", "Connection: close"], false),
            ("1.1", &["Host: a", "Content-Length: 3", "Transfer-Encoding: chunked"], false),
            ("1.0", &["A: b"], false),
            ("1.0", &["Connection: keep-alive"], true),
            ("1.0", &["Connection: keep-alive, close"], false),
        ] {
            let text = format!("POST / HTTP/{version}\r\n{}\r\n\r\n", fields.join("\r\n"));
            let mut room = field_room();
            let head = RequestHead::parse(text.as_bytes(), &mut room).unwrap().unwrap();
            assert_eq!(head.persists(), persists, "{text}");
        }
    }
}
