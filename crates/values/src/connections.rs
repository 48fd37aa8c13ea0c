//! Connections: ids, the epochs of their moves, handshake results, status, and reasons.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::nodes::NodeName;

/// The id of a client's TCP connection, given by the dispatcher that accepted it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConnectionId {
    /// A random number, drawn when the dispatcher's process starts, so that ids never repeat.
    pub boot: u64,
    /// Counts up from 1 in that process.
    pub number: u64,
}

/// One change of the dispatcher of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DispatcherChange {
    pub connection: ConnectionId,
    /// Counts up with each attempt to change the dispatcher of the connection.
    pub number: u32,
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.boot, self.number)
    }
}

impl FromStr for ConnectionId {
    type Err = InvalidConnectionId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (boot, number) = text.split_once('-').ok_or(InvalidConnectionId)?;
        let id = Self {
            boot: u64::from_str_radix(boot, 16).map_err(|_| InvalidConnectionId)?,
            number: number.parse().map_err(|_| InvalidConnectionId)?,
        };
        // Each id has one form: no signs, and no other number of digits.
        if id.to_string() == text { Ok(id) } else { Err(InvalidConnectionId) }
    }
}

/// A string is not a [`ConnectionId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a connection id is 16 hexadecimal digits, '-' and a number")]
pub struct InvalidConnectionId;

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The number of an attempt to move a connection. The agent that did the handshake has tenure 0. Each attempt has the
/// next number, and the dispatcher decides each exactly once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Epoch(pub u32);

impl Epoch {
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The result of a TLS handshake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsInfo {
    /// The TLS version: 0x0303 or 0x0304.
    pub version: u16,
    /// The cipher suite (IANA).
    pub suite: u16,
    /// The ALPN protocol (`h2`, `http/1.1`), at most 255 bytes. Empty: none was negotiated.
    #[serde(with = "serde_bytes")]
    pub alpn: Vec<u8>,
    /// The SNI host name, at most 255 bytes. `None`: the client sent none.
    pub server_name: Option<String>,
    /// Whether the handshake resumed a session.
    pub resumed: bool,
}

impl TlsInfo {
    /// Whether the connection has HTTP/2 (RFC 9113, section 3.2).
    pub fn is_http2(&self) -> bool {
        self.alpn == b"h2"
    }
}

/// A node's status of a connection, for display and tools. It is never sent on a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionStatus {
    pub id: ConnectionId,
    pub client: SocketAddr,
    /// The result of the handshake. `None`: it is not done.
    pub tls: Option<TlsInfo>,
    /// The agent that did the handshake.
    pub handshake_node: NodeName,
    /// The agent that owns the connection.
    pub node: NodeName,
    /// The number of moves.
    pub moves: u32,
    /// The reason that it stays, although it was asked to leave.
    pub stays: Option<StayReason>,
}

/// The reason that a connection which was asked to leave stays for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StayReason {
    /// A request is in progress. The connection moves after the response.
    InRequest,
    /// HTTP/2 connections cannot move: the state of their streams is not exported yet. The connection ends after its
    /// streams, if that was requested.
    Http2,
    /// There is no link to the target.
    NoLink,
    /// More bytes were read ahead, or wait to be sent, than may be shipped.
    TooMuchInHand,
    /// It is a tunnel to an origin, and the origin's end cannot move. On a link, a message of its own reports it.
    Tunnel,
}

impl StayReason {
    /// The reason as a metric label and log field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InRequest => "in_request",
            Self::Http2 => "http2",
            Self::NoLink => "no_link",
            Self::TooMuchInHand => "too_much_in_hand",
            Self::Tunnel => "tunnel",
        }
    }
}

/// The reason that an attempt was aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AbortReason {
    /// No leg to the target could be connected.
    NoLeg,
    /// The target did not report in time that it holds the connection.
    Timeout,
    /// The target is at its limit of connections or of held ones.
    Full,
    /// The target could not import the state.
    BadState,
    /// More unopened bytes than may be shipped.
    RestTooLong,
    /// The target holds other data than the source shipped.
    Mismatch,
    /// The hold of the target expired before the decision.
    Expired,
    /// The source had no link to the target.
    NoLink,
}

impl AbortReason {
    /// The reason as a metric label and log field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoLeg => "no_leg",
            Self::Timeout => "timeout",
            Self::Full => "full",
            Self::BadState => "bad_state",
            Self::RestTooLong => "rest_too_long",
            Self::Mismatch => "mismatch",
            Self::Expired => "expired",
            Self::NoLink => "no_link",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_one_name_each() {
        let id = ConnectionId { boot: 0xab, number: 12 };
        assert_eq!(id.to_string(), "00000000000000ab-12");
        assert_eq!("00000000000000ab-12".parse(), Ok(id));
        for text in ["", "-", "ab-12", "00000000000000AB-12", "00000000000000ab-+12", "00000000000000ab-012", "x-1"] {
            assert_eq!(text.parse::<ConnectionId>(), Err(InvalidConnectionId), "{text:?}");
        }
    }
}
