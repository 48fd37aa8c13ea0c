//! What clients ask for: resources whose bytes are a function of the offset.

use std::ops::Range;

use crate::random::mix;

/// Where the bytes of a resource come from, and what its responses say about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file of the agents.
    File,
    /// All origins have the same bytes, under one strong validator.
    Same,
    /// Each origin has one of two versions, under different strong validators.
    Versions,
    /// Each origin has one of two versions, under one weak validator.
    Weak,
    /// The same bytes at all origins, of a length that no head has.
    Chunked,
    /// The same, as a stream of events.
    Events,
    /// The response is an upgrade, and both sides send bytes.
    Tunnel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) kind: Kind,
    pub(crate) file: u64,
    pub(crate) len: u64,
}

/// The number of bytes between two parts in which versions differ. Less than the whole, so that a comparison of some
/// bytes does not always find the difference.
const VERSION_BLOCK: u64 = 512;

impl Kind {
    const NAMES: [(Self, &str); 7] = [
        (Self::File, "file"),
        (Self::Same, "same"),
        (Self::Versions, "versions"),
        (Self::Weak, "weak"),
        (Self::Chunked, "chunked"),
        (Self::Events, "events"),
        (Self::Tunnel, "tunnel"),
    ];

    /// Whether an origin that fails in the middle cuts the response, because no other can continue it, or may not have
    /// the same version.
    pub(crate) fn needs_its_origin(self) -> bool {
        !matches!(self, Self::File | Self::Same)
    }

    /// Whether no head has the length of its bytes.
    pub(crate) fn has_no_len(self) -> bool {
        matches!(self, Self::Chunked | Self::Events)
    }
}

impl Resource {
    pub(crate) fn path(&self) -> String {
        let name = Kind::NAMES.iter().find(|(kind, _)| *kind == self.kind).map_or("", |(_, name)| name);
        format!("/{name}/{}/{}", self.file, self.len)
    }

    pub(crate) fn parse(path: &str) -> Option<Self> {
        let mut parts = path.split('/').skip(1);
        let name = parts.next()?;
        let kind = Kind::NAMES.iter().find(|(_, known)| *known == name)?.0;
        Some(Self { kind, file: parts.next()?.parse().ok()?, len: parts.next()?.parse().ok()? })
    }

    /// The validator of a version, as `ETag` has it.
    pub(crate) fn etag(&self, version: u64) -> String {
        let Self { kind, file, len } = self;
        match kind {
            Kind::Weak => format!("W/\"{file}-{len}\""),
            _ => format!("\"{file}-{len}-{version}\""),
        }
    }

    /// The version that an origin has, which has had others before.
    pub(crate) fn version_at(&self, origin: u64, restarts: u64) -> u64 {
        match self.kind {
            Kind::Versions | Kind::Weak => (origin + restarts) % 2,
            _ => 0,
        }
    }

    /// What the client of a tunnel sends.
    pub(crate) fn upload(&self) -> Self {
        let file = self.file ^ 1 << 40;
        Self { kind: self.kind, file, len: 1 + mix(file) % self.len }
    }

    /// These bytes of a version.
    pub(crate) fn bytes(&self, version: u64, range: Range<u64>) -> Vec<u8> {
        let mut bytes = bytes(self.file, range.clone());
        if version == 1 {
            for (offset, byte) in range.zip(&mut bytes) {
                let differs = offset / VERSION_BLOCK % 4 == 3;
                *byte = if differs { !*byte } else { *byte };
            }
        }
        bytes
    }
}

/// The number of bytes that come from one hash.
const WORD_LEN: u64 = 8;

/// These bytes of a file.
pub(crate) fn bytes(file: u64, range: Range<u64>) -> Vec<u8> {
    let words = range.start / WORD_LEN..range.end.div_ceil(WORD_LEN);
    let bytes = words.flat_map(|word| mix(file ^ word.wrapping_mul(0x2545_f491_4f6c_dd1d)).to_le_bytes());
    let mut bytes: Vec<_> = bytes.collect();
    bytes.drain(..(range.start % WORD_LEN) as usize);
    bytes.truncate((range.end - range.start) as usize);
    bytes
}

/// The index of the first byte that differs.
pub(crate) fn difference(got: &[u8], right: &[u8]) -> Option<usize> {
    if got == right { None } else { got.iter().zip(right).position(|(got, right)| got != right) }
}
