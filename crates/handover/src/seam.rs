//! Where the bytes of one origin end and those of the next begin.

use bytes::Bytes;

use crate::offer::{TooLong, Transfer};

/// The body of a continuation on its way to the client.
///
/// It begins before the seam: what the client already has is compared, as far as it is still known, and not given
/// again; what follows goes on. The present origin may deliver until the seam and beyond it, for as long as nobody has
/// called [`Seam::take`]; from then on it must not.
#[derive(Debug)]
pub struct Seam {
    /// The offset of the first byte of the body.
    first: u64,
    /// The offset of the next one.
    next: u64,
    at: u64,
    compared: usize,
    compared_min: usize,
}

/// Behind every position: a body that was refused once has no next byte.
const NEVER: u64 = u64::MAX;

/// Why the body of a continuation cannot be used, from here on. What was returned before may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SeamError {
    /// The origin's fault: it holds other bytes, whatever its validators say.
    #[error("the byte at {at} is not the one that the client has")]
    Differs {
        /// Its offset.
        at: u64,
    },
    /// The origin's fault.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The present origin ended before the seam: bytes in between are missing, or all that could be compared.
    #[error("the continuation begins behind what was delivered")]
    Gap,
    /// The present origin ended before the seam, and origins are only declared equal: too few bytes could be compared.
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

    /// How many bytes the present origin is still to deliver before the seam is reached. If it fails before, the seam
    /// may be tried all the same: it needs only that no byte is missing.
    pub fn owed(&self, transfer: &Transfer) -> u64 {
        self.at.saturating_sub(transfer.position())
    }

    /// Takes the next piece of the body, and returns what of it the client is to be given now, which may be nothing;
    /// the transfer counts it as delivered. An error is final, but for [`SeamError::Gap`] while the present origin
    /// still delivers.
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
        // The present origin ended just where the continuation begins: a byte that could be compared is missing.
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
