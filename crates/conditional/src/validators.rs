//! Validators (RFC 9110, section 8.8).

use std::time::SystemTime;

use http::{HeaderMap, HeaderName};

/// An entity tag (RFC 9110, section 8.8.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntityTag<'a> {
    pub is_weak: bool,
    /// With its quotes.
    pub opaque: &'a [u8],
}

/// The validators of a representation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validators<'a> {
    pub tag: Option<EntityTag<'a>>,
    /// The modification time, in whole seconds.
    pub modified: Option<SystemTime>,
    /// Whether equal modification times mean equal bytes (RFC 9110, section 8.8.2.2).
    pub is_modified_strong: bool,
}

impl<'a> EntityTag<'a> {
    /// The tag of an `ETag` field. `None`: the value is malformed.
    pub fn of(value: &'a [u8]) -> Option<Self> {
        match Self::parse(value.trim_ascii()) {
            Some((tag, b"")) => Some(tag),
            _ => None,
        }
    }

    /// Parses a tag. Returns it and the rest of the text.
    pub(crate) fn parse(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (is_weak, quoted) = match text.strip_prefix(b"W/") {
            Some(quoted) => (true, quoted),
            None => (false, text),
        };
        let content = quoted.strip_prefix(b"\"")?;
        let end = content.iter().position(|&byte| byte == b'"')?;
        if content[..end].iter().any(|&byte| byte <= b' ' || byte == 0x7f) {
            return None;
        }
        let (opaque, rest) = quoted.split_at(end + 2);
        Some((Self { is_weak, opaque }, rest))
    }

    /// RFC 9110, section 8.8.3.2.
    pub fn matches_strongly(&self, other: &EntityTag<'_>) -> bool {
        !self.is_weak && !other.is_weak && self.opaque == other.opaque
    }

    /// RFC 9110, section 8.8.3.2.
    pub fn matches_weakly(&self, other: &EntityTag<'_>) -> bool {
        self.opaque == other.opaque
    }
}

/// The date of a field, if it is single and valid, in any of the three formats (RFC 9110, section 5.6.7). Preconditions
/// ignore other values (sections 13.1.3 and 13.1.4).
pub fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 9110, section 8.8.3.
    #[test]
    fn entity_tags() {
        for (value, expected) in [
            (&b"\"a\""[..], Some((false, &b"\"a\""[..]))),
            (b"W/\"a\"", Some((true, b"\"a\""))),
            (b" \"\" ", Some((false, b"\"\""))),
            (b"\"\xfc\"", Some((false, b"\"\xfc\""))),
            (b"w/\"a\"", None),
            (b"W\"a\"", None),
            (b"W/ \"a\"", None),
            (b"a", None),
            (b"\"a", None),
            (b"\"a\" \"b\"", None),
            (b"\"a b\"", None),
            (b"", None),
        ] {
            let tag = EntityTag::of(value).map(|tag| (tag.is_weak, tag.opaque));
            assert_eq!(tag, expected, "{}", value.escape_ascii());
        }
    }

    /// The table of RFC 9110, section 8.8.3.2.
    #[test]
    fn comparison_of_entity_tags() {
        let tag = |is_weak, opaque| EntityTag { is_weak, opaque };
        for (one, other, strongly, weakly) in [
            (tag(true, b"\"1\""), tag(true, b"\"1\""), false, true),
            (tag(true, b"\"1\""), tag(true, b"\"2\""), false, false),
            (tag(true, b"\"1\""), tag(false, b"\"1\""), false, true),
            (tag(false, b"\"1\""), tag(false, b"\"1\""), true, true),
        ] {
            assert_eq!((one.matches_strongly(&other), one.matches_weakly(&other)), (strongly, weakly));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(value in prop::collection::vec(any::<u8>(), 0..32)) {
            if let Some(tag) = EntityTag::of(&value) {
                prop_assert!(tag.opaque.len() >= 2 && tag.opaque.starts_with(b"\"") && tag.opaque.ends_with(b"\""));
            }
        }
    }
}
