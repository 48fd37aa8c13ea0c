//! What another origin is asked, and whether its answer is the rest of what the client has begun to get.

use std::ops::Range;

use http::header::{ACCEPT_ENCODING, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::fields;
use crate::seam::Seam;
use crate::validators::Validators;

/// The rest of a transfer, as one range.
#[derive(Debug, Clone)]
pub struct Continuation {
    validators: Validators,
    range: Range<u64>,
    at: u64,
    total: u64,
    /// Where only the operator's word says that the bytes are the same: how many have to be compared.
    compared_min: Option<usize>,
}

impl Continuation {
    pub(crate) fn new(
        validators: Validators,
        range: Range<u64>,
        at: u64,
        total: u64,
        compared_min: Option<usize>,
    ) -> Self {
        Self { validators, range, at, total, compared_min }
    }

    /// Which bytes are asked for: those that are repeated, and all that are left. Never empty.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Makes of the client's own request head the one that asks for the rest.
    ///
    /// The range is closed, for some origins refuse open ones. What the client said about ranges, conditions and
    /// codings goes; the rest stays, for the answer may depend on it.
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

    /// Reads the head of the answer. Nothing of the body may be used but through the [`Seam`].
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

/// Why an origin's answer is not the rest. Nothing of it has reached the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// 200: the origin gives no ranges, or holds another version.
    #[error("the origin would send the whole")]
    Whole,
    /// 416: its version is shorter, or it refuses to be asked so.
    #[error("the origin cannot satisfy the range")]
    NotSatisfiable,
    /// It wants to be asked elsewhere.
    #[error("the origin redirects")]
    Redirect,
    /// 401, 403 or 407.
    #[error("the origin does not allow it")]
    Unauthorized,
    /// No such resource there: 404 or 410.
    #[error("the origin does not have it")]
    NotFound,
    /// Any other status that is not 206.
    #[error("the origin answers {0}")]
    Status(StatusCode),
    /// Not the range that was asked for, or none that reads as one.
    #[error("it is not the range that was asked for")]
    Range,
    /// The length of the whole differs, or is not told.
    #[error("the length of the whole is not the same")]
    Total,
    /// It holds another version.
    #[error("the validator is not the same")]
    Validator,
    /// It does not say which version it holds.
    #[error("there is no validator to compare")]
    MissingValidator,
    /// It holds other bytes.
    #[error("the digest is not the same")]
    Digest,
    /// `Content-Length` is not that of the range.
    #[error("the length is not that of the range")]
    Length,
    /// `multipart/byteranges`, although one range was asked for.
    #[error("the origin sends several parts")]
    Multipart,
    /// Compressed, although it was asked not to be.
    #[error("the content is coded")]
    Coded,
}

impl Refusal {
    /// The reason as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::NotSatisfiable => "not_satisfiable",
            Self::Redirect => "redirect",
            Self::Unauthorized => "unauthorized",
            Self::NotFound => "not_found",
            Self::Status(_) => "status",
            Self::Range => "range",
            Self::Total => "total",
            Self::Validator => "validator",
            Self::MissingValidator => "missing_validator",
            Self::Digest => "digest",
            Self::Length => "length",
            Self::Multipart => "multipart",
            Self::Coded => "coded",
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
