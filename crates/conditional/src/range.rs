//! The `Range` field (RFC 9110, section 14).

use std::ops::Range;

use http::header::RANGE;
use http::{HeaderMap, Method};

use crate::conditions::range_applies;
use crate::validators::Validators;

/// The most ranges of a request. A request with more gets the whole content.
const RANGES_MAX: usize = 16;

/// Ranges with a smaller gap than this are sent as one: a part's boundary and fields would be longer than the gap (RFC
/// 9110, section 15.3.7.2).
const GAP_MAX: u64 = 128;

/// The parts of the content that a `Range` field selects.
#[derive(Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of it: the field is ignored, because it is malformed, has an unknown unit or has too many ranges.
    Whole,
    /// At least one part. No part is empty, and no two overlap.
    Parts(Vec<Range<u64>>),
    /// Every range begins after the end of the content.
    Unsatisfiable,
}

/// The parts that a request selects. Only GET has ranges (RFC 9110, section 14.2), and a repeated `Range` is malformed.
pub fn selection(method: &Method, headers: &HeaderMap, validators: &Validators<'_>, length: u64) -> Selection {
    let mut values = headers.get_all(RANGE).iter();
    match (values.next(), values.next()) {
        (Some(range), None) if method == Method::GET && range_applies(headers, validators) => {
            select(range.as_bytes(), length)
        }
        _ => Selection::Whole,
    }
}

/// Evaluates the value of a `Range` field for content of `length` bytes.
///
/// Ranges that overlap or nearly touch are merged, which also sorts them. Other sets keep their order. So the response
/// is never longer than the content plus boundaries, for any ranges (RFC 9110, section 17.15).
pub fn select(value: &[u8], length: u64) -> Selection {
    let Some(specs) = parse(value) else {
        return Selection::Whole;
    };
    let mut parts = Vec::with_capacity(specs.len());
    for spec in specs {
        match spec.resolve(length) {
            Resolved::Part(part) => parts.push(part),
            Resolved::Nothing => {}
            Resolved::EmptyContent => return Selection::Whole,
        }
    }
    if parts.is_empty() {
        return Selection::Unsatisfiable;
    }
    Selection::Parts(merge(parts))
}

/// One range of the field. Numbers of more than 64 bits saturate: they are after the end of any content.
enum Spec {
    /// `first-last` or `first-`. The last byte belongs to the range.
    FromTo(u64, u64),
    /// `-length`
    Last(u64),
}

enum Resolved {
    Part(Range<u64>),
    Nothing,
    /// The last bytes of empty content are satisfiable, but have no `Content-Range`.
    EmptyContent,
}

impl Spec {
    fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-')?;
        let (first, last) = (first.trim_ascii(), last.trim_ascii());
        match (first, last) {
            ("", last) => Some(Self::Last(number(last)?)),
            (first, "") => Some(Self::FromTo(number(first)?, u64::MAX)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::FromTo(first, last))
            }
        }
    }

    fn resolve(&self, length: u64) -> Resolved {
        match *self {
            Self::Last(1..) if length == 0 => Resolved::EmptyContent,
            Self::Last(0) => Resolved::Nothing,
            Self::Last(count) => Resolved::Part(length.saturating_sub(count)..length),
            Self::FromTo(first, _) if first >= length => Resolved::Nothing,
            Self::FromTo(first, last) => Resolved::Part(first..last.saturating_add(1).min(length)),
        }
    }
}

/// `bytes=` and a list of ranges. Empty list elements are ignored (RFC 9110, section 5.6.1.2).
fn parse(value: &[u8]) -> Option<Vec<Spec>> {
    let (unit, list) = std::str::from_utf8(value).ok()?.split_once('=')?;
    if !unit.trim_ascii().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let mut specs = Vec::new();
    for element in list.split(',').map(str::trim_ascii).filter(|element| !element.is_empty()) {
        if specs.len() == RANGES_MAX {
            return None;
        }
        specs.push(Spec::parse(element)?);
    }
    (!specs.is_empty()).then_some(specs)
}

fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

fn merge(parts: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut sorted = parts.clone();
    sorted.sort_by_key(|part| part.start);
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for part in sorted {
        match merged.last_mut() {
            Some(last) if part.start <= last.end.saturating_add(GAP_MAX) => {
                last.end = last.end.max(part.end);
            }
            _ => merged.push(part),
        }
    }
    if merged.len() == parts.len() { parts } else { merged }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(ranges: &[(u64, u64)]) -> Selection {
        Selection::Parts(ranges.iter().map(|&(start, end)| start..end).collect())
    }

    #[test]
    fn ranges_of_a_thousand_bytes() {
        for (value, expected) in [
            ("bytes=0-0", parts(&[(0, 1)])),
            ("bytes=0-", parts(&[(0, 1000)])),
            ("bytes=999-", parts(&[(999, 1000)])),
            ("bytes=10-19", parts(&[(10, 20)])),
            ("bytes=10-5000", parts(&[(10, 1000)])),
            ("bytes=10-99999999999999999999999", parts(&[(10, 1000)])),
            ("bytes=-10", parts(&[(990, 1000)])),
            ("bytes=-5000", parts(&[(0, 1000)])),
            ("BYTES = 1-2", parts(&[(1, 3)])),
            ("bytes=, 1-2 ,,", parts(&[(1, 3)])),
            ("bytes=0-9,500-509", parts(&[(0, 10), (500, 510)])),
            ("bytes=500-509,0-9", parts(&[(500, 510), (0, 10)])),
            ("bytes=500-509,0-9,505-600", parts(&[(0, 10), (500, 601)])),
            ("bytes=0-9,20-29", parts(&[(0, 30)])),
            ("bytes=0-9,2000-", parts(&[(0, 10)])),
            ("bytes=0-,0-,0-,0-", parts(&[(0, 1000)])),
            ("bytes=1000-", Selection::Unsatisfiable),
            ("bytes=99999999999999999999999-", Selection::Unsatisfiable),
            ("bytes=-0", Selection::Unsatisfiable),
            ("bytes=", Selection::Whole),
            ("bytes=,", Selection::Whole),
            ("bytes", Selection::Whole),
            ("lines=1-2", Selection::Whole),
            ("bytes=2-1", Selection::Whole),
            ("bytes=-", Selection::Whole),
            ("bytes=--1", Selection::Whole),
            ("bytes=+1-2", Selection::Whole),
            ("bytes=1-2-3", Selection::Whole),
            ("bytes=1", Selection::Whole),
            ("bytes=0x1-2", Selection::Whole),
            ("bytes=1-2,x", Selection::Whole),
        ] {
            assert_eq!(select(value.as_bytes(), 1000), expected, "{value}");
        }
    }

    #[test]
    fn ranges_of_empty_content() {
        assert_eq!(select(b"bytes=0-", 0), Selection::Unsatisfiable);
        assert_eq!(select(b"bytes=-1", 0), Selection::Whole);
    }

    #[test]
    fn too_many_ranges_are_ignored() {
        let ranges = |count: usize| {
            let list: Vec<String> = (0..count).map(|n| format!("{0}-{0}", n * 1000)).collect();
            format!("bytes={}", list.join(","))
        };
        let Selection::Parts(parts) = select(ranges(RANGES_MAX).as_bytes(), u64::MAX) else {
            panic!("refused as many as are allowed");
        };
        assert_eq!(parts.len(), RANGES_MAX);
        assert_eq!(select(ranges(RANGES_MAX + 1).as_bytes(), u64::MAX), Selection::Whole);
    }

    proptest! {
        #[test]
        fn parts_lie_in_the_content_and_do_not_overlap(
            value in "bytes=([0-9]{0,4}-[0-9]{0,4},?){1,8}",
            length in 0..3000u64,
        ) {
            if let Selection::Parts(mut parts) = select(value.as_bytes(), length) {
                prop_assert!(!parts.is_empty());
                parts.sort_by_key(|part| part.start);
                prop_assert!(parts.iter().all(|part| part.start < part.end && part.end <= length));
                prop_assert!(parts.windows(2).all(|pair| pair[0].end <= pair[1].start));
            }
        }

        #[test]
        fn every_byte_asked_for_is_sent(asked in prop::collection::vec((0..2000u64, 0..300u64), 1..=RANGES_MAX)) {
            let list: Vec<String> = asked.iter().map(|(first, more)| format!("{first}-{}", first + more)).collect();
            let Selection::Parts(parts) = select(format!("bytes={}", list.join(",")).as_bytes(), 3000) else {
                return Err(TestCaseError::fail("not parts"));
            };
            for (first, more) in asked {
                prop_assert!(parts.iter().any(|part| part.start <= first && first + more < part.end));
            }
        }

        #[test]
        fn any_value_is_read(value in prop::collection::vec(any::<u8>(), 0..64), length in any::<u64>()) {
            select(&value, length);
        }
    }
}
