//! Reads the same bytes with this crate and with hyper, in memory, and compares what comes out. A difference that is
//! not in the table of the crate's documentation is a failure.
#![allow(dead_code, unreachable_pub, reason = "each program uses a part")]
#![allow(clippy::unwrap_used)]

mod ours;
mod theirs;

use http::HeaderMap;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::uri::Authority;
use watari_http1::{Content, ContentFault, ContentSize, RequestFault, ResponseFault};

/// What a side reads from a connection until it ends.
#[derive(Debug)]
pub struct Outcome<F> {
    /// Messages with complete content.
    pub messages: Vec<Message>,
    /// Whether the connection ended between messages, or as they say.
    pub end: Result<(), F>,
}

#[derive(Debug, PartialEq)]
pub struct Message {
    /// Method and target, or the status.
    pub start: String,
    pub version: http::Version,
    /// Sorted by name.
    pub fields: Vec<(String, Vec<u8>)>,
    pub content: Vec<u8>,
    pub trailers: Vec<(String, Vec<u8>)>,
}

/// Why this crate stopped reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Request(RequestFault),
    Response(ResponseFault),
    Content(ContentFault),
    Truncated,
}

/// Compares servers that read `input`, in pieces of a size.
pub fn requests(input: &[u8], piece: usize) {
    let ours = ours::requests(input);
    let theirs = theirs::requests(input, piece);
    compare(input, false, &ours, &theirs);
}

/// Compares clients that read `input` after a request.
pub fn responses(is_head: bool, input: &[u8], piece: usize) {
    let ours = ours::response(is_head, input);
    let theirs = theirs::response(is_head, input, piece);
    compare(input, is_head, &ours, &theirs);
}

/// A message to write.
#[derive(Debug)]
pub struct Written {
    pub fields: Vec<(String, String)>,
    pub pieces: Vec<Vec<u8>>,
    pub trailers: Vec<(String, String)>,
    /// Whether the length of the content is given.
    pub has_length: bool,
}

/// Writes a request with this crate, and reads it with hyper.
pub fn written_request(method: &str, written: &Written) {
    let (bytes, content) = ours::write_request(method, written);
    let theirs = theirs::requests(&bytes, usize::MAX);
    written.assert_read(&format!("{method} /b?c"), content, &theirs);
}

/// Writes a response with this crate, and reads it with hyper.
pub fn written_response(status: u16, is_head: bool, written: &Written) {
    let (bytes, content) = ours::write_response(status, is_head, written);
    let theirs = theirs::response(is_head, &bytes, usize::MAX);
    written.assert_read(&status.to_string(), content, &theirs);
}

impl Written {
    fn fields(&self) -> HeaderMap {
        self.fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn trailers(&self) -> HeaderMap {
        self.trailers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn size(&self) -> ContentSize {
        let len = self.pieces.concat().len() as u64;
        if self.has_length { ContentSize::Known(len) } else { ContentSize::Unknown }
    }

    fn assert_read(&self, start: &str, content: Content, theirs: &Outcome<String>) {
        let [read] = &theirs.messages[..] else { panic!("{self:?} is read as {theirs:?}") };
        let trailers = if content == Content::Chunked { sorted(&self.trailers()) } else { Vec::new() };
        let own: Vec<_> = read.fields.iter().filter(|(name, _)| name.starts_with("x-")).cloned().collect();
        let data = if content == Content::None { Vec::new() } else { self.pieces.concat() };
        assert_eq!((&*read.start, &own, &read.trailers), (start, &sorted(&self.fields()), &trailers));
        assert_eq!(read.content, data);
    }
}

fn compare(input: &[u8], is_head: bool, ours: &Outcome<Fault>, theirs: &Outcome<String>) {
    let shared = ours.messages.iter().zip(&theirs.messages).take_while(|(ours, theirs)| ours == theirs).count();
    let is_equal = shared == ours.messages.len() && shared == theirs.messages.len();
    if is_equal && ours.end.is_ok() == theirs.end.is_ok() {
        return;
    }
    // The first message that only hyper accepts is the one that this crate refuses.
    let fault = ours.end.err().filter(|_| shared == ours.messages.len());
    let refusal = fault.and_then(|fault| explanation(fault, input, is_head, theirs.messages.get(shared)));
    let last = shared.checked_sub(1).map(|last| &ours.messages[last]);
    let explanation = refusal.or_else(|| {
        if last.is_some_and(|last| !last.all(&CONNECTION).concat().is_ascii()) {
            Some("ignores a `Connection` field with bytes outside ASCII")
        } else if is_equal && theirs.end.is_ok() && contains(trailing_newlines(input), b"\r\r") {
            Some("ignores CR and LF in any order before the end of the stream")
        } else if is_equal && ours.end.is_ok() && input.ends_with(b"\r") {
            Some("takes a lone CR before the end of the stream for a message")
        } else if ours.messages.get(shared).is_some_and(|next| !next.all(&TRANSFER_ENCODING).is_empty())
            && theirs.end.is_err()
            && LONGEST.iter().any(|len| contains(input, len))
        {
            Some("refuses a length near 2^64 ahead of a coding")
        } else {
            None
        }
    });
    let is_documented = explanation.is_some_and(|why| DOCUMENTATION.contains(&format!("//! | {why} |")));
    assert!(
        is_documented,
        "difference for {:?}, with the explanation {explanation:?}\nours: {ours:?}\nhyper: {theirs:?}",
        input.escape_ascii().to_string()
    );
}

/// Lengths that hyper cannot represent.
const LONGEST: [&[u8]; 2] = [b"18446744073709551614", b"18446744073709551615"];

/// The CR and LF at the end.
fn trailing_newlines(input: &[u8]) -> &[u8] {
    let len = input.iter().rev().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    &input[input.len() - len..]
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Has the table of differences.
const DOCUMENTATION: &str = include_str!("../../src/lib.rs");

/// What hyper does instead of refusing a message. `message`: what it read.
fn explanation(fault: Fault, input: &[u8], is_head: bool, message: Option<&Message>) -> Option<&'static str> {
    let Some(message) = message else {
        // Without another message, hyper waited for the rest of a head until the end.
        let is_lenient = matches!(fault, Fault::Request(RequestFault::EmptyLines));
        return is_lenient.then_some("skips any number of empty lines before a request");
    };
    let (codings, lengths) = (message.all(&TRANSFER_ENCODING), message.all(&CONTENT_LENGTH));
    let is_chunked = matches!(codings[..], [coding] if coding.eq_ignore_ascii_case(b"chunked"));
    let is_bodiless = is_head || matches!(&*message.start, "101" | "204" | "304") || has_informational(input);
    let (holds, why) = match fault {
        Fault::Request(RequestFault::Host) => (!message.has_one_host(), "accepts any `Host` fields, and none"),
        Fault::Request(RequestFault::Method) => {
            let method = message.start.split(' ').next();
            (matches!(method, Some("CONNECT" | "TRACE" | "PRI")), "accepts methods that end at a proxy")
        }
        Fault::Request(RequestFault::Scheme) => (message.start.contains("://"), "accepts any scheme"),
        Fault::Request(RequestFault::Target) => {
            let target = message.start.split(' ').nth(1).unwrap_or_default();
            let is_regular = target.starts_with('/') || target.contains("://");
            (!is_regular || input.contains(&b'#'), "accepts any form of a target, and removes fragments")
        }
        Fault::Request(RequestFault::Length) => (!codings.is_empty(), "ignores a length after a coding"),
        Fault::Request(RequestFault::EmptyLines) => (true, "skips any number of empty lines before a request"),
        Fault::Request(RequestFault::Chunked | RequestFault::Coding) => {
            (!codings.is_empty() && !is_chunked, "accepts codings before `chunked`, and empty elements")
        }
        Fault::Response(ResponseFault::Coding) => {
            (is_bodiless || (!codings.is_empty() && !is_chunked), "reads other codings until the end")
        }
        Fault::Response(ResponseFault::Length | ResponseFault::Lengths) => {
            (is_bodiless || !codings.is_empty(), "checks a length or coding of a response only if it frames content")
        }
        Fault::Response(ResponseFault::LengthAndCoding) => {
            (is_bodiless || (!codings.is_empty() && !lengths.is_empty()), "prefers the coding to a length in responses")
        }
        Fault::Response(ResponseFault::CodingVersion) => {
            (is_bodiless, "checks a length or coding of a response only if it frames content")
        }
        Fault::Response(ResponseFault::Version) => {
            (has_empty_line_before_head(input), "skips empty lines before a response")
        }
        Fault::Response(ResponseFault::Upgrade) => (message.start == "101", "leaves the check of a 101 to its caller"),
        Fault::Response(ResponseFault::Informational) => (true, "reads any number of informational responses"),
        Fault::Content(ContentFault::Extension) => (is_chunked, "accepts control characters in chunk extensions"),
        Fault::Content(ContentFault::ChunkLen) => (is_chunked, "accepts any number of leading zeros in chunk sizes"),
        Fault::Content(ContentFault::TrailerField) => (is_chunked, "accepts a bare LF between trailers"),
        _ => (false, ""),
    };
    holds.then_some(why)
}

impl Message {
    pub fn new(start: String, version: http::Version, fields: &HeaderMap) -> Self {
        Self { start, version, fields: sorted(fields), content: Vec::new(), trailers: Vec::new() }
    }

    /// Adds trailers. hyper passes all of them on.
    pub fn set_trailers(&mut self, trailers: &HeaderMap) {
        self.trailers = sorted(trailers);
        self.trailers.retain(|(name, _)| !NOT_IN_TRAILERS.contains(&&**name));
    }

    fn all(&self, name: &http::HeaderName) -> Vec<&[u8]> {
        self.fields.iter().filter(|(field, _)| *name == **field).map(|(_, value)| &**value).collect()
    }

    fn has_one_host(&self) -> bool {
        let is_plain = |host: &[u8]| {
            let authority = Authority::try_from(host).ok().filter(|host| !host.as_str().contains(['@', '%']));
            let port = |host: &Authority| host.as_str().rsplit_once(':').is_some_and(|(_, port)| is_port(port));
            authority.is_some_and(|host| !host.host().is_empty() && (port(&host) || !host.as_str().contains(':')))
        };
        let target = self.start.split("://").nth(1).map(|rest| rest.split(['/', '?']).next().unwrap_or_default());
        let is_target_plain = target.is_none_or(|host| is_plain(host.as_bytes()));
        matches!(self.all(&HOST)[..], [host] if is_plain(host)) && is_target_plain
    }
}

/// Whether there is an informational response, whose framing hyper does not check.
fn has_informational(input: &[u8]) -> bool {
    [b"HTTP/1.1 1", b"HTTP/1.0 1"].into_iter().any(|start| input.windows(start.len()).any(|bytes| bytes == start))
}

/// Whether an empty line is at the start, or after the one that ends a head.
fn has_empty_line_before_head(input: &[u8]) -> bool {
    let lines: Vec<u8> = input.iter().copied().filter(|byte| *byte != b'\r').collect();
    lines.starts_with(b"\n") || lines.windows(3).any(|lines| lines == b"\n\n\n")
}

fn is_port(port: &str) -> bool {
    port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Fields in the order of their names. Equal lengths become one number, as this crate merges them.
fn sorted(fields: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let mut sorted: Vec<_> =
        fields.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect();
    sorted.sort_by(|one, other| one.0.cmp(&other.0));
    for (_, value) in sorted.iter_mut().filter(|(name, _)| name == CONTENT_LENGTH.as_str()) {
        let first = value.split(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
        let digits = first.iter().skip_while(|digit| **digit == b'0').copied().collect::<Vec<_>>();
        *value = if digits.is_empty() && !first.is_empty() { b"0".to_vec() } else { digits };
    }
    sorted.dedup_by(|one, other| one == other && one.0 == CONTENT_LENGTH.as_str());
    sorted
}

/// RFC 9110, section 6.5.1, and fields of the connection.
const NOT_IN_TRAILERS: [&str; 18] = [
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "content_length",
    "host",
    "keep-alive",
    "max-forwards",
    "proxy-connection",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "transfer_encoding",
    "upgrade",
];
