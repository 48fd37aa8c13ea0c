//! Why a transfer stays where it is.

use crate::fields::Malformed;

/// Why a response stays with its origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Stays {
    /// Only GET can be asked again for a part.
    #[error("the method is not GET")]
    Method,
    /// The request has a body, which is gone.
    #[error("the request has a body")]
    RequestBody,
    /// Neither 200 nor 206.
    #[error("the status is neither 200 nor 206")]
    Status,
    /// It is not known beforehand how long the representation is.
    #[error("the length is not known")]
    NoLength,
    /// The body is compressed, maybe on the way: two origins need not do that alike.
    #[error("the content is coded")]
    Coded,
    /// The client asked for several ranges.
    #[error("several ranges were asked for")]
    Multipart,
    /// The origin says that it gives no ranges of bytes.
    #[error("the origin gives no ranges")]
    NoRanges,
    /// The response depends on more than the request (`Vary: *`).
    #[error("the response varies with what is not in the request")]
    Varies,
    /// Trailers are announced, which may speak of the message as it would have been.
    #[error("the response has trailers")]
    Trailers,
    /// Nothing tells one version from another.
    #[error("there is no validator")]
    NoValidator,
    /// The validators do not promise equal bytes.
    #[error("the validator is weak")]
    WeakValidator,
    /// The origin's fault: lengths and ranges contradict each other.
    #[error("lengths or ranges are malformed or contradict each other")]
    Malformed,
    /// Origins are declared equal, but too little was delivered yet for a comparison.
    #[error("too little was delivered to compare")]
    NothingToCompare,
    /// Nothing is left to be asked for.
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
