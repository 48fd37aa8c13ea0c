//! Fields that describe the bytes of a message (RFC 9110, sections 8.4, 8.6 and 14).

use std::ops::Range;

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use http::{HeaderMap, HeaderName};
use watari_conditional::parse_content_range;

/// A field occurs more often than allowed, or does not follow its grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The range of a part, and the total length (RFC 9110, section 14.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContentRange {
    /// Never empty, and within the total.
    pub(crate) range: Range<u64>,
    /// `None`: the origin sent `*`.
    pub(crate) total: Option<u64>,
}

/// The text of a field that may occur once.
pub(crate) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Malformed> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(|text| Some(text.trim_ascii())).map_err(|_| Malformed),
        (Some(_), Some(_)) => Err(Malformed),
    }
}

/// Whether there is exactly one field of this name.
pub(crate) fn is_single(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.get_all(name).iter().count() == 1
}

/// `Content-Length`. Two fields are an error, even if they are equal.
pub(crate) fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Malformed> {
    only(headers, &CONTENT_LENGTH)?.map(number).transpose()
}

/// `Content-Range` of a satisfied range: `bytes first-last/total` or `bytes first-last/*`.
pub(crate) fn content_range(headers: &HeaderMap) -> Result<Option<ContentRange>, Malformed> {
    let Some(value) = only(headers, &CONTENT_RANGE)? else { return Ok(None) };
    let (range, total) = parse_content_range(value.as_bytes()).ok_or(Malformed)?;
    Ok(Some(ContentRange { range, total }))
}

/// Whether the content is coded. `identity` does not count; a sender should not send it.
pub(crate) fn is_coded(headers: &HeaderMap) -> bool {
    elements(headers, &CONTENT_ENCODING).any(|element| !element.eq_ignore_ascii_case("identity"))
}

/// Whether the body has several parts (RFC 9110, section 14.6).
pub(crate) fn is_multipart(headers: &HeaderMap) -> bool {
    let is = |value: &str| {
        let (media_type, _) = value.split_once(';').unwrap_or((value, ""));
        media_type.trim_ascii().eq_ignore_ascii_case("multipart/byteranges")
    };
    headers.get_all(CONTENT_TYPE).iter().any(|value| value.to_str().is_ok_and(is))
}

/// The elements of a list, from all fields of this name. A value that is not text yields one element that equals no
/// other.
pub(crate) fn elements<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("\u{fffd}"));
    values.flat_map(|value| value.split(',')).map(str::trim_ascii).filter(|element| !element.is_empty())
}

/// Parses digits: no sign, no space.
fn number(text: &str) -> Result<u64, Malformed> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().map_err(|_| Malformed) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::HeaderValue;

    use super::*;

    fn headers(name: &HeaderName, values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn ranges_of_parts() {
        for (value, expected) in [
            ("bytes 0-0/1", Ok((0..1, Some(1)))),
            ("bytes 10-19/20", Ok((10..20, Some(20)))),
            ("Bytes  10-19/*", Ok((10..20, None))),
            ("bytes 0-18446744073709551614/18446744073709551615", Ok((0..u64::MAX, Some(u64::MAX)))),
            ("bytes 0-18446744073709551615/*", Err(Malformed)),
            ("bytes 0-18446744073709551616/*", Err(Malformed)),
            ("bytes 10-20/20", Err(Malformed)),
            ("bytes 2-1/20", Err(Malformed)),
            ("bytes */20", Err(Malformed)),
            ("bytes -1/20", Err(Malformed)),
            ("bytes 1-/20", Err(Malformed)),
            ("bytes +1-2/20", Err(Malformed)),
            ("bytes 1-2", Err(Malformed)),
            ("bytes=1-2/20", Err(Malformed)),
            ("lines 1-2/20", Err(Malformed)),
            ("", Err(Malformed)),
        ] {
            let expected = expected.map(|(range, total)| Some(ContentRange { range, total }));
            assert_eq!(content_range(&headers(&CONTENT_RANGE, &[value])), expected, "{value}");
        }
        assert_eq!(content_range(&HeaderMap::new()), Ok(None));
        assert_eq!(content_range(&headers(&CONTENT_RANGE, &["bytes 0-0/1"; 2])), Err(Malformed));
    }

    #[test]
    fn lengths() {
        for (values, expected) in [
            (&["0"][..], Ok(Some(0))),
            (&["18446744073709551615"], Ok(Some(u64::MAX))),
            (&["18446744073709551616"], Err(Malformed)),
            (&["+1"], Err(Malformed)),
            (&["1, 1"], Err(Malformed)),
            (&["1", "1"], Err(Malformed)),
            (&[""], Err(Malformed)),
            (&[], Ok(None)),
        ] {
            assert_eq!(content_length(&headers(&CONTENT_LENGTH, values)), expected, "{values:?}");
        }
    }

    #[test]
    fn codings_and_parts() {
        for (value, expected) in [("identity", false), ("", false), ("gzip", true), ("identity, br", true)] {
            assert_eq!(is_coded(&headers(&CONTENT_ENCODING, &[value])), expected, "{value}");
        }
        for (value, expected) in [
            ("text/plain", false),
            ("text/plain; multipart/byteranges", false),
            ("Multipart/ByteRanges ; boundary=a", true),
        ] {
            assert_eq!(is_multipart(&headers(&CONTENT_TYPE, &[value])), expected, "{value}");
        }
        let no_text = HeaderValue::from_bytes(b"\xff").unwrap();
        assert!(is_coded(&HeaderMap::from_iter([(CONTENT_ENCODING, no_text)])));
    }
}
