//! Octets on the wire, of which a capture has the first ones.

use super::Other;
use crate::Frame;

/// So many octets on the wire, of which the first were captured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Octets<'a> {
    /// At most `len`.
    captured: &'a [u8],
    len: usize,
}

impl<'a> Octets<'a> {
    /// Some writers of captures say less of the wire than they have.
    pub(super) fn of(frame: &Frame<'a>) -> Self {
        Self { captured: frame.data, len: frame.data.len().max(frame.len as usize) }
    }

    /// So many octets, of which `captured` are the first.
    pub(super) fn new(captured: &'a [u8], len: usize) -> Self {
        Self { captured, len: len.max(captured.len()) }
    }

    /// How many there were on the wire.
    pub(super) fn len(self) -> usize {
        self.len
    }

    pub(super) fn captured(self) -> &'a [u8] {
        self.captured
    }

    /// All of them, if the capture has them all.
    pub(super) fn whole(self) -> Option<&'a [u8]> {
        (self.captured.len() == self.len).then_some(self.captured)
    }

    /// The first `N`, without which a header makes no sense.
    pub(super) fn first<const N: usize>(self) -> Result<&'a [u8; N], Other> {
        self.captured.first_chunk().ok_or_else(|| self.too_short(N))
    }

    /// The first `N`, and what follows them.
    pub(super) fn split<const N: usize>(self) -> Result<(&'a [u8; N], Self), Other> {
        match self.captured.split_first_chunk() {
            Some((first, captured)) => Ok((first, Self { captured, len: self.len - N })),
            None => Err(self.too_short(N)),
        }
    }

    /// What follows the first `len`, captured or not.
    pub(super) fn skip(self, len: usize) -> Result<Self, Other> {
        let left = self.len.checked_sub(len).ok_or(Other::Malformed)?;
        Ok(Self { captured: self.captured.get(len..).unwrap_or_default(), len: left })
    }

    /// As many as a header says there are. A header that says more than the frame has is believed, too: there are
    /// captures that do not know how long their frames were.
    pub(super) fn of_len(self, len: usize) -> Self {
        Self { captured: &self.captured[..self.captured.len().min(len)], len }
    }

    /// Why there are no `len` of them.
    fn too_short(self, len: usize) -> Other {
        if self.len < len { Other::Malformed } else { Other::Truncated }
    }
}
