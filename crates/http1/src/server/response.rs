//! Writes the heads of responses, and decides what frames their content (RFC 9112, section 6).

use http::header::{CONNECTION, HeaderMap, HeaderValue, TRAILER};
use http::{StatusCode, response};

use super::Exchange;
use crate::content::{Content, ContentSize};
use crate::fault::Misuse;
use crate::write::{self, Given};

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
    write::fields(fields, out);
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
    write::reserve(&head.headers, out);
    write::status_line(exchange.is_http10, head.status, out);
    let given = write::fields(&head.headers, out);
    let (content, length) = framing(*exchange, head.status, size, given.length()?)?;
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
    given: Option<u64>,
) -> Result<(Content, Option<u64>), Misuse> {
    // These have neither content nor a length. A 304 may have the length of the 200, but need not.
    if status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return Ok((Content::None, None));
    }
    if exchange.is_head {
        return Ok((Content::None, given.or(size.known().filter(|length| *length > 0))));
    }
    Ok(match size.settle(given)? {
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
        if exchange.takes_trailers {
            write::all(&head.headers, &TRAILER, out);
        }
    }
}

/// RFC 9112, section 9.6, and for HTTP/1.0, appendix C.2.2.
fn write_connection(exchange: Exchange, head: &response::Parts, given: &Given, out: &mut Vec<u8>) {
    if given.has_options {
        write::all(&head.headers, &CONNECTION, out);
    }
    let is_written = given.has_options && given.closes;
    if exchange.closes && !is_written && !exchange.is_tunnel {
        write::line("connection", b"close", out);
    } else if exchange.is_http10 && !exchange.closes {
        write::line("connection", b"keep-alive", out);
    }
}
