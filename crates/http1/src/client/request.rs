//! Writes the heads of requests.

use http::header::{CONNECTION, HOST, HeaderMap, TRAILER, UPGRADE};
use http::{Method, request};

use super::Exchange;
use crate::content::{Content, ContentSize};
use crate::fault::Misuse;
use crate::head::facts::elements;
use crate::write;

/// Writes a head. If the result is an error, `out` is as before.
pub(super) fn write(
    head: &request::Parts,
    size: ContentSize,
    out: &mut Vec<u8>,
) -> Result<(Content, Exchange), Misuse> {
    let start = out.len();
    let written = try_write(head, size, out);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn try_write(head: &request::Parts, size: ContentSize, out: &mut Vec<u8>) -> Result<(Content, Exchange), Misuse> {
    // Its target has a form of its own, and its response no content.
    if head.method == Method::CONNECT {
        return Err(Misuse::Method);
    }
    write::reserve(&head.headers, out);
    write::request_line(&head.method, head.uri.path_and_query().map_or("/", |target| target.as_str()), out);
    write_host(head, out)?;
    let given = write::fields(&head.headers, out);
    let (content, length) = framing(&head.method, size, given.length()?)?;
    if let Some(length) = length {
        write::length(length, out);
    }
    if content == Content::Chunked {
        write::line("transfer-encoding", b"chunked", out);
        write::all(&head.headers, &TRAILER, out);
    }
    write::all(&head.headers, &CONNECTION, out);
    out.extend_from_slice(b"\r\n");
    let exchange = Exchange {
        is_head: head.method == Method::HEAD,
        asks_upgrade: head.headers.contains_key(UPGRADE) && lists_upgrade(&head.headers),
        closes: given.closes,
        ..Exchange::default()
    };
    Ok((content, exchange))
}

/// The request has exactly one `Host` (RFC 9112, section 3.2).
fn write_host(head: &request::Parts, out: &mut Vec<u8>) -> Result<(), Misuse> {
    let mut hosts = head.headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next(), head.uri.authority()) {
        (Some(_), None, _) => Ok(()),
        (None, None, Some(authority)) if !authority.as_str().contains('@') => {
            write::line("host", authority.as_str().as_bytes(), out);
            Ok(())
        }
        _ => Err(Misuse::Host),
    }
}

/// The framing of the content, and the `Content-Length` to write (RFC 9110, section 8.6; RFC 9112, section 6.3).
fn framing(method: &Method, size: ContentSize, given: Option<u64>) -> Result<(Content, Option<u64>), Misuse> {
    let length = size.settle(given)?;
    Ok(match (size, length) {
        // A server expects content with these methods.
        (ContentSize::None, _) if matches!(*method, Method::POST | Method::PUT | Method::PATCH) => {
            (Content::None, Some(0))
        }
        (ContentSize::None, _) => (Content::None, given),
        (_, Some(length)) => (Content::Length(length), Some(length)),
        (_, None) => (Content::Chunked, None),
    })
}

fn lists_upgrade(fields: &HeaderMap) -> bool {
    let mut options = fields.get_all(CONNECTION).iter().flat_map(|value| elements(value.as_bytes()));
    options.any(|option| option.eq_ignore_ascii_case(b"upgrade"))
}
