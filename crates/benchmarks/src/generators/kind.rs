//! What generators do.

/// Concurrent connections.
pub(super) const CONNECTIONS: usize = 50;

/// The kind of requests that the generators send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Requests on keep-alive connections.
    KeepAlive,
    /// A connection for each request.
    PerConnection,
    /// A connection and a full TLS handshake for each request.
    Handshake,
    /// HTTP/2, ten streams on each of ten connections.
    Streams,
}
