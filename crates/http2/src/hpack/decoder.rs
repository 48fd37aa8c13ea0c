//! Decodes blocks of header fields.

use std::collections::VecDeque;

use bytes::Bytes;
use http::HeaderName;

use super::{huffman, integer, static_table};

/// The largest dynamic table, in bytes (the initial value of `SETTINGS_HEADER_TABLE_SIZE`; RFC 9113, section 6.5.2).
const TABLE_LEN_MAX: usize = 4096;

/// The size of an entry besides its name and value, in bytes (RFC 7541, section 4.1).
pub(crate) const ENTRY_LEN: usize = 32;

/// The name of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    Authority,
    Method,
    Path,
    Protocol,
    Scheme,
    Status,
    Field(HeaderName),
    /// No name of a field: it has upper case or other characters that are not allowed, or is an unknown pseudo-header
    /// field (RFC 9113, section 8.2.1).
    Invalid(Bytes),
}

/// A block is not valid. The table is then unknown, so the connection has to end (RFC 9113, section 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the header block is malformed")]
pub(crate) struct Malformed;

/// The decoder of a connection, with its dynamic table.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// The newest entry is the first.
    pub(super) entries: VecDeque<(Name, Bytes)>,
    /// The size of all entries, in bytes.
    pub(super) len: usize,
    /// The largest size that the peer's encoder uses.
    pub(super) len_max: usize,
}

impl Name {
    fn parse(name: &[u8]) -> Self {
        match name {
            b":authority" => Self::Authority,
            b":method" => Self::Method,
            b":path" => Self::Path,
            b":protocol" => Self::Protocol,
            b":scheme" => Self::Scheme,
            b":status" => Self::Status,
            _ => HeaderName::from_lowercase(name)
                .map_or_else(|_| Self::Invalid(Bytes::copy_from_slice(name)), Self::Field),
        }
    }

    /// The length of the name, in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Path => 5,
            Self::Method | Self::Scheme | Self::Status => 7,
            Self::Protocol => 9,
            Self::Authority => 10,
            Self::Field(name) => name.as_str().len(),
            Self::Invalid(name) => name.len(),
        }
    }
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Self { entries: VecDeque::new(), len: 0, len_max: TABLE_LEN_MAX }
    }

    /// Decodes a whole block. Reports each field in order.
    ///
    /// # Errors
    /// [`Malformed`] if the block is malformed, possibly after some fields were reported.
    pub(crate) fn decode(&mut self, block: &[u8], mut report: impl FnMut(Name, Bytes)) -> Result<(), Malformed> {
        let mut rest = block;
        let mut has_fields = false;
        while let Some(first) = rest.first() {
            let (name, value) = match first {
                0x80.. => self.entry(integer::decode(&mut rest, 7).ok_or(Malformed)?)?,
                0x40..0x80 => {
                    let (name, value) = self.literal(&mut rest, 6)?;
                    self.insert(name.clone(), value.clone());
                    (name, value)
                }
                0x20..0x40 if has_fields => return Err(Malformed),
                0x20..0x40 => {
                    self.resize(integer::decode(&mut rest, 5).ok_or(Malformed)?)?;
                    continue;
                }
                // Without indexing, and never indexed.
                0..0x20 => self.literal(&mut rest, 4)?,
            };
            has_fields = true;
            report(name, value);
        }
        Ok(())
    }

    fn literal(&self, rest: &mut &[u8], prefix: u32) -> Result<(Name, Bytes), Malformed> {
        let index = integer::decode(rest, prefix).ok_or(Malformed)?;
        let name = if index > 0 { self.entry(index)?.0 } else { Name::parse(&string(rest)?) };
        Ok((name, string(rest)?))
    }

    /// RFC 7541, section 2.3.3.
    fn entry(&self, index: usize) -> Result<(Name, Bytes), Malformed> {
        if (1..=static_table::LEN).contains(&index) {
            let (name, value) = static_table::entry(index);
            return Ok((name, Bytes::from_static(value.as_bytes())));
        }
        let place = index.checked_sub(static_table::LEN + 1).ok_or(Malformed)?;
        self.entries.get(place).cloned().ok_or(Malformed)
    }

    /// RFC 7541, section 4.4.
    fn insert(&mut self, name: Name, value: Bytes) {
        let len = name.len() + value.len() + ENTRY_LEN;
        self.shrink(self.len_max.saturating_sub(len));
        if len <= self.len_max {
            self.len += len;
            self.entries.push_front((name, value));
        }
    }

    /// RFC 7541, section 6.3.
    fn resize(&mut self, len_max: usize) -> Result<(), Malformed> {
        if len_max > TABLE_LEN_MAX {
            return Err(Malformed);
        }
        self.len_max = len_max;
        self.shrink(len_max);
        Ok(())
    }

    fn shrink(&mut self, len_max: usize) {
        while self.len > len_max {
            let Some((name, value)) = self.entries.pop_back() else { break };
            self.len -= name.len() + value.len() + ENTRY_LEN;
        }
    }
}

/// Decodes the string at the start of `rest`, and removes it (RFC 7541, section 5.2).
fn string(rest: &mut &[u8]) -> Result<Bytes, Malformed> {
    let is_huffman = rest.first().is_some_and(|first| first & 0x80 != 0);
    let len = integer::decode(rest, 7).ok_or(Malformed)?;
    let (encoded, behind) = rest.split_at_checked(len).ok_or(Malformed)?;
    *rest = behind;
    if !is_huffman {
        return Ok(Bytes::copy_from_slice(encoded));
    }
    // Most text is longer by less than a third.
    let mut text = Vec::with_capacity(len + len / 2);
    huffman::decode(encoded, &mut text).ok_or(Malformed)?;
    Ok(text.into())
}
