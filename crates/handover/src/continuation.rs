//! The request to another origin, and the check that its response is the rest of the client's response.

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
    /// The number of bytes to compare. Set only if the operator declares origins equal, and nothing else proves it.
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

/// Why an origin's response is not the rest. No byte of it has reached the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// 200: the origin supports no ranges, or has another version.
    #[error("the origin sends the whole content instead of the range")]
    Whole,
    /// 416: the origin's version is shorter, or it refuses this kind of range.
    #[error("the origin cannot satisfy the range")]
    NotSatisfiable,
    /// 3xx.
    #[error("the origin redirects")]
    Redirect,
    /// 401, 403 or 407.
    #[error("the origin denies access")]
    Unauthorized,
    /// 404 or 410.
    #[error("the origin does not have the resource")]
    NotFound,
    /// Any other status than 206.
    #[error("the origin answers {0}")]
    Status(StatusCode),
    /// `Content-Range` is missing or malformed, or is not the requested range.
    #[error("Content-Range is not the requested range")]
    Range,
    /// The total length differs, or is missing.
    #[error("the total length differs or is missing")]
    Total,
    /// The origin has another version.
    #[error("the validator differs")]
    Validator,
    /// The response has no validator that can be compared.
    #[error("the response has no validator to compare")]
    MissingValidator,
    /// The origin has other bytes.
    #[error("the digest differs")]
    Digest,
    /// `Content-Length` is not that of the range.
    #[error("Content-Length is not the length of the range")]
    Length,
    /// `multipart/byteranges`, although one range was asked for.
    #[error("the origin sends multipart/byteranges")]
    Multipart,
    /// The content is compressed, although the request excluded that.
    #[error("the content has a Content-Encoding")]
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
