//! Validators that identify a representation of a resource (RFC 9110, section 8.8).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{DATE, ETAG, LAST_MODIFIED};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::digests::Digests;
use crate::fields;
use crate::refusal::Refusal;
use crate::stays::Stays;

/// The response must be this much younger than a modification time, or the time is a weak validator. Then the content
/// has not changed again within the second that the time names, even if the clocks of the file and of the response
/// differ (RFC 9110, section 8.8.2.2).
const SETTLED_AFTER: Duration = Duration::from_mins(1);

/// 1980-01-02. Tools for reproducible packages set all files to a time before this one. Such a time does not identify
/// the content.
const MEANINGFUL_FROM: Duration = Duration::from_hours(87_672);

/// The validators and digests of a response. Malformed and repeated ones are ignored.
#[derive(Debug, Clone)]
pub(crate) struct Validators {
    tag: Option<EntityTag>,
    modified: Option<Modified>,
    digests: Digests,
}

impl Validators {
    pub(crate) fn read(headers: &HeaderMap) -> Self {
        Self { tag: EntityTag::read(headers), modified: Modified::read(headers), digests: Digests::read(headers) }
    }

    /// Checks that another response can prove to be of the same representation.
    pub(crate) fn prove(&self) -> Result<(), Stays> {
        let has_strong = self.strong_tag().is_some() || self.strong_time().is_some();
        if has_strong || !self.digests.is_empty() {
            return Ok(());
        }
        let has_weak = self.tag.is_some() || self.modified.is_some();
        Err(if has_weak { Stays::WeakValidator } else { Stays::NoValidator })
    }

    /// The value for `If-Range`, if it can be sent without excluding a proof: an origin with another tag may have the
    /// same digest. A time is allowed only if there is no tag, not even a weak one (RFC 9110, section 13.1.5).
    pub(crate) fn if_range(&self) -> Option<&HeaderValue> {
        if !self.digests.is_empty() {
            return None;
        }
        match &self.tag {
            Some(tag) => (!tag.weak).then_some(&tag.value),
            None => self.strong_time().map(|modified| &modified.value),
        }
    }

    /// Digests decide alone. Without them, and unless the operator has `declared` that origins are equal, the strong
    /// tag decides. Without a strong tag, the time does.
    pub(crate) fn compare(&self, theirs: &Self, declared: bool) -> Result<(), Refusal> {
        match self.digests.agree(&theirs.digests) {
            Some(true) => Ok(()),
            Some(false) => Err(Refusal::Digest),
            None if declared => Ok(()),
            None => self.compare_validators(theirs),
        }
    }

    fn compare_validators(&self, theirs: &Self) -> Result<(), Refusal> {
        let tags = self.tag.as_ref().zip(theirs.tag.as_ref());
        if tags.is_some_and(|(ours, theirs)| ours.opaque() != theirs.opaque()) {
            return Err(Refusal::Validator);
        }
        let is_same = match (self.strong_tag(), self.strong_time()) {
            (Some(_), _) => theirs.tag.as_ref().map(|tag| !tag.weak),
            (None, Some(ours)) => theirs.modified.as_ref().map(|theirs| theirs.time == ours.time),
            (None, None) => None,
        };
        match is_same {
            Some(true) => Ok(()),
            Some(false) => Err(Refusal::Validator),
            None => Err(Refusal::MissingValidator),
        }
    }

    fn strong_tag(&self) -> Option<&EntityTag> {
        self.tag.as_ref().filter(|tag| !tag.weak)
    }

    fn strong_time(&self) -> Option<&Modified> {
        self.modified.as_ref().filter(|modified| modified.strong)
    }
}

/// `"opaque"` or `W/"opaque"` (RFC 9110, section 8.8.3).
#[derive(Debug, Clone)]
struct EntityTag {
    value: HeaderValue,
    weak: bool,
}

impl EntityTag {
    fn read(headers: &HeaderMap) -> Option<Self> {
        let value = only(headers, &ETAG)?;
        let (weak, quoted) = match value.as_bytes() {
            [b'W', b'/', quoted @ ..] => (true, quoted),
            quoted => (false, quoted),
        };
        let [b'"', opaque @ .., b'"'] = quoted else { return None };
        let valid = opaque.iter().all(|byte| matches!(byte, 0x21 | 0x23..=0x7e | 0x80..));
        valid.then(|| Self { value: value.clone(), weak })
    }

    /// With its quotes.
    fn opaque(&self) -> &[u8] {
        let value = self.value.as_bytes();
        if self.weak { &value[2..] } else { value }
    }
}

/// `Last-Modified`.
#[derive(Debug, Clone)]
struct Modified {
    value: HeaderValue,
    time: SystemTime,
    /// Whether the same time means the same bytes.
    strong: bool,
}

impl Modified {
    fn read(headers: &HeaderMap) -> Option<Self> {
        let value = only(headers, &LAST_MODIFIED)?;
        let time = date(value)?;
        let age = only(headers, &DATE).and_then(date).and_then(|date| date.duration_since(time).ok());
        let settled = age.is_some_and(|age| age >= SETTLED_AFTER);
        Some(Self { value: value.clone(), time, strong: settled && time >= UNIX_EPOCH + MEANINGFUL_FROM })
    }
}

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    fields::is_single(headers, name).then(|| headers.get(name)).flatten()
}

fn date(value: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const NOW: (&str, &str) = ("date", "Sun, 22 Nov 2026 12:00:00 GMT");
    const OLD: (&str, &str) = ("last-modified", "Sun, 22 Nov 2026 11:59:00 GMT");
    const NEW: (&str, &str) = ("last-modified", "Sun, 22 Nov 2026 11:59:01 GMT");
    const SHA: (&str, &str) = ("repr-digest", "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:");
    const OTHER_SHA: (&str, &str) = ("repr-digest", "sha-256=:57DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:");

    fn validators(fields: &[(&str, &str)]) -> Validators {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        Validators::read(&headers)
    }

    #[test]
    fn what_proves_and_what_is_said_in_if_range() {
        let strong = ("etag", "\"a\"");
        let weak = ("etag", "W/\"a\"");
        let ancient = ("last-modified", "Tue, 01 Jan 1980 00:00:00 GMT");
        for (fields, proof, if_range) in [
            (&[][..], Err(Stays::NoValidator), None),
            (&[strong], Ok(()), Some("\"a\"")),
            (&[("etag", "\"\"")], Ok(()), Some("\"\"")),
            (&[weak], Err(Stays::WeakValidator), None),
            (&[("etag", "a")], Err(Stays::NoValidator), None),
            (&[("etag", "w/\"a\"")], Err(Stays::NoValidator), None),
            (&[("etag", "\"a\"b\"")], Err(Stays::NoValidator), None),
            (&[("etag", "\"a b\"")], Err(Stays::NoValidator), None),
            (&[("etag", "\"")], Err(Stays::NoValidator), None),
            (&[strong, strong], Err(Stays::NoValidator), None),
            (&[OLD, NOW], Ok(()), Some(OLD.1)),
            (&[NEW, NOW], Err(Stays::WeakValidator), None),
            (&[OLD], Err(Stays::WeakValidator), None),
            (&[ancient, NOW], Err(Stays::WeakValidator), None),
            (&[("last-modified", "yesterday"), NOW], Err(Stays::NoValidator), None),
            (&[weak, OLD, NOW], Ok(()), None),
            (&[strong, OLD, NOW], Ok(()), Some("\"a\"")),
            (&[SHA], Ok(()), None),
            (&[SHA, strong], Ok(()), None),
        ] {
            let validators = validators(fields);
            assert_eq!(validators.prove(), proof, "{fields:?}");
            assert_eq!(validators.if_range().map(|value| value.to_str().unwrap()), if_range, "{fields:?}");
        }
    }

    #[test]
    fn comparisons() {
        let (a, b) = (("etag", "\"a\""), ("etag", "\"b\""));
        let (weak_a, weak_b) = (("etag", "W/\"a\""), ("etag", "W/\"b\""));
        for (ours, theirs, expected) in [
            (&[a][..], &[a][..], Ok(())),
            (&[a], &[b], Err(Refusal::Validator)),
            (&[a], &[weak_a], Err(Refusal::Validator)),
            (&[a], &[], Err(Refusal::MissingValidator)),
            (&[a, OLD, NOW], &[a, NEW, NOW], Ok(())),
            (&[a, OLD, NOW], &[OLD, NOW], Err(Refusal::MissingValidator)),
            (&[OLD, NOW], &[OLD], Ok(())),
            (&[OLD, NOW], &[NEW, NOW], Err(Refusal::Validator)),
            (&[OLD, NOW], &[a], Err(Refusal::MissingValidator)),
            (&[weak_a, OLD, NOW], &[weak_a, OLD], Ok(())),
            (&[weak_a, OLD, NOW], &[weak_b, OLD], Err(Refusal::Validator)),
            (&[weak_a], &[weak_a], Err(Refusal::MissingValidator)),
            (&[SHA], &[SHA], Ok(())),
            (&[SHA, a], &[SHA, b], Ok(())),
            (&[SHA, a], &[OTHER_SHA, a], Err(Refusal::Digest)),
            (&[SHA, a], &[a], Ok(())),
            (&[SHA], &[a], Err(Refusal::MissingValidator)),
        ] {
            assert_eq!(validators(ours).compare(&validators(theirs), false), expected, "{ours:?} {theirs:?}");
        }
    }

    #[test]
    fn declared_equality_gives_way_to_digests_only() {
        for (ours, theirs, expected) in [
            (&[("etag", "\"a\"")][..], &[("etag", "\"b\"")][..], Ok(())),
            (&[], &[], Ok(())),
            (&[SHA], &[], Ok(())),
            (&[SHA], &[OTHER_SHA], Err(Refusal::Digest)),
        ] {
            assert_eq!(validators(ours).compare(&validators(theirs), true), expected, "{ours:?} {theirs:?}");
        }
    }
}
