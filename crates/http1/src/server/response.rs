//! Writes the heads of responses, and decides what frames their content (RFC 9112, section 6).

use http::header::{CONNECTION, HeaderMap, HeaderValue, TRAILER};
use http::{StatusCode, response};

use super::Exchange;
use crate::content::{Content, ContentSize};
use crate::fault::Misuse;
use crate::head::facts::{elements, number};
use crate::write;

/// Writes a head. If the result is an error, `out` is as before.
pub(super) fn write(
    exchange: &mut Exchange,
    head: &response::Parts,
    size: ContentSize,
    date: &HeaderValue,
    out: &mut Vec<u8>,
) -> Result<Content, Misuse> {
    let start = out.len();
    let written = try_write(exchange, head, size, date, out);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

/// An informational response has no content, and no fields about it.
pub(super) fn write_informational(status: StatusCode, fields: &HeaderMap, out: &mut Vec<u8>) {
    write::status_line(false, status, out);
    write_fields(fields, out);
    out.extend_from_slice(b"\r\n");
}

fn try_write(
    exchange: &mut Exchange,
    head: &response::Parts,
    size: ContentSize,
    date: &HeaderValue,
    out: &mut Vec<u8>,
) -> Result<Content, Misuse> {
    let is_switch = head.status == StatusCode::SWITCHING_PROTOCOLS;
    check_status(*exchange, head.status)?;
    out.reserve(HEAD_BYTES + head.headers.len() * FIELD_BYTES);
    write::status_line(exchange.is_http10, head.status, out);
    let given = write_fields(&head.headers, out);
    let (content, length) = framing(*exchange, head.status, size, given.length)?;
    exchange.is_tunnel = is_switch;
    exchange.closes |= given.closes || content == Content::UntilClose;
    write_framing(*exchange, head, content, length, out);
    write_connection(*exchange, head, &given, out);
    if !given.has_date && !is_switch {
        write::line("date", date.as_bytes(), out);
    }
    out.extend_from_slice(b"\r\n");
    Ok(content)
}

/// Fields of a head that are not written as they are.
#[derive(Debug, Default)]
struct Given {
    length: GivenLength,
    has_date: bool,
    /// `Connection: close`.
    closes: bool,
    /// `Connection` has other options than `close` and `keep-alive`, such as `upgrade`.
    has_options: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum GivenLength {
    #[default]
    Absent,
    Known(u64),
    Invalid,
}

/// Writes the fields that depend on nothing else.
fn write_fields(fields: &HeaderMap, out: &mut Vec<u8>) -> Given {
    let mut given = Given::default();
    for (name, value) in fields {
        match name.as_str() {
            "connection" => given.add_connection(value),
            "content-length" => given.add_length(value),
            // This connection's framing, which this module decides.
            "transfer-encoding" | "trailer" | "keep-alive" => {}
            text => {
                given.has_date |= text == "date";
                write::field(name, value, out);
            }
        }
    }
    given
}

impl Given {
    fn add_connection(&mut self, value: &HeaderValue) {
        for option in elements(value.as_bytes()) {
            let (is_close, is_keep_alive) =
                (option.eq_ignore_ascii_case(b"close"), option.eq_ignore_ascii_case(b"keep-alive"));
            self.closes |= is_close;
            self.has_options |= !is_close && !is_keep_alive;
        }
    }

    fn add_length(&mut self, value: &HeaderValue) {
        self.length = match (self.length, number(value.as_bytes())) {
            (GivenLength::Absent, Some(length)) => GivenLength::Known(length),
            (GivenLength::Known(before), Some(length)) if before == length => GivenLength::Known(length),
            _ => GivenLength::Invalid,
        };
    }
}

fn check_status(exchange: Exchange, status: StatusCode) -> Result<(), Misuse> {
    match status {
        StatusCode::SWITCHING_PROTOCOLS if exchange.asks_upgrade => Ok(()),
        StatusCode::SWITCHING_PROTOCOLS => Err(Misuse::Upgrade),
        _ if status.is_informational() => Err(Misuse::Status),
        _ => Ok(()),
    }
}

/// The framing of the content, and the `Content-Length` to write (RFC 9110, section 8.6; RFC 9112, section 6.3).
fn framing(
    exchange: Exchange,
    status: StatusCode,
    size: ContentSize,
    given: GivenLength,
) -> Result<(Content, Option<u64>), Misuse> {
    let given = match given {
        GivenLength::Absent => None,
        GivenLength::Known(length) => Some(length),
        GivenLength::Invalid => return Err(Misuse::InvalidLength),
    };
    // These have neither content nor a length. A 304 may have the length of the 200, but need not.
    if status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return Ok((Content::None, None));
    }
    let known = match size {
        ContentSize::None => Some(0),
        ContentSize::Known(length) => Some(length),
        ContentSize::Unknown => None,
    };
    if exchange.is_head {
        return Ok((Content::None, given.or(known.filter(|length| *length > 0))));
    }
    if given.is_some_and(|given| known.is_some_and(|known| given != known)) {
        return Err(Misuse::LengthDiffers);
    }
    Ok(match given.or(known) {
        Some(length) => (Content::Length(length), Some(length)),
        None if exchange.is_http10 => (Content::UntilClose, None),
        None => (Content::Chunked, None),
    })
}

fn write_framing(exchange: Exchange, head: &response::Parts, content: Content, length: Option<u64>, out: &mut Vec<u8>) {
    if let Some(length) = length {
        write::length(length, out);
    }
    if content == Content::Chunked {
        write::line("transfer-encoding", b"chunked", out);
        for value in head.headers.get_all(TRAILER).iter().filter(|_| exchange.takes_trailers) {
            write::field(&TRAILER, value, out);
        }
    }
}

/// RFC 9112, section 9.6, and for HTTP/1.0, appendix C.2.2.
fn write_connection(exchange: Exchange, head: &response::Parts, given: &Given, out: &mut Vec<u8>) {
    for value in head.headers.get_all(CONNECTION).iter().filter(|_| given.has_options) {
        write::field(&CONNECTION, value, out);
    }
    let is_written = given.has_options && given.closes;
    if exchange.closes && !is_written && !exchange.is_tunnel {
        write::line("connection", b"close", out);
    } else if exchange.is_http10 && !exchange.closes {
        write::line("connection", b"keep-alive", out);
    }
}

/// What a head takes apart from its fields, and what a field takes, in bytes: enough for most.
const HEAD_BYTES: usize = 192;
const FIELD_BYTES: usize = 64;
