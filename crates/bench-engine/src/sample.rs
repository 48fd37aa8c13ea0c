//! The record of one request, and of one connection, once it has ended.
//!
//! All times are counted from the start of the run. They can be compared, merged between machines, and put into series.
//!
//! Imports: `ending`.

pub mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::ending::Ending;

/// The record of one request.
#[derive(Clone, Debug)]
pub struct RequestSample {
    /// Its class of URIs: an index into the class names of the tally.
    pub class: usize,
    /// The family of the addresses that it used.
    pub family: Family,
    /// The handshake of the connection that carried it. `None` without TLS, or if the handshake did not complete.
    pub handshake: Option<HandshakeKind>,
    /// When the request was due. In a closed loop this is when it began. In an open loop it may be earlier. Latency
    /// counts from here, so that a server that stalls cannot hide it (coordinated omission).
    pub due: Duration,
    /// When its first step began: connecting, or writing on an existing connection.
    pub started: Duration,
    /// When the request was written completely.
    pub written: Option<Duration>,
    /// When the first byte of the response arrived.
    pub first_byte: Option<Duration>,
    /// When the request ended: with the last byte of the response, a failure or a timeout.
    pub ended: Duration,
    /// The status of the response, if one arrived.
    pub status: Option<u16>,
    /// The response is complete, is not a MISMATCH, and its status is not a success
    /// ([`OkStatus`](crate::ok_status::OkStatus)). Only with the ending NORMAL.
    pub error_status: bool,
    /// Bytes of the body of the response.
    pub body_bytes: u64,
    pub ending: Ending,
}

impl RequestSample {
    /// The time from `due` to `ended`.
    pub fn latency(&self) -> Duration {
        self.ended.saturating_sub(self.due)
    }
}

/// The record of one connection.
#[derive(Clone, Debug)]
pub struct ConnectionSample {
    /// The class of its first request.
    pub class: usize,
    pub family: Family,
    /// The local address. `None` before it is assigned.
    pub local: Option<SocketAddr>,
    /// The server's address.
    pub remote: SocketAddr,
    /// The result of the TLS handshake. `None` without TLS, or if the handshake did not complete.
    pub tls: Option<Arc<TlsSeen>>,
    /// When `connect` was called.
    pub opened: Duration,
    /// When the TCP connection was established.
    pub connected: Option<Duration>,
    /// When the TLS handshake completed.
    pub secured: Option<Duration>,
    /// When its first request was written completely.
    pub written: Option<Duration>,
    /// When the first byte of its first response arrived.
    pub first_byte: Option<Duration>,
    /// When the last byte of its last response arrived.
    pub last_byte: Option<Duration>,
    /// When this side closed it.
    pub closed: Duration,
    /// Number of requests that it carried.
    pub requests: u64,
    /// Bytes of HTTP, not of TLS.
    pub bytes_read: u64,
    /// Bytes of HTTP, not of TLS.
    pub bytes_written: u64,
    pub ending: Ending,
}

impl ConnectionSample {
    /// The paper's Tr: from `connect` to the (first) request's `write`.
    pub fn tr(&self) -> Option<Duration> {
        Some(self.written?.saturating_sub(self.opened))
    }

    /// The paper's Tc: from `connect` to `close`.
    pub fn tc(&self) -> Duration {
        self.closed.saturating_sub(self.opened)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    Ipv4,
    Ipv6,
}

impl Family {
    /// The family of `address`. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn of(address: SocketAddr) -> Self {
        if address.ip().to_canonical().is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }
}

/// Whether a handshake was full or abbreviated, according to the server's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandshakeKind {
    /// With certificate and key exchange.
    Full,
    /// The server resumed a session.
    Resumed,
}

/// The result of a TLS handshake.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TlsSeen {
    pub kind: HandshakeKind,
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'static str,
    /// The IANA name of the cipher suite.
    pub suite: String,
    /// The IANA name of the key exchange group. `None` if a TLS 1.2 session was resumed.
    pub group: Option<String>,
    /// The server's key: `RSA-2048`, `ECDSA P-256`. In a resumed handshake, the key of the session's certificate.
    pub key: Option<String>,
    /// The protocol that ALPN selected.
    pub alpn: Option<String>,
}
