//! Validators of a file (RFC 9110, section 8.8).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use watari_conditional::EntityTag;

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

    /// For the evaluation of preconditions and ranges.
    pub(crate) fn compared(&self) -> watari_conditional::Validators<'_> {
        watari_conditional::Validators {
            tag: Some(EntityTag { is_weak: !self.strong, opaque: self.tag.as_bytes() }),
            modified: Some(self.modified),
            is_modified_strong: self.strong,
        }
    }
}

fn whole_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::HeaderMap;
    use watari_conditional::{Verdict, evaluate, range_applies};

    use super::*;

    /// 2020-09-13 12:26:40.5 UTC.
    const MODIFIED: Duration = Duration::from_millis(1_600_000_000_500);
    const TAG: &str = "\"16345785f66d6500-64\"";
    const SAME: &str = "Sun, 13 Sep 2020 12:26:40 GMT";

    fn validators() -> Validators {
        let modified = UNIX_EPOCH + MODIFIED;
        Validators::new(100, modified, modified + Duration::from_hours(1))
    }

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields.iter().map(|&(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect::<HeaderMap>()
    }

    #[test]
    fn validators_tell_time_and_length() {
        assert_eq!(validators().etag(), TAG);
        assert_eq!(validators().last_modified(), SAME);
    }

    #[test]
    fn own_validators_match() {
        let validators = validators();
        for field in [("if-none-match", TAG), ("if-modified-since", SAME)] {
            assert_eq!(evaluate(&headers(&[field]), &validators.compared()), Verdict::NotModified, "{field:?}");
        }
        for (field, expected) in [(("if-match", TAG), Verdict::Perform), (("if-match", "\"x\""), Verdict::Failed)] {
            assert_eq!(evaluate(&headers(&[field]), &validators.compared()), expected, "{field:?}");
        }
        assert!(range_applies(&headers(&[("if-range", TAG)]), &validators.compared()));
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
            assert_eq!(range_applies(&same_date, &validators.compared()), strong, "{modified:?}");
            assert!(validators.modified <= now);
        }
    }
}
