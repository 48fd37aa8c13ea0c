//! Why a connection ends.

use crate::Code;

/// The peer has broken a rule in a way that ends the connection (RFC 9113, section 5.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Fault {
    /// The code of the GOAWAY.
    pub code: Code,
    pub what: &'static str,
}

impl Fault {
    pub(crate) const FLOOD: Self =
        Self::new(Code::EnhanceYourCalm, "the peer floods the connection with frames that carry no content");

    /// Whether the peer has sent more frames than its requests and content pay for.
    pub fn is_flood(self) -> bool {
        self == Self::FLOOD
    }

    pub(crate) const fn new(code: Code, what: &'static str) -> Self {
        Self { code, what }
    }

    pub(crate) const fn protocol(what: &'static str) -> Self {
        Self::new(Code::ProtocolError, what)
    }

    pub(crate) const fn frame_len(what: &'static str) -> Self {
        Self::new(Code::FrameSizeError, what)
    }
}
