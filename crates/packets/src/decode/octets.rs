//! Octets on the wire, of which a capture has the first ones.

use super::decoded::Other;
use crate::Frame;

/// Octets on the wire, of which the first ones were captured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Octets<'a> {
    /// At most `len` octets.
    captured: &'a [u8],
    len: usize,
}

impl<'a> Octets<'a> {
    /// The octets of a frame. Some captures have a frame length below the captured length; then the captured length
    /// counts.
    pub(super) fn of(frame: &Frame<'a>) -> Self {
        Self { captured: frame.data, len: frame.data.len().max(frame.len as usize) }
    }

    /// `len` octets, of which `captured` are the first.
    pub(super) fn new(captured: &'a [u8], len: usize) -> Self {
        Self { captured, len: len.max(captured.len()) }
    }

    /// The number of octets on the wire.
    pub(super) fn len(self) -> usize {
        self.len
    }

    pub(super) fn captured(self) -> &'a [u8] {
        self.captured
    }

    /// All octets, if all were captured.
    pub(super) fn whole(self) -> Option<&'a [u8]> {
        (self.captured.len() == self.len).then_some(self.captured)
    }

    /// The first `N`, which a header needs.
    pub(super) fn first<const N: usize>(self) -> Result<&'a [u8; N], Other> {
        self.captured.first_chunk().ok_or_else(|| self.too_short(N))
    }

    /// The first `N`, and the rest.
    pub(super) fn split<const N: usize>(self) -> Result<(&'a [u8; N], Self), Other> {
        match self.captured.split_first_chunk() {
            Some((first, captured)) => Ok((first, Self { captured, len: self.len - N })),
            None => Err(self.too_short(N)),
        }
    }

    /// The octets behind the first `len`, captured or not.
    pub(super) fn skip(self, len: usize) -> Result<Self, Other> {
        let left = self.len.checked_sub(len).ok_or(Other::Malformed)?;
        Ok(Self { captured: self.captured.get(len..).unwrap_or_default(), len: left })
    }

    /// Takes the length of a header. It counts even if it exceeds the frame, because some captures lack the frames'
    /// length on the wire.
    pub(super) fn of_len(self, len: usize) -> Self {
        Self { captured: &self.captured[..self.captured.len().min(len)], len }
    }

    /// The reason why there are less than `len` octets.
    fn too_short(self, len: usize) -> Other {
        if self.len < len { Other::Malformed } else { Other::Truncated }
    }
}
