//! Which responses can move, and how far one has come.

use std::ops::Range;

use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, RANGE, TRAILER, TRANSFER_ENCODING, VARY};
use http::{HeaderMap, Method, StatusCode};

use crate::continuation::Continuation;
use crate::fields::{self, ContentRange};
use crate::stays::Stays;
use crate::tail::Tail;
use crate::validators::Validators;

/// What has to be shown before a transfer goes on elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How many bytes before the seam the new origin repeats, so that they can be compared with what the client was
    /// given.
    pub overlap: usize,
    /// How origins are known to hold the same bytes.
    pub equality: Equality,
}

/// How origins are known to hold the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Equality {
    /// Each response shows it, by its validators or digest.
    Proven,
    /// The operator says so. Validators may differ or be missing; a digest or a length that differs still forbids.
    Declared {
        /// So many bytes at least are repeated and compared, whatever the overlap is.
        compared_min: usize,
    },
}

impl Default for Terms {
    fn default() -> Self {
        Self { overlap: 4096, equality: Equality::Proven }
    }
}

impl Terms {
    fn kept(&self) -> usize {
        self.overlap.max(self.compared_min().unwrap_or(0))
    }

    /// At least one byte, for something has to speak for the operator's word.
    fn compared_min(&self) -> Option<usize> {
        match self.equality {
            Equality::Proven => None,
            Equality::Declared { compared_min } => Some(compared_min.max(1)),
        }
    }
}

/// The origin's fault: it sends more than it promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more bytes came than were promised")]
pub struct TooLong;

/// A response that can move, and how far it has come.
///
/// Positions are offsets in the whole representation, in bytes, also where the client asked for a part.
#[derive(Debug)]
pub struct Transfer {
    validators: Validators,
    compared_min: Option<usize>,
    total: u64,
    range: Range<u64>,
    position: u64,
    tail: Tail,
}

impl Transfer {
    /// Looks at the response to a request, before its body.
    ///
    /// A request of HTTP/2 may have a body of which its fields say nothing; who has seen one does not ask.
    pub fn of(
        method: &Method,
        request: &HeaderMap,
        status: StatusCode,
        response: &HeaderMap,
        terms: &Terms,
    ) -> Result<Self, Stays> {
        check_request(method, request)?;
        let part = part(request, status, response)?;
        check_response(response)?;
        let validators = Validators::read(response);
        if terms.equality == Equality::Proven {
            validators.prove()?;
        }
        let total = part.total.ok_or(Stays::NoLength)?;
        let tail = Tail::new(terms.kept(), part.range.end - part.range.start);
        let compared_min = terms.compared_min();
        Ok(Self { validators, compared_min, total, position: part.range.start, range: part.range, tail })
    }

    /// The client is given `piece`, which came from the first origin.
    ///
    /// Nothing of a piece that is too long has been taken, and nothing of it may be given to the client.
    pub fn delivered(&mut self, piece: &[u8]) -> Result<(), TooLong> {
        let len = piece.len() as u64;
        if len > self.remaining() {
            return Err(TooLong);
        }
        self.tail.push(piece);
        self.position += len;
        Ok(())
    }

    /// How many bytes the client is still to be given.
    pub fn remaining(&self) -> u64 {
        self.range.end - self.position
    }

    /// The offset of the next byte for the client.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// How long the whole representation is.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Which bytes of the representation the client was promised.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Whether the client has all that it was promised.
    pub fn is_complete(&self) -> bool {
        self.remaining() == 0
    }

    /// Whether bytes are known that another origin can repeat.
    pub(crate) fn is_comparable(&self) -> bool {
        self.tail.len() > 0
    }

    /// What to ask of another origin so that it goes on at `at`, which is the position or a later offset, that the
    /// present origin is expected to have reached when the other one answers. An earlier `at` means the position.
    ///
    /// Refused as [`Stays::NothingToCompare`] or [`Stays::Complete`].
    pub fn continuation(&self, at: u64) -> Result<Continuation, Stays> {
        let at = at.max(self.position);
        if at >= self.range.end {
            return Err(Stays::Complete);
        }
        let before = usize::try_from(at - self.range.start).unwrap_or(usize::MAX);
        let compared_min = self.compared_min.filter(|min| *min <= before);
        if compared_min.is_none() {
            self.validators.prove().map_err(|weak| self.compared_min.map_or(weak, |_| Stays::NothingToCompare))?;
        }
        let first = at - before.min(self.tail.len_max()) as u64;
        Ok(Continuation::new(self.validators.clone(), first..self.range.end, at, self.total, compared_min))
    }

    /// What to ask of another origin to learn whether the transfer could go on there: the first byte of the client's
    /// range, on the same conditions. Its answer is read as that to a continuation, and its body ignored.
    ///
    /// Refused as [`Stays::Complete`] where the range is empty.
    pub fn probe(&self) -> Result<Continuation, Stays> {
        let Range { start, end } = self.range;
        if start == end {
            return Err(Stays::Complete);
        }
        Ok(Continuation::new(self.validators.clone(), start..start + 1, start, self.total, self.compared_min))
    }

    /// The index of the first byte of `piece` that is not what the client was given from the offset `start` on. What is
    /// not kept any more is not compared; returns how many bytes were.
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

/// Which bytes of how many the response has.
fn part(request: &HeaderMap, status: StatusCode, response: &HeaderMap) -> Result<ContentRange, Stays> {
    let (length, range) = (fields::content_length(response)?, fields::content_range(response)?);
    if response.contains_key(TRANSFER_ENCODING) {
        // Both at once is how messages are smuggled (RFC 9112, section 6.3).
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

/// A part has to be one that was asked for, and as long as it says.
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
