//! Converts the fields of a head to a `HeaderMap` without an allocation for each value.

use std::ops::Range;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};

use super::Field;
use super::facts::Length;

/// A field cannot be represented. After parsing, only its length can be the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadField;

/// What to do with `Content-Length` fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lengths {
    /// There is at most one.
    Keep,
    /// There are several that are equal: they become one (RFC 9112, section 6.3).
    Merge(Length),
    /// `Transfer-Encoding` overrides them (RFC 9112, section 6.3).
    Remove,
}

/// The bytes of a head that values share.
pub(super) struct Shared<'a> {
    raw: &'a [u8],
    bytes: Bytes,
}

impl<'a> Shared<'a> {
    /// Copies the head, once.
    pub(super) fn new(raw: &'a [u8]) -> Self {
        Self { raw, bytes: Bytes::copy_from_slice(raw) }
    }

    /// The copy.
    pub(super) fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The part of the copy that corresponds to a part of the head.
    pub(super) fn slice(&self, part: &[u8]) -> Bytes {
        self.bytes.slice(range_in(self.raw, part))
    }

    /// The fields, in a map with room for `added` more.
    pub(super) fn fields(&self, fields: &[Field<'_>], lengths: Lengths, added: usize) -> Result<HeaderMap, BadField> {
        let mut map = HeaderMap::try_with_capacity(fields.len() + added).map_err(|_| BadField)?;
        for field in fields {
            let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| BadField)?;
            if lengths != Lengths::Keep && name == CONTENT_LENGTH {
                continue;
            }
            let value = HeaderValue::from_maybe_shared(self.slice(field.value)).map_err(|_| BadField)?;
            map.try_append(name, value).map_err(|_| BadField)?;
        }
        if let Lengths::Merge(Length::Known(length)) = lengths {
            map.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        Ok(map)
    }
}

/// Where `part`, which is a part of `whole`, lies in it.
fn range_in(whole: &[u8], part: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn fields(raw: &'static str, lengths: Lengths) -> HeaderMap {
        let fields: Vec<_> = raw
            .lines()
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| Field { name, value: value.as_bytes() })
            .collect();
        Shared::new(raw.as_bytes()).fields(&fields, lengths, 0).unwrap()
    }

    #[test]
    fn values_keep_their_order() {
        let map = fields("a: 1\nB: 2\na: \nset-cookie: x\na: 3", Lengths::Keep);
        assert_eq!(map.get_all("a").iter().collect::<Vec<_>>(), ["1", "", "3"]);
        assert_eq!((map.len(), &map["b"]), (5, &HeaderValue::from_static("2")));
    }

    #[test]
    fn at_most_one_length_is_left() {
        const SEVERAL: &str = "content-length: 03\na: 1\nContent-Length: 3, 3";
        let merged = fields(SEVERAL, Lengths::Merge(Length::Known(3)));
        assert_eq!(merged.get_all(CONTENT_LENGTH).iter().collect::<Vec<_>>(), ["3"]);
        assert!(!fields(SEVERAL, Lengths::Remove).contains_key(CONTENT_LENGTH));
    }
}
