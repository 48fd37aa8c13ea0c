//! The request to another origin, and the check that its response is the rest of the client's response.

use std::ops::Range;

use http::header::{ACCEPT_ENCODING, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::fields;
use crate::offer::Transfer;
use crate::refusal::Refusal;
use crate::seam::Seam;
use crate::stays::Stays;
use crate::validators::Validators;

/// The rest of a transfer, as one range.
#[derive(Debug, Clone)]
pub struct Continuation {
    validators: Validators,
    range: Range<u64>,
    at: u64,
    total: u64,
    /// The number of bytes to compare. Set only if the operator declares origins equal, and nothing else proves it.
    compared_min: Option<usize>,
}

impl Transfer {
    /// The request that continues the transfer at another origin from offset `at`. That is the position, or a later
    /// offset that the present origin will have reached when the other one responds. An earlier `at` means the
    /// position.
    ///
    /// Fails with [`Stays::NothingToCompare`] or [`Stays::Complete`].
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

    /// The request that shows whether the transfer could continue at another origin: one for the first byte of the
    /// client's range, on the same conditions. Its response is checked like that to a continuation, and its body is
    /// ignored.
    ///
    /// Fails with [`Stays::Complete`] if the range is empty.
    pub fn probe(&self) -> Result<Continuation, Stays> {
        let Range { start, end } = self.range;
        if start == end {
            return Err(Stays::Complete);
        }
        Ok(Continuation::new(self.validators.clone(), start..start + 1, start, self.total, self.compared_min))
    }
}

impl Continuation {
    fn new(validators: Validators, range: Range<u64>, at: u64, total: u64, compared_min: Option<usize>) -> Self {
        Self { validators, range, at, total, compared_min }
    }

    /// The range to request: the repeated bytes and all that follow. Never empty.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Changes the client's own request head into the request for the rest.
    ///
    /// The range is closed, because some origins refuse open ones. The client's fields about ranges, conditions and
    /// codings are removed. The other fields stay, because the response may depend on them.
    pub fn request(&self, headers: &mut HeaderMap) {
        for name in [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, IF_RANGE] {
            headers.remove(name);
        }
        headers.insert(RANGE, self.range_value());
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(validator) = self.validators.if_range().filter(|_| self.compared_min.is_none()) {
            headers.insert(IF_RANGE, validator.clone());
        }
    }

    /// Checks the head of the response. The caller may use its body only through the [`Seam`].
    pub fn accept(&self, status: StatusCode, headers: &HeaderMap) -> Result<Seam, Refusal> {
        check_status(status)?;
        if fields::is_multipart(headers) {
            return Err(Refusal::Multipart);
        }
        if fields::is_coded(headers) {
            return Err(Refusal::Coded);
        }
        self.check_range(headers)?;
        self.validators.compare(&Validators::read(headers), self.compared_min.is_some())?;
        Ok(Seam::new(self.range.start, self.at, self.compared_min.unwrap_or(0)))
    }

    fn range_value(&self) -> HeaderValue {
        let value = format!("bytes={}-{}", self.range.start, self.range.end - 1);
        HeaderValue::try_from(value).expect("digits are a valid field value")
    }

    fn check_range(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let part = fields::content_range(headers).ok().flatten().ok_or(Refusal::Range)?;
        let length = fields::content_length(headers).map_err(|_| Refusal::Length)?;
        if part.total != Some(self.total) {
            Err(Refusal::Total)
        } else if part.range != self.range {
            Err(Refusal::Range)
        } else if length.is_some_and(|length| length != self.range.end - self.range.start) {
            Err(Refusal::Length)
        } else {
            Ok(())
        }
    }
}

fn check_status(status: StatusCode) -> Result<(), Refusal> {
    Err(match status {
        StatusCode::PARTIAL_CONTENT => return Ok(()),
        StatusCode::OK => Refusal::Whole,
        StatusCode::RANGE_NOT_SATISFIABLE => Refusal::NotSatisfiable,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            Refusal::Unauthorized
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => Refusal::NotFound,
        status if status.is_redirection() && status != StatusCode::NOT_MODIFIED => Refusal::Redirect,
        status => Refusal::Status(status),
    })
}

#[cfg(test)]
mod tests;
