//! What is known of one request, and of one connection, once it has ended.
//!
//! All times are counted from the start of the run, so that they can be compared, merged between machines, and put into series.

mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::ending::Ending;
pub(crate) use wire::{BadSamples, SAMPLES_MAX, WireSamples, WireSeen};

/// One request and what became of it.
#[derive(Clone, Debug)]
pub struct RequestSample {
    /// Which class of URIs it belongs to: an index into the names the tally was made with.
    pub class: usize,
    /// The family of the addresses it went over.
    pub family: Family,
    /// The handshake of the connection that carried it, if that was TLS and got so far.
    pub handshake: Option<HandshakeKind>,
    /// When it was due. In a closed loop this is when it began; in an open loop it may be earlier, and latency counts from here, so
    /// that a server that stalls cannot hide it (coordinated omission).
    pub due: Duration,
    /// When its first step began: connecting, or writing on a connection that was there.
    pub started: Duration,
    /// When it was written out.
    pub written: Option<Duration>,
    /// When the first byte of the response came.
    pub first_byte: Option<Duration>,
    /// When it ended: with the response's last byte, or how else it did.
    pub ended: Duration,
    /// The response's status, if one came.
    pub status: Option<u16>,
    /// Whether the response came whole, is not a MISMATCH, and has a status that is none of success
    /// ([`OkStatus`](crate::ok_status::OkStatus)). Never with another ending than NORMAL.
    pub error_status: bool,
    /// Bytes of the response's body.
    pub body_bytes: u64,
    /// How it ended.
    pub ending: Ending,
}

impl RequestSample {
    /// From when it was due to its end.
    pub fn latency(&self) -> Duration {
        self.ended.saturating_sub(self.due)
    }
}

/// One connection and what became of it.
#[derive(Clone, Debug)]
pub struct ConnectionSample {
    /// The class of its first request.
    pub class: usize,
    /// Family of its addresses.
    pub family: Family,
    /// This side's address, once it has one.
    pub local: Option<SocketAddr>,
    /// The server's address.
    pub remote: SocketAddr,
    /// What its TLS handshake agreed on, if it was TLS and got so far.
    pub tls: Option<Arc<TlsSeen>>,
    /// When `connect` was called.
    pub opened: Duration,
    /// When TCP was connected.
    pub connected: Option<Duration>,
    /// When the TLS handshake was done.
    pub secured: Option<Duration>,
    /// When its first request was written out.
    pub written: Option<Duration>,
    /// When the first byte of its first response came.
    pub first_byte: Option<Duration>,
    /// When the last byte of its last response came.
    pub last_byte: Option<Duration>,
    /// When it was closed by this side.
    pub closed: Duration,
    /// How many requests it carried.
    pub requests: u64,
    /// Bytes read from it (of HTTP, not of TLS).
    pub bytes_read: u64,
    /// Bytes written to it (of HTTP, not of TLS).
    pub bytes_written: u64,
    /// How it ended.
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

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// Of an address; an IPv4 address in IPv6's clothes is IPv4.
    pub fn of(address: SocketAddr) -> Self {
        if address.ip().to_canonical().is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }
}

/// Whether a handshake was full or abbreviated, as the server's messages on the wire said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandshakeKind {
    /// With certificate and key exchange.
    Full,
    /// A session was resumed.
    Resumed,
}

/// What a TLS handshake agreed on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TlsSeen {
    /// Full or resumed.
    pub kind: HandshakeKind,
    /// `TLSv1.2`, `TLSv1.3`.
    pub version: &'static str,
    /// The cipher suite, by its IANA name.
    pub suite: String,
    /// The group of the key exchange, by its IANA name; none where a session of TLS 1.2 was resumed.
    pub group: Option<String>,
    /// The server's key: `RSA-2048`, `ECDSA P-256`; in a resumed handshake that of the session's certificate.
    pub key: Option<String>,
    /// The protocol agreed on by ALPN.
    pub alpn: Option<String>,
}
