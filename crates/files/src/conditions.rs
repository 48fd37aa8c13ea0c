//! Validators of a file and the preconditions of a request (RFC 9110, sections 8.8 and 13).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};

/// A file younger than this may be written again without a new modification time: kernels use the time of the last
/// tick, and some file systems store whole or even seconds.
pub(crate) const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// 1980-01-02. Tools for reproducible packages set every file to an earlier time (0, 1, or the first day that an
/// archive can store). Such a time says nothing about the content.
const MEANINGFUL_FROM: Duration = Duration::from_hours(87_672);

/// The validators of one version of a file.
#[derive(Debug, Clone)]
pub(crate) struct Validators {
    /// The opaque tag with its quotes, without `W/`.
    tag: String,
    /// Whether equal validators mean equal bytes.
    strong: bool,
    /// In whole seconds, and never later than now (RFC 9110, section 8.8.2.1).
    modified: SystemTime,
}

impl Validators {
    /// Derives validators from the length and the modification time. So nodes with copies of the same times, as rsync
    /// and tar make them, have the same validators.
    ///
    /// The validators are strong if the time probably changes with the content: it is not too recent, not in the future
    /// and not normalised. The rest is up to the operator: a file that replaces another of the same length must not get
    /// the same time.
    pub(crate) fn new(length: u64, modified: SystemTime, now: SystemTime) -> Self {
        let since_epoch = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        let settled = now.duration_since(modified).is_ok_and(|age| age >= SETTLED_AFTER);
        Self {
            tag: format!("\"{:x}-{length:x}\"", since_epoch.as_nanos()),
            strong: settled && since_epoch >= MEANINGFUL_FROM,
            modified: UNIX_EPOCH + Duration::from_secs(whole_seconds(modified.min(now))),
        }
    }

    /// The value of the `ETag` field.
    pub(crate) fn etag(&self) -> String {
        if self.strong { self.tag.clone() } else { format!("W/{}", self.tag) }
    }

    /// The value of the `Last-Modified` field.
    pub(crate) fn last_modified(&self) -> String {
        httpdate::fmt_http_date(self.modified)
    }

    /// RFC 9110, section 8.8.3.2.
    fn matches_strongly(&self, other: &EntityTag<'_>) -> bool {
        self.strong && !other.weak && self.tag == other.opaque
    }

    /// RFC 9110, section 8.8.3.2.
    fn matches_weakly(&self, other: &EntityTag<'_>) -> bool {
        self.tag == other.opaque
    }
}

fn whole_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The result of the preconditions of a GET or HEAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The request is performed.
    Perform,
    /// 304: the client has this version.
    NotModified,
    /// 412: the client does not want this version.
    Failed,
}

/// Evaluates `If-Match`, `If-Unmodified-Since`, `If-None-Match` and `If-Modified-Since` in the order of RFC 9110,
/// section 13.2.2.
pub(crate) fn evaluate(headers: &HeaderMap, validators: &Validators) -> Verdict {
    let wanted = match any_tag(headers, &IF_MATCH, |tag| validators.matches_strongly(tag)) {
        Some(matched) => matched,
        None => date(headers, &IF_UNMODIFIED_SINCE).is_none_or(|date| validators.modified <= date),
    };
    if !wanted {
        return Verdict::Failed;
    }
    let known = match any_tag(headers, &IF_NONE_MATCH, |tag| validators.matches_weakly(tag)) {
        Some(matched) => matched,
        None => date(headers, &IF_MODIFIED_SINCE).is_some_and(|date| validators.modified <= date),
    };
    if known { Verdict::NotModified } else { Verdict::Perform }
}

/// Whether `If-Range` lets the `Range` field apply (RFC 9110, section 13.1.5).
pub(crate) fn range_applies(headers: &HeaderMap, validators: &Validators) -> bool {
    let Some(value) = headers.get(IF_RANGE) else {
        return true;
    };
    if let Some((tag, b"")) = EntityTag::parse(value.as_bytes().trim_ascii()) {
        return validators.matches_strongly(&tag);
    }
    validators.strong && date(headers, &IF_RANGE) == Some(validators.modified)
}

/// Whether `accepted` returns true for any tag of the field. `*` matches always. `None`: the field is missing.
fn any_tag(headers: &HeaderMap, name: &http::HeaderName, accepted: impl Fn(&EntityTag<'_>) -> bool) -> Option<bool> {
    let mut present = false;
    for value in headers.get_all(name) {
        present = true;
        if value.as_bytes().trim_ascii() == b"*" || tags(value.as_bytes()).any(|tag| accepted(&tag)) {
            return Some(true);
        }
    }
    present.then_some(false)
}

/// The date of the field, if it is single and valid. Otherwise the field is ignored (RFC 9110, sections 13.1.3 and
/// 13.1.4).
fn date(headers: &HeaderMap, name: &http::HeaderName) -> Option<SystemTime> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

struct EntityTag<'a> {
    weak: bool,
    /// With its quotes.
    opaque: &'a str,
}

impl<'a> EntityTag<'a> {
    /// Parses a tag. Returns it and the rest of the text.
    fn parse(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (weak, quoted) = match text.strip_prefix(b"W/") {
            Some(quoted) => (true, quoted),
            None => (false, text),
        };
        let content = quoted.strip_prefix(b"\"")?;
        let end = content.iter().position(|&byte| byte == b'"')?;
        let (opaque, rest) = quoted.split_at(end + 2);
        let opaque = std::str::from_utf8(opaque).ok()?;
        Some((Self { weak, opaque }, rest))
    }
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

    use proptest::prelude::*;

    use super::*;

    /// 2020-09-13 12:26:40.5 UTC.
    const MODIFIED: Duration = Duration::from_millis(1_600_000_000_500);
    const TAG: &str = "\"16345785f66d6500-64\"";
    const SAME: &str = "Sun, 13 Sep 2020 12:26:40 GMT";
    const EARLIER: &str = "Sun, 13 Sep 2020 12:26:39 GMT";
    const LATER: &str = "Sun, 13 Sep 2020 12:26:41 GMT";

    fn validators() -> Validators {
        let modified = UNIX_EPOCH + MODIFIED;
        Validators::new(100, modified, modified + Duration::from_hours(1))
    }

    #[test]
    fn validators_tell_time_and_length() {
        assert_eq!(validators().etag(), TAG);
        assert_eq!(validators().last_modified(), SAME);
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
    }

    #[test]
    fn a_time_that_says_little_makes_weak_validators() {
        let now = UNIX_EPOCH + MODIFIED;
        let hour = Duration::from_hours(1);
        for (modified, strong) in [
            (now - hour, true),
            (now - SETTLED_AFTER, true),
            (now - SETTLED_AFTER / 2, false),
            (now, false),
            (now + hour, false),
            (UNIX_EPOCH, false),
            (UNIX_EPOCH + Duration::from_secs(1), false),
            (UNIX_EPOCH + MEANINGFUL_FROM - 24 * hour, false),
            (UNIX_EPOCH + MEANINGFUL_FROM, true),
            (UNIX_EPOCH - hour, false),
        ] {
            let validators = Validators::new(1, modified, now);
            assert_eq!(!validators.etag().starts_with("W/"), strong, "{modified:?}");
            let same_date = headers(&[("if-range", &validators.last_modified())]);
            assert_eq!(range_applies(&same_date, &validators), strong, "{modified:?}");
            assert!(validators.modified <= now);
        }
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
