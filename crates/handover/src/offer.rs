//! Responses that can move, and the progress of each.

use std::ops::Range;

use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, RANGE, TRAILER, TRANSFER_ENCODING, VARY};
use http::{HeaderMap, Method, StatusCode};

use crate::fields::{self, ContentRange};
use crate::stays::Stays;
use crate::tail::Tail;
use crate::validators::Validators;

/// The conditions under which a transfer continues elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferConditions {
    /// The number of bytes before the seam that the new origin repeats. They are compared with the bytes that the
    /// client got.
    pub overlap: usize,
    pub equality: Equality,
}

/// The evidence that origins have the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Equality {
    /// Each response must show it, by its validators or digest.
    Proven,
    /// The operator declares it. Validators may differ or be missing. A digest or a length that differs still prevents
    /// the move.
    Declared {
        /// The minimum number of bytes that are repeated and compared, even if the overlap is smaller.
        compared_min: usize,
    },
}

impl Default for TransferConditions {
    fn default() -> Self {
        Self { overlap: 4096, equality: Equality::Proven }
    }
}

impl TransferConditions {
    fn kept(&self) -> usize {
        self.overlap.max(self.compared_min().unwrap_or(0))
    }

    /// At least one byte: a declaration alone is not enough.
    fn compared_min(&self) -> Option<usize> {
        match self.equality {
            Equality::Proven => None,
            Equality::Declared { compared_min } => Some(compared_min.max(1)),
        }
    }
}

/// The origin sends more bytes than it announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the origin sent more bytes than it announced")]
pub struct TooLong;

/// A response that can move, and its progress.
///
/// Positions are offsets in the whole representation, in bytes, also if the client requested a part.
#[derive(Debug)]
pub struct Transfer {
    pub(crate) validators: Validators,
    pub(crate) compared_min: Option<usize>,
    pub(crate) total: u64,
    pub(crate) range: Range<u64>,
    pub(crate) position: u64,
    pub(crate) tail: Tail,
}

impl Transfer {
    /// Decides from the heads whether a response can move. Call it before its body.
    ///
    /// In HTTP/2, a request can have a body that no field announces. The caller must not call this if the request had
    /// one.
    pub fn of(
        method: &Method,
        request: &HeaderMap,
        status: StatusCode,
        response: &HeaderMap,
        conditions: &TransferConditions,
    ) -> Result<Self, Stays> {
        check_request(method, request)?;
        let part = part(request, status, response)?;
        check_response(response)?;
        let validators = Validators::read(response);
        if conditions.equality == Equality::Proven {
            validators.prove()?;
        }
        let total = part.total.ok_or(Stays::NoLength)?;
        let tail = Tail::new(conditions.kept(), part.range.end - part.range.start);
        let compared_min = conditions.compared_min();
        Ok(Self { validators, compared_min, total, position: part.range.start, range: part.range, tail })
    }

    /// Counts `piece`, which came from the first origin, as given to the client.
    ///
    /// If a piece is too long, none of it counts, and the caller must not give any of it to the client.
    pub fn delivered(&mut self, piece: &[u8]) -> Result<(), TooLong> {
        let len = piece.len() as u64;
        if len > self.remaining() {
            return Err(TooLong);
        }
        self.tail.push(piece);
        self.position += len;
        Ok(())
    }

    /// The number of bytes that the client still has to get.
    pub fn remaining(&self) -> u64 {
        self.range.end - self.position
    }

    /// The offset of the next byte for the client.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The length of the whole representation, in bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The range of the representation that the response announced.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Whether the client has all bytes of [`Transfer::range`].
    pub fn is_complete(&self) -> bool {
        self.remaining() == 0
    }

    /// Whether there are stored bytes that another origin can repeat.
    pub(crate) fn is_comparable(&self) -> bool {
        self.tail.len() > 0
    }

    /// Compares `piece` with the bytes that the client got from offset `start` on, as far as they are still stored.
    /// Returns the number of compared bytes, or the index of the first byte that differs.
    pub(crate) fn compare(&self, start: u64, piece: &[u8]) -> Result<usize, usize> {
        let kept_from = self.position - self.tail.len() as u64;
        let forgotten = usize::try_from(kept_from.saturating_sub(start)).unwrap_or(usize::MAX).min(piece.len());
        let kept_index = usize::try_from(start.saturating_sub(kept_from)).unwrap_or(usize::MAX);
        match self.tail.difference(kept_index, &piece[forgotten..]) {
            Some(index) => Err(forgotten + index),
            None => Ok(piece.len() - forgotten),
        }
    }
}

fn check_request(method: &Method, request: &HeaderMap) -> Result<(), Stays> {
    if method != Method::GET {
        return Err(Stays::Method);
    }
    let is_empty = request.get(CONTENT_LENGTH).is_none_or(|length| length == "0");
    if is_empty && !request.contains_key(TRANSFER_ENCODING) { Ok(()) } else { Err(Stays::RequestBody) }
}

/// The range of the response, and the total length.
fn part(request: &HeaderMap, status: StatusCode, response: &HeaderMap) -> Result<ContentRange, Stays> {
    let (length, range) = (fields::content_length(response)?, fields::content_range(response)?);
    if response.contains_key(TRANSFER_ENCODING) {
        // A message with both fields is an attempt of request smuggling (RFC 9112, section 6.3).
        return Err(if length.is_some() { Stays::Malformed } else { Stays::NoLength });
    }
    match (status, range) {
        (StatusCode::OK, None) => {
            let length = length.ok_or(Stays::NoLength)?;
            Ok(ContentRange { range: 0..length, total: Some(length) })
        }
        (StatusCode::PARTIAL_CONTENT, _) if fields::is_multipart(response) => Err(Stays::Multipart),
        (StatusCode::PARTIAL_CONTENT, Some(part)) => {
            check_part(request, &part, length.ok_or(Stays::NoLength)?)?;
            Ok(part)
        }
        (StatusCode::OK | StatusCode::PARTIAL_CONTENT, _) => Err(Stays::Malformed),
        _ => Err(Stays::Status),
    }
}

/// Checks that the request asked for a part, and that the part has the announced length.
fn check_part(request: &HeaderMap, part: &ContentRange, length: u64) -> Result<(), Stays> {
    if !request.contains_key(RANGE) || part.range.end - part.range.start != length {
        return Err(Stays::Malformed);
    }
    if fields::elements(request, &RANGE).count() > 1 { Err(Stays::Multipart) } else { Ok(()) }
}

fn check_response(response: &HeaderMap) -> Result<(), Stays> {
    let mut ranges = fields::elements(response, &ACCEPT_RANGES).peekable();
    if fields::is_coded(response) {
        Err(Stays::Coded)
    } else if ranges.peek().is_some() && !ranges.any(|unit| unit.eq_ignore_ascii_case("bytes")) {
        Err(Stays::NoRanges)
    } else if fields::elements(response, &VARY).any(|element| element == "*") {
        Err(Stays::Varies)
    } else if response.contains_key(TRAILER) {
        Err(Stays::Trailers)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
