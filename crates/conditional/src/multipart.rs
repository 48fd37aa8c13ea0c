//! `Content-Range` and `multipart/byteranges` (RFC 9110, sections 14.4 and 14.6).

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;

/// A `Content-Range` with a known complete length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentRange {
    /// Not empty, and below the length.
    pub range: Range<u64>,
    /// The complete length in bytes.
    pub length: u64,
}

/// The texts of a response with several parts (RFC 9110, section 15.3.7.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Multipart {
    /// The value of `Content-Type`.
    pub media_type: String,
    /// Each part with the text before it.
    pub parts: Vec<(String, Range<u64>)>,
    /// The text after the last part.
    pub end: String,
}

impl ContentRange {
    /// Parses the value of the field. `None`: it is malformed, has another unit, an unknown length, or no range.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (range, length) = parse_content_range(value)?;
        Some(Self { range, length: length? })
    }
}

/// Parses the `Content-Range` of a satisfied range: the range, and the complete length, unless it is `*`. The range is
/// not empty, and within the length.
pub fn parse_content_range(value: &[u8]) -> Option<(Range<u64>, Option<u64>)> {
    let (unit, rest) = value.trim_ascii().split_at_checked(5)?;
    let rest = std::str::from_utf8(rest).ok()?.strip_prefix(' ').filter(|_| unit.eq_ignore_ascii_case(b"bytes"))?;
    let (range, length) = rest.trim_ascii().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, end) = (number(first)?, number(last)?.checked_add(1)?);
    let length = if length == "*" { None } else { Some(number(length)?) };
    (first < end && length.is_none_or(|length| end <= length)).then_some((first..end, length))
}

impl Multipart {
    /// The texts around `parts` of content of `length` bytes. `media_type` is that of the content, if it is known.
    pub fn new(parts: &[Range<u64>], media_type: Option<&str>, length: u64) -> Self {
        let boundary = boundary();
        let content_type = media_type.map(|value| format!("Content-Type: {value}\r\n")).unwrap_or_default();
        let text = |(index, part): (usize, &Range<u64>)| {
            let line_end = if index == 0 { "" } else { "\r\n" };
            let range = content_range(part, length);
            let text = format!("{line_end}--{boundary}\r\n{content_type}Content-Range: {range}\r\n\r\n");
            (text, part.clone())
        };
        Self {
            media_type: format!("multipart/byteranges; boundary={boundary}"),
            parts: parts.iter().enumerate().map(text).collect(),
            end: format!("\r\n--{boundary}--\r\n"),
        }
    }

    /// The length of the response in bytes.
    pub fn content_len(&self) -> u64 {
        let len = |(text, part): &(String, Range<u64>)| text.len() as u64 + (part.end - part.start);
        self.parts.iter().map(len).sum::<u64>() + self.end.len() as u64
    }
}

/// The value of `Content-Range` of a part, which is not empty.
pub fn content_range(part: &Range<u64>, length: u64) -> String {
    format!("bytes {}-{}/{length}", part.start, part.end - 1)
}

/// The value of `Content-Range` of a 416.
pub fn unsatisfied_range(length: u64) -> String {
    format!("bytes */{length}")
}

fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A boundary that no part can be made to contain: 128 bits from the standard library's random hash keys.
fn boundary() -> String {
    let draw = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", draw(), draw())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 9110, section 14.4.
    #[test]
    fn content_ranges() {
        for (value, expected) in [
            ("bytes 0-0/1", Some((0..1, 1))),
            ("bytes 4-9/10", Some((4..10, 10))),
            ("Bytes 4-9/10", Some((4..10, 10))),
            ("bytes 0-18446744073709551613/18446744073709551615", Some((0..u64::MAX - 1, u64::MAX))),
            ("bytes 4-10/10", None),
            ("bytes 9-4/10", None),
            ("bytes 4-9/*", None),
            ("bytes */10", None),
            ("bytes 4-9", None),
            ("bytes=4-9/10", None),
            ("bytes +4-9/10", None),
            ("bytes 4-99999999999999999999/999999999999999999999", None),
            ("lines 4-9/10", None),
            ("bytes", None),
            ("bytes é", None),
            ("", None),
        ] {
            let parsed = ContentRange::parse(value.as_bytes());
            assert_eq!(parsed, expected.map(|(range, length)| ContentRange { range, length }), "{value}");
        }
    }

    /// RFC 9110, section 14.6.
    #[test]
    fn texts_of_parts() {
        let parts = Multipart::new(&[0..2, 7..10], Some("text/plain"), 10);
        let boundary = parts.media_type.strip_prefix("multipart/byteranges; boundary=").expect("a boundary");
        let first = format!("--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/10\r\n\r\n");
        let second = format!("\r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes 7-9/10\r\n\r\n");
        let end = format!("\r\n--{boundary}--\r\n");
        assert_eq!(parts.content_len() as usize, first.len() + 2 + second.len() + 3 + end.len());
        assert_eq!(parts.parts, [(first, 0..2), (second, 7..10)]);
        assert_eq!(parts.end, end);
    }

    #[test]
    fn boundaries_differ() {
        assert_ne!(boundary(), boundary());
        assert_eq!(boundary().len(), 32);
    }

    proptest! {
        #[test]
        fn any_content_range_is_read(value in prop::collection::vec(any::<u8>(), 0..48)) {
            ContentRange::parse(&value);
        }

        #[test]
        fn a_written_content_range_is_read(first in 0..u64::MAX / 2, more in 1..u64::MAX / 4, rest in 0..u64::MAX / 4) {
            let (range, length) = (first..first + more, first + more + rest);
            let parsed = ContentRange::parse(content_range(&range, length).as_bytes());
            prop_assert_eq!(parsed, Some(ContentRange { range, length }));
        }
    }
}
