//! Why an origin's response cannot continue a transfer.

use http::StatusCode;

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
