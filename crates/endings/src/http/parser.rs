//! Parses the messages of one direction.

use watari_packets::Segment;

use crate::http::method::{Method, begins_request};
use crate::sequence::{FAR, is_before, is_upto};

/// The octets of a line that are kept: more than the relevant fields need.
const LINE_LEN_MAX: usize = 64;

/// First octets of the lines that [`Parser::take_line`] has to see among fields: an empty line, `Content-Length` or
/// `Transfer-Encoding`. A field must not begin with whitespace, but lines that do are parsed too, without it.
const FIELD_INITIALS: &[u8] = b"\r \t\x0cCcTt";

/// The parser of one direction.
#[derive(Debug)]
pub(crate) struct Parser {
    /// Sequence number of the next octet to parse.
    at: u32,
    state: ParserState,
    is_client: bool,
    line: [u8; LINE_LEN_MAX],
    line_len: u16,
    content_length: Option<u64>,
    is_chunked: bool,
    /// The answer has no content, regardless of its head.
    is_bodiless: bool,
    content: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParserState {
    /// Between messages, or in the first line of one.
    Start,
    Fields,
    /// Octets left of the content.
    Content(u64),
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailers,
    UntilClose,
    Blind,
}

/// A parsed part of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    Request(Method),
    Status(u16),
    /// The message ends before the position.
    End,
}

/// The unparsed part of a segment.
pub(crate) struct Rest<'a> {
    data: &'a [u8],
    len: u32,
}

impl Parser {
    pub(crate) const fn new(at: u32, is_client: bool) -> Self {
        Self {
            at,
            state: ParserState::Start,
            is_client,
            line: [0; LINE_LEN_MAX],
            line_len: 0,
            content_length: None,
            is_chunked: false,
            is_bodiless: false,
            content: 0,
        }
    }

    /// Skips octets that were seen before. Within content, gaps are allowed.
    pub(crate) fn enter<'a>(&mut self, from: u32, segment: &'a Segment<'_>) -> Rest<'a> {
        let mut rest =
            Rest { data: segment.data.get(..segment.len as usize).unwrap_or(segment.data), len: segment.len };
        let end = from.wrapping_add(rest.len);
        if self.state == ParserState::Blind && is_before(self.at, end) && self.begins(rest.data) {
            (self.state, self.at) = (ParserState::Start, from);
            self.line_len = 0;
        }
        if is_upto(end, self.at) {
            return Rest { data: &[], len: 0 };
        }
        if is_before(self.at, from) {
            self.pass_gap(from.wrapping_sub(self.at).into());
            self.at = from;
            if self.state == ParserState::Blind && self.begins(rest.data) {
                self.state = ParserState::Start;
            }
        }
        rest.skip(self.at.wrapping_sub(from));
        rest
    }

    /// The next part in a segment, and the position behind it.
    pub(crate) fn next(&mut self, rest: &mut Rest<'_>) -> Option<(Piece, u32)> {
        while rest.len > 0 {
            let piece = match self.state {
                ParserState::Content(left) => self.pass_content(left, rest, ParserState::Content),
                ParserState::Chunk(left) => self.pass_content(left, rest, ParserState::Chunk),
                ParserState::UntilClose | ParserState::Blind => {
                    self.content += u64::from(if self.state == ParserState::Blind { 0 } else { rest.len });
                    self.skip(rest.len, rest);
                    None
                }
                _ if rest.data.is_empty() => {
                    self.go_blind();
                    None
                }
                _ => self.read_line(rest),
            };
            if let Some((piece, position)) = piece {
                return Some((piece, position));
            }
        }
        None
    }

    /// The octets up to this one are lost. Returns whether any were missing.
    pub(crate) fn give_up(&mut self, upto: u32) -> bool {
        let is_lost = is_before(self.at, upto);
        if is_lost {
            self.at = upto;
            self.go_blind();
        }
        is_lost
    }

    /// The receiver has acknowledged the octets up to this one. Returns the end of the message if it is before that, in
    /// content that was not seen.
    pub(crate) fn acknowledge(&mut self, upto: u32) -> Option<u32> {
        let ParserState::Content(left) = self.state else { return None };
        let end = self.at.wrapping_add(u32::try_from(left).ok().filter(|left| *left < FAR)?);
        if !is_upto(end, upto) {
            return None;
        }
        (self.at, self.state) = (end, ParserState::Start);
        self.content += left;
        Some(end)
    }

    /// Whether an answer with this status has content (RFC 9112, section 6.3).
    pub(crate) fn expect(&mut self, status: u16, is_head: bool) {
        self.is_bodiless = is_head || status < 200 || status == 204 || status == 304;
    }

    /// Octets of content of the last message.
    pub(crate) const fn content(&self) -> u64 {
        self.content
    }

    pub(crate) fn is_blind(&self) -> bool {
        self.state == ParserState::Blind
    }

    pub(crate) fn is_in_message(&self) -> bool {
        self.state != ParserState::Start || self.line_len > 0
    }

    pub(crate) fn ends_with_stream(&self) -> bool {
        self.state == ParserState::UntilClose
    }

    fn begins(&self, data: &[u8]) -> bool {
        if self.is_client { begins_request(data) } else { data.starts_with(b"HTTP/1.") }
    }

    fn go_blind(&mut self) {
        self.state = ParserState::Blind;
        self.line_len = 0;
    }

    fn pass_gap(&mut self, gap: u64) {
        self.state = match self.state {
            ParserState::Content(left) if gap < left => ParserState::Content(left - gap),
            ParserState::Chunk(left) if gap < left => ParserState::Chunk(left - gap),
            ParserState::UntilClose => ParserState::UntilClose,
            _ => ParserState::Blind,
        };
        if self.state == ParserState::Blind {
            self.line_len = 0;
        } else {
            self.content += gap;
        }
    }

    fn skip(&mut self, octets: u32, rest: &mut Rest<'_>) {
        rest.skip(octets);
        self.at = self.at.wrapping_add(octets);
    }

    fn pass_content(&mut self, left: u64, rest: &mut Rest<'_>, state: fn(u64) -> ParserState) -> Option<(Piece, u32)> {
        let passed = u32::try_from(left).map_or(rest.len, |left| left.min(rest.len));
        self.content += u64::from(passed);
        self.skip(passed, rest);
        self.state = state(left - u64::from(passed));
        match self.state {
            ParserState::Content(0) => Some(self.end()),
            ParserState::Chunk(0) => {
                self.state = ParserState::ChunkEnd;
                None
            }
            _ => None,
        }
    }

    fn end(&mut self) -> (Piece, u32) {
        self.state = ParserState::Start;
        (Piece::End, self.at)
    }

    /// Reads to the end of a line, or of the data.
    fn read_line(&mut self, rest: &mut Rest<'_>) -> Option<(Piece, u32)> {
        let end = memchr::memchr(b'\n', rest.data);
        let data = rest.data;
        let part = &data[..end.unwrap_or(data.len())];
        if self.line_len == 0 && end.is_some() {
            // A complete line is not copied. A field that has no part in the framing of the message is not parsed
            // either.
            self.skip(part.len() as u32 + 1, rest);
            let line = &part[..part.len().min(LINE_LEN_MAX)];
            let is_idle =
                self.state == ParserState::Fields && line.first().is_some_and(|first| !FIELD_INITIALS.contains(first));
            return if is_idle { None } else { self.take_line(line.trim_ascii()) };
        }
        let have = usize::from(self.line_len).min(LINE_LEN_MAX);
        let kept = part.len().min(LINE_LEN_MAX - have);
        self.line[have..have + kept].copy_from_slice(&part[..kept]);
        self.line_len = self.line_len.saturating_add(part.len().min(usize::from(u16::MAX)) as u16);
        let passed = part.len() + usize::from(end.is_some());
        self.skip(passed as u32, rest);
        end?;
        let line = self.line;
        let len = usize::from(self.line_len).min(LINE_LEN_MAX);
        self.line_len = 0;
        self.take_line(line[..len].trim_ascii())
    }

    fn take_line(&mut self, line: &[u8]) -> Option<(Piece, u32)> {
        match self.state {
            // A parser ignores empty lines in front of a message (RFC 9112, section 2.2).
            ParserState::Start if line.is_empty() => None,
            ParserState::Start => self.take_start(line),
            ParserState::Fields if line.is_empty() => self.take_head(),
            ParserState::Fields => {
                self.take_field(line);
                None
            }
            ParserState::ChunkSize => {
                self.take_chunk_size(line);
                None
            }
            ParserState::ChunkEnd => {
                self.state = if line.is_empty() { ParserState::ChunkSize } else { ParserState::Blind };
                None
            }
            ParserState::Trailers if line.is_empty() => Some(self.end()),
            _ => None,
        }
    }

    fn take_start(&mut self, line: &[u8]) -> Option<(Piece, u32)> {
        (self.content_length, self.is_chunked, self.is_bodiless, self.content) = (None, false, false, 0);
        self.state = ParserState::Fields;
        let mut words = line.split(|byte| *byte == b' ');
        let (first, second) = (words.next()?, words.next());
        if self.is_client && begins_request(line) {
            return Some((Piece::Request(Method::new(first)), self.at));
        }
        let status = second.and_then(|status| str::from_utf8(status).ok()?.parse().ok());
        match status {
            Some(status @ 100..=999) if !self.is_client && first.starts_with(b"HTTP/1.") => {
                Some((Piece::Status(status), self.at))
            }
            _ => {
                self.go_blind();
                None
            }
        }
    }

    fn take_field(&mut self, line: &[u8]) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = str::from_utf8(value).ok().and_then(|value| value.parse().ok());
            if length.is_none() || self.content_length.is_some_and(|other| Some(other) != length) {
                self.go_blind();
            }
            self.content_length = length;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.is_chunked = value.to_ascii_lowercase().ends_with(b"chunked");
        }
    }

    /// The head is complete: determines where the message ends (RFC 9112, section 6.3).
    fn take_head(&mut self) -> Option<(Piece, u32)> {
        self.state = match self.content_length {
            _ if self.is_bodiless => return Some(self.end()),
            _ if self.is_chunked => ParserState::ChunkSize,
            Some(0) => return Some(self.end()),
            Some(length) => ParserState::Content(length),
            None if self.is_client => return Some(self.end()),
            None => ParserState::UntilClose,
        };
        None
    }

    fn take_chunk_size(&mut self, line: &[u8]) {
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let size = str::from_utf8(digits).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
        self.state = match size {
            None => ParserState::Blind,
            Some(0) => ParserState::Trailers,
            Some(size) => ParserState::Chunk(size),
        };
    }
}

impl Rest<'_> {
    fn skip(&mut self, octets: u32) {
        self.len = self.len.saturating_sub(octets);
        self.data = self.data.get(octets as usize..).unwrap_or_default();
    }
}
