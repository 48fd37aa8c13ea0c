//! Errors of a server in HTTP/1.1.

/// The bytes are not an HTTP/1.1 response, or violate its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolFault {
    /// Not a status line, or not a header field.
    #[error("the response is not HTTP/1.1")]
    Head,
    /// Longer than 64 KiB, more than 128 fields, or too many interim responses.
    #[error("the head of the response is too long")]
    TooLong,
    /// The server switches to another protocol, but the client did not request that.
    #[error("the server switches to a protocol that was not requested")]
    Upgrade,
    /// Fields contradict each other about the length of the body.
    #[error("the length of the body is ambiguous")]
    Length,
    /// The chunked coding is invalid.
    #[error("a chunk of the body is malformed")]
    Chunk,
    /// The connection ended in the middle of the response.
    #[error("the connection ended in the middle of the response")]
    Truncated,
}
