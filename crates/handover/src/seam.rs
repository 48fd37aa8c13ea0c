//! The point where the bytes of one origin end and those of the next begin.

use bytes::Bytes;

use crate::offer::{TooLong, Transfer};

/// The body of a continuation on its way to the client.
///
/// It begins before the seam. The bytes that the client already has are compared, as far as they are still stored, and
/// are not delivered again. The bytes after them are delivered. The present origin may deliver up to the seam and
/// beyond it until the first call of [`Seam::take`]; after that call it must not.
#[derive(Debug)]
pub struct Seam {
    /// The offset of the first byte of the body.
    first: u64,
    /// The offset of the next byte of the body.
    next: u64,
    at: u64,
    compared: usize,
    compared_min: usize,
}

/// An offset after every position: after an error, the body has no next byte.
const NEVER: u64 = u64::MAX;

/// Why the rest of a continuation's body cannot be used. Bytes that [`Seam::take`] returned before stay valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SeamError {
    /// The origin has other bytes, although its validators are equal.
    #[error("the byte at offset {at} differs from the one that the client has")]
    Differs {
        /// The offset of the first byte that differs.
        at: u64,
    },
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The present origin ended before the seam. Bytes in between are missing, or all bytes that could be compared are.
    #[error("the continuation begins behind the last delivered byte")]
    Gap,
    /// The present origin ended before the seam, and too few bytes could be compared for origins that are only declared
    /// equal.
    #[error("too few bytes were compared")]
    Unproven,
}

impl SeamError {
    /// The reason as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Differs { .. } => "differs",
            Self::TooLong(_) => "too_long",
            Self::Gap => "gap",
            Self::Unproven => "unproven",
        }
    }
}

impl Seam {
    pub(crate) fn new(first: u64, at: u64, compared_min: usize) -> Self {
        Self { first, next: first, at, compared: 0, compared_min }
    }

    /// The number of bytes that the present origin has to deliver to reach the seam. If it fails before, the caller may
    /// try the seam nevertheless: it works if no byte is missing.
    pub fn owed(&self, transfer: &Transfer) -> u64 {
        self.at.saturating_sub(transfer.position())
    }

    /// Takes the next piece of the body. Returns the part of it that the caller must give to the client now, which may
    /// be empty, and counts it as delivered. Errors are final, except [`SeamError::Gap`] while the present origin still
    /// delivers.
    pub fn take(&mut self, transfer: &mut Transfer, piece: Bytes) -> Result<Bytes, SeamError> {
        self.pass(transfer, piece).inspect_err(|error| {
            if *error != SeamError::Gap {
                self.next = NEVER;
            }
        })
    }

    fn pass(&mut self, transfer: &mut Transfer, mut piece: Bytes) -> Result<Bytes, SeamError> {
        let known = transfer.position().checked_sub(self.next).ok_or(SeamError::Gap)?;
        let known = usize::try_from(known).map_or(piece.len(), |known| known.min(piece.len()));
        self.compare(transfer, &piece.split_to(known))?;
        if !piece.is_empty() {
            self.deliver(transfer, &piece)?;
        }
        Ok(piece)
    }

    fn compare(&mut self, transfer: &Transfer, repeated: &[u8]) -> Result<(), SeamError> {
        let compared = transfer.compare(self.next, repeated);
        let differs = |index| SeamError::Differs { at: self.next + index as u64 };
        self.compared += compared.map_err(differs)?;
        self.next += repeated.len() as u64;
        Ok(())
    }

    fn deliver(&mut self, transfer: &mut Transfer, piece: &[u8]) -> Result<(), SeamError> {
        if self.compared < self.compared_min {
            return Err(SeamError::Unproven);
        }
        // The present origin ended exactly where the continuation begins: a byte to compare is missing.
        if self.next == self.first && transfer.is_comparable() {
            return Err(SeamError::Gap);
        }
        transfer.delivered(piece)?;
        self.next += piece.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
