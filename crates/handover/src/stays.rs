//! Reasons why a transfer cannot move.

use crate::fields::Malformed;

/// Why a response stays with its origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Stays {
    /// Only GET can be repeated for a part.
    #[error("the method is not GET")]
    Method,
    /// The request has a body, which is not stored.
    #[error("the request has a body")]
    RequestBody,
    #[error("the status is neither 200 nor 206")]
    Status,
    /// The response does not announce its length.
    #[error("the response announces no length")]
    NoLength,
    /// The content is compressed, perhaps by a proxy. Two origins may compress differently.
    #[error("the content has a Content-Encoding")]
    Coded,
    /// The client requested several ranges.
    #[error("the request asks for several ranges")]
    Multipart,
    /// `Accept-Ranges: none`.
    #[error("the origin serves no ranges")]
    NoRanges,
    /// The response depends on more than the request (`Vary: *`).
    #[error("the response depends on more than the request (Vary: *)")]
    Varies,
    /// The response announces trailers. They may refer to the original message.
    #[error("the response has trailers")]
    Trailers,
    /// The response has nothing that identifies its version.
    #[error("the response has no validator")]
    NoValidator,
    /// Weak validators do not guarantee equal bytes.
    #[error("the validator is weak")]
    WeakValidator,
    /// The origin's lengths and ranges contradict each other.
    #[error("lengths or ranges are malformed or contradict each other")]
    Malformed,
    /// Origins are declared equal, but the client has too few bytes for a comparison.
    #[error("the client has too few bytes to compare")]
    NothingToCompare,
    /// No bytes are left to request.
    #[error("the transfer is complete")]
    Complete,
}

impl Stays {
    /// The reason as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::RequestBody => "request_body",
            Self::Status => "status",
            Self::NoLength => "no_length",
            Self::Coded => "coded",
            Self::Multipart => "multipart",
            Self::NoRanges => "no_ranges",
            Self::Varies => "varies",
            Self::Trailers => "trailers",
            Self::NoValidator => "no_validator",
            Self::WeakValidator => "weak_validator",
            Self::Malformed => "malformed",
            Self::NothingToCompare => "nothing_to_compare",
            Self::Complete => "complete",
        }
    }
}

impl From<Malformed> for Stays {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}
