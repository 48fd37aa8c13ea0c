//! Trailer sections (RFC 9112, section 7.1.2).

use http::header::{HeaderMap, HeaderName, HeaderValue};
use httparse::{EMPTY_HEADER, Status};
use memchr::memchr_iter;

use crate::fault::ContentFault;
use crate::head::HeadEnd;
use crate::limits::Limits;

/// The length of a trailer section in bytes, and the fields that are not dropped.
type Section = (usize, Option<Box<HeaderMap>>);

/// Parses the trailer section at the start of `input`. `None`: it is incomplete.
pub(super) fn parse(input: &[u8], end: &mut HeadEnd, limits: &Limits) -> Result<Option<Section>, ContentFault> {
    match input {
        [b'\r', b'\n', ..] => return Ok(Some((2, None))),
        [] | [b'\r'] => return Ok(None),
        [b'\r' | b'\n', ..] => return Err(ContentFault::TrailerField),
        _ => {}
    }
    let section = &input[..input.len().min(limits.head_bytes_max)];
    if !end.is_complete(section) {
        let is_too_long = section.len() == limits.head_bytes_max;
        return if is_too_long { Err(ContentFault::TrailerLen) } else { Ok(None) };
    }
    fields(section, limits).map(Some)
}

fn fields(section: &[u8], limits: &Limits) -> Result<Section, ContentFault> {
    // Trailers are rare, so their room may be allocated.
    let mut room = vec![EMPTY_HEADER; limits.fields_max];
    let parsed = httparse::parse_headers(section, &mut room).map_err(|error| match error {
        httparse::Error::TooManyHeaders => ContentFault::TrailerLen,
        _ => ContentFault::TrailerField,
    })?;
    let Status::Complete((len, fields)) = parsed else { return Err(ContentFault::TrailerField) };
    // Lines of the coding end with CR LF.
    if memchr_iter(b'\n', &section[..len]).any(|lf| lf == 0 || section[lf - 1] != b'\r') {
        return Err(ContentFault::TrailerField);
    }
    let mut map = HeaderMap::new();
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| ContentFault::TrailerField)?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| ContentFault::TrailerField)?;
        if may_be_trailer(&name) {
            map.try_append(name, value).map_err(|_| ContentFault::TrailerLen)?;
        }
    }
    Ok((len, (!map.is_empty()).then(|| Box::new(map))))
}

/// Whether a field may be in a trailer section. Fields for framing, routing, authentication, and the processing and
/// caching of content may not (RFC 9110, section 6.5.1), nor fields of the connection (section 7.6.1).
pub(crate) fn may_be_trailer(name: &HeaderName) -> bool {
    !matches!(
        name.as_str(),
        "authorization"
            | "cache-control"
            | "connection"
            | "content-encoding"
            | "content-length"
            | "content-range"
            | "content-type"
            | "content_length"
            | "host"
            | "keep-alive"
            | "max-forwards"
            | "proxy-connection"
            | "set-cookie"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "transfer_encoding"
            | "upgrade"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parsed(input: &str) -> Result<Option<(usize, usize)>, ContentFault> {
        let limits = Limits { head_bytes_max: 30, fields_max: 2, ..Limits::default() };
        let parsed = parse(input.as_bytes(), &mut HeadEnd::default(), &limits)?;
        Ok(parsed.map(|(len, fields)| (len, fields.map_or(0, |fields| fields.len()))))
    }

    #[test]
    fn sections() {
        for (input, expected) in [
            ("", Ok(None)),
            ("\r", Ok(None)),
            ("\r\n", Ok(Some((2, 0)))),
            ("\r\nGET", Ok(Some((2, 0)))),
            ("a: b\r\n", Ok(None)),
            ("a: b\r\n\r", Ok(None)),
            ("a: b\r\n\r\nGET", Ok(Some((8, 1)))),
            ("a: b\r\na: c\r\n\r\n", Ok(Some((14, 2)))),
            ("Host: b\r\nTE: c\r\n\r\n", Ok(Some((18, 0)))),
            ("\n", Err(ContentFault::TrailerField)),
            ("\rx", Err(ContentFault::TrailerField)),
            ("a: b\n\r\n", Err(ContentFault::TrailerField)),
            ("a: b\r\n\n", Err(ContentFault::TrailerField)),
            ("a\r\n\r\n", Err(ContentFault::TrailerField)),
            ("a: b\r\n c\r\n\r\n", Err(ContentFault::TrailerField)),
            ("a: b\r\na: c\r\na: d\r\n\r\n", Err(ContentFault::TrailerLen)),
            ("a: 0123456789012345678901234\r\n\r\n", Err(ContentFault::TrailerLen)),
        ] {
            assert_eq!(parsed(input), expected, "{input:?}");
        }
    }
}
