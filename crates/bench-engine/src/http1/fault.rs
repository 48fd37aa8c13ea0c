//! Errors of a server in HTTP/1.1.

use watari_http1::{ContentFault, ResponseFault, Truncated};

/// The bytes are not an HTTP/1.1 response, or violate its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolFault {
    #[error("the server's response is refused: {0}")]
    Head(#[from] ResponseFault),
    #[error("the content of the server's response is refused: {0}")]
    Content(#[from] ContentFault),
    #[error(transparent)]
    Truncated(#[from] Truncated),
}
