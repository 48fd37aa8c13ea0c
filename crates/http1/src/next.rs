//! What follows an exchange.

/// How a connection continues after a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It is between two requests.
    Idle,
    /// The caller closes it. It may have to read on for a while, so that the client gets the response (RFC 9112,
    /// section 9.6).
    Close,
    /// The protocol changes. The rest of the input belongs to the other protocol.
    Tunnel,
}
