//! The preconditions of a request (RFC 9110, section 13).

use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderName};

use crate::validators::{EntityTag, Validators, date};

/// The result of the preconditions of a GET or HEAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The request is performed.
    Perform,
    /// 304: the client has this version.
    NotModified,
    /// 412: the client does not want this version.
    Failed,
}

/// Evaluates `If-Match`, `If-Unmodified-Since`, `If-None-Match` and `If-Modified-Since` in the order of RFC 9110,
/// section 13.2.2.
pub fn evaluate(headers: &HeaderMap, validators: &Validators<'_>) -> Verdict {
    let strongly = |tag: &EntityTag<'_>| validators.tag.is_some_and(|own| own.matches_strongly(tag));
    let weakly = |tag: &EntityTag<'_>| validators.tag.is_some_and(|own| own.matches_weakly(tag));
    let is_modified_since = |name| Some(validators.modified? > date(headers, name)?);
    let wanted = match any_tag(headers, &IF_MATCH, strongly) {
        Some(matched) => matched,
        None => is_modified_since(&IF_UNMODIFIED_SINCE) != Some(true),
    };
    if !wanted {
        return Verdict::Failed;
    }
    let known = match any_tag(headers, &IF_NONE_MATCH, weakly) {
        Some(matched) => matched,
        None => is_modified_since(&IF_MODIFIED_SINCE) == Some(false),
    };
    if known { Verdict::NotModified } else { Verdict::Perform }
}

/// Whether `If-Range` lets the `Range` field apply (RFC 9110, section 13.1.5).
pub fn range_applies(headers: &HeaderMap, validators: &Validators<'_>) -> bool {
    let Some(value) = headers.get(IF_RANGE) else {
        return true;
    };
    if let Some(tag) = EntityTag::of(value.as_bytes()) {
        return validators.tag.is_some_and(|own| own.matches_strongly(&tag));
    }
    let date = date(headers, &IF_RANGE);
    validators.is_modified_strong && date.is_some() && date == validators.modified
}

/// Whether `accepted` returns true for any tag of the field. `*` matches always. `None`: the field is missing.
fn any_tag(headers: &HeaderMap, name: &HeaderName, accepted: impl Fn(&EntityTag<'_>) -> bool) -> Option<bool> {
    let mut present = false;
    for value in headers.get_all(name) {
        present = true;
        if value.as_bytes().trim_ascii() == b"*" || tags(value.as_bytes()).any(|tag| accepted(&tag)) {
            return Some(true);
        }
    }
    present.then_some(false)
}

/// The tags of a list. A tag may contain a comma. A malformed tag ends the list.
fn tags(mut list: &[u8]) -> impl Iterator<Item = EntityTag<'_>> {
    std::iter::from_fn(move || {
        let start = list.iter().position(|byte| !b" \t,".contains(byte))?;
        let (tag, rest) = EntityTag::parse(&list[start..])?;
        list = rest;
        Some(tag)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::{Duration, UNIX_EPOCH};

    use proptest::prelude::*;

    use super::*;

    const TAG: &str = "\"16345785f66d6500-64\"";
    const SAME: &str = "Sun, 13 Sep 2020 12:26:40 GMT";
    const EARLIER: &str = "Sun, 13 Sep 2020 12:26:39 GMT";
    const LATER: &str = "Sun, 13 Sep 2020 12:26:41 GMT";

    fn validators() -> Validators<'static> {
        let modified = UNIX_EPOCH + Duration::from_secs(1_600_000_000);
        Validators { tag: EntityTag::of(TAG.as_bytes()), modified: Some(modified), is_modified_strong: true }
    }

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields.iter().map(|&(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect::<HeaderMap>()
    }

    #[test]
    fn preconditions_in_their_order() {
        use Verdict::{Failed, NotModified, Perform};
        let weak = format!("W/{TAG}");
        let list = format!("\"a,b\", W/\"c\" ,{TAG}");
        let cases: &[(&[(&'static str, &str)], Verdict)] = &[
            (&[], Perform),
            (&[("if-match", TAG)], Perform),
            (&[("if-match", "*")], Perform),
            (&[("if-match", &list)], Perform),
            (&[("if-match", "\"x\"")], Failed),
            (&[("if-match", &weak)], Failed),
            (&[("if-match", "garbage")], Failed),
            (&[("if-match", "\"x\""), ("if-match", TAG)], Perform),
            (&[("if-match", TAG), ("if-unmodified-since", EARLIER)], Perform),
            (&[("if-match", "\"x\""), ("if-none-match", TAG)], Failed),
            (&[("if-match", TAG), ("if-none-match", TAG)], NotModified),
            (&[("if-unmodified-since", SAME)], Perform),
            (&[("if-unmodified-since", LATER)], Perform),
            (&[("if-unmodified-since", EARLIER)], Failed),
            (&[("if-unmodified-since", "yesterday")], Perform),
            (&[("if-none-match", TAG)], NotModified),
            (&[("if-none-match", &weak)], NotModified),
            (&[("if-none-match", &list)], NotModified),
            (&[("if-none-match", "*")], NotModified),
            (&[("if-none-match", "\"x\"")], Perform),
            (&[("if-none-match", "\"unterminated")], Perform),
            (&[("if-none-match", "\"x\""), ("if-modified-since", SAME)], Perform),
            (&[("if-modified-since", SAME)], NotModified),
            (&[("if-modified-since", "Sunday, 13-Sep-20 12:26:40 GMT")], NotModified),
            (&[("if-modified-since", "Sun Sep 13 12:26:40 2020")], NotModified),
            (&[("if-modified-since", LATER)], NotModified),
            (&[("if-modified-since", EARLIER)], Perform),
            (&[("if-modified-since", "1 o'clock")], Perform),
            (&[("if-modified-since", SAME), ("if-modified-since", SAME)], Perform),
            (&[("if-unmodified-since", EARLIER), ("if-modified-since", SAME)], Failed),
        ];
        for (fields, expected) in cases {
            assert_eq!(evaluate(&headers(fields), &validators()), *expected, "{fields:?}");
        }
    }

    /// RFC 9110, sections 13.1.1 to 13.1.4.
    #[test]
    fn preconditions_without_validators() {
        let none = Validators { tag: None, modified: None, is_modified_strong: false };
        for (name, value, expected) in [
            ("if-match", "\"x\"", Verdict::Failed),
            ("if-match", "*", Verdict::Perform),
            ("if-none-match", "\"x\"", Verdict::Perform),
            ("if-none-match", "*", Verdict::NotModified),
            ("if-modified-since", SAME, Verdict::Perform),
            ("if-unmodified-since", SAME, Verdict::Perform),
        ] {
            assert_eq!(evaluate(&headers(&[(name, value)]), &none), expected, "{name}: {value}");
        }
        assert!(!range_applies(&headers(&[("if-range", SAME)]), &none));
        assert!(!range_applies(&headers(&[("if-range", "garbage")]), &Validators { is_modified_strong: true, ..none }));
    }

    #[test]
    fn if_range_needs_the_same_version() {
        let weak = format!("W/{TAG}");
        let two = format!("{TAG}, {TAG}");
        for (value, expected) in [
            (TAG, true),
            (&weak, false),
            ("\"x\"", false),
            (&two, false),
            (SAME, true),
            (LATER, false),
            (EARLIER, false),
            ("garbage", false),
        ] {
            assert_eq!(range_applies(&headers(&[("if-range", value)]), &validators()), expected, "{value}");
        }
        assert!(range_applies(&HeaderMap::new(), &validators()));
        let weak = Validators { is_modified_strong: false, ..validators() };
        assert!(!range_applies(&headers(&[("if-range", SAME)]), &weak));
    }

    proptest! {
        #[test]
        fn any_field_is_read(value in prop::collection::vec(32..=126u8, 0..32)) {
            let value = http::HeaderValue::from_bytes(&value).unwrap();
            for name in [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, IF_RANGE] {
                let mut headers = HeaderMap::new();
                headers.insert(name, value.clone());
                evaluate(&headers, &validators());
                range_applies(&headers, &validators());
            }
        }
    }
}
