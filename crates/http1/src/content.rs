//! The content of messages: how it is framed (RFC 9112, sections 6 and 7), decoded and encoded.

mod chunked;
mod decoder;
mod encoder;
mod trailers;

pub(crate) use chunked::Control;
pub(crate) use decoder::Stage;
pub use decoder::{Decoded, Decoder};
pub use encoder::{Encoder, Framed};
pub(crate) use trailers::may_be_trailer;

use crate::fault::Misuse;

/// How the content of a message is framed (RFC 9112, section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// There is none: rules 1 and 7.
    None,
    /// Its length in bytes is known: rule 6.
    Length(u64),
    /// In chunks: rule 4.
    Chunked,
    /// It lasts until the server closes the connection: rule 8. Only in responses.
    UntilClose,
}

impl Content {
    /// Whether there is certainly not a byte of content.
    pub fn is_empty(self) -> bool {
        matches!(self, Self::None | Self::Length(0))
    }
}

/// The content that a caller is going to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentSize {
    /// There is none.
    None,
    /// Its length in bytes is known.
    Known(u64),
    /// The `Content-Length` in the head is its length. Without one, the length is unknown.
    Unknown,
}

impl ContentSize {
    pub(crate) fn known(self) -> Option<u64> {
        match self {
            Self::None => Some(0),
            Self::Known(length) => Some(length),
            Self::Unknown => None,
        }
    }

    /// The length of the content, with the `Content-Length` that is given in the head.
    pub(crate) fn settle(self, given: Option<u64>) -> Result<Option<u64>, Misuse> {
        match (self.known(), given) {
            (Some(known), Some(given)) if known != given => Err(Misuse::LengthDiffers),
            (known, given) => Ok(known.or(given)),
        }
    }
}
