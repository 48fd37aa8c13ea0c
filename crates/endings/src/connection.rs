//! Events of connections.

use std::net::SocketAddr;
use std::time::Duration;

use watari_packets::Timestamp;

use crate::app::Protocol;
use crate::ending::{Ending, Phase, Side};
use crate::http::Http;
use crate::tls::Tls;
use crate::turn::Exchange;
use crate::zeek::{ConnState, History};

/// An event of [`crate::Connections`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A connection began.
    Opened(Opened),
    /// A request was answered, or can no longer be answered.
    Request(Request),
    /// A SYN or request without an answer is overdue. It may still get one.
    Overdue(Overdue),
    /// A connection ended.
    Closed(Box<Connection>),
    /// A connection was evicted to make room for others.
    Evicted(Evicted),
}

impl Event {
    /// The client, if the event has it, and the server.
    pub const fn ends_mut(&mut self) -> (Option<&mut SocketAddr>, &mut SocketAddr) {
        match self {
            Self::Opened(opened) => (Some(&mut opened.client), &mut opened.server),
            Self::Request(request) => (Some(&mut request.client), &mut request.server),
            Self::Overdue(overdue) => (Some(&mut overdue.client), &mut overdue.server),
            Self::Closed(connection) => (Some(&mut connection.client), &mut connection.server),
            Self::Evicted(evicted) => (None, &mut evicted.server),
        }
    }

    /// The server of the connection.
    pub fn server(&self) -> SocketAddr {
        match self {
            Self::Opened(opened) => opened.server,
            Self::Request(request) => request.server,
            Self::Overdue(overdue) => overdue.server,
            Self::Closed(connection) => connection.server,
            Self::Evicted(evicted) => evicted.server,
        }
    }
}

/// A connection began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    pub client: SocketAddr,
    pub server: SocketAddr,
    /// The time of its first packet.
    pub at: Timestamp,
}

/// A request with its answer, if it got one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub client: SocketAddr,
    pub server: SocketAddr,
    /// Times of the request and its answer.
    pub exchange: Exchange,
    /// Method, status and more, in clear HTTP/1.
    pub http: Option<Http>,
}

/// A SYN or request has waited too long for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overdue {
    pub client: SocketAddr,
    pub server: SocketAddr,
    /// The time of the SYN or request.
    pub since: Timestamp,
    /// When it became overdue.
    pub at: Timestamp,
    /// Whether it is the SYN that has no answer.
    pub is_connect: bool,
}

/// A connection was evicted before its handshake was complete, or before anything of one of its sides was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evicted {
    pub server: SocketAddr,
    /// The time of the eviction.
    pub at: Timestamp,
    /// Whether the server had answered the SYN. An answer that was not captured shows in the segments that follow it.
    pub is_answered: bool,
    /// Whether an [`Event::Overdue`] was reported.
    pub was_overdue: bool,
}

/// A connection that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    pub client: SocketAddr,
    pub server: SocketAddr,
    /// Time of its SYN, or else of its first packet.
    pub start: Timestamp,
    /// When it ended: time of the first FIN or RST, else of its last packet or of the timeout. It counts in this
    /// second.
    pub end: Timestamp,
    /// Time of its last packet, or of the one by which both sides had closed; see [`Connection::duration`].
    pub last: Timestamp,
    pub ending: Ending,
    /// How far the connection was when it ended.
    pub phase: Phase,
    /// The side that closed first; `None` if neither did.
    pub closed_by: Option<Side>,
    /// Whether the client got a whole answer to its last request, as far as the capture shows.
    pub is_delivered: bool,
    /// Whether [`Event::Overdue`] was reported for the request that is pending at the end.
    pub was_overdue: bool,
    /// From the first SYN to the end of the TCP handshake, if both were seen.
    pub handshake: Option<Duration>,
    /// Number of requests: exact in clear HTTP/1, else how often the client sent after the server.
    pub requests: u32,
    /// Octets of data, each counted once.
    pub bytes_to_client: u64,
    /// Octets of data, each counted once.
    pub bytes_to_server: u64,
    /// Octets of both directions that were acknowledged and never seen, as Zeek's `missed_bytes`.
    pub missed_bytes: u64,
    /// Captured packets.
    pub packets_to_client: u32,
    /// Captured packets.
    pub packets_to_server: u32,
    pub protocol: Protocol,
    /// The visible part of a TLS handshake.
    pub tls: Option<Tls>,
    /// Zeek's `conn_state`.
    pub conn_state: ConnState,
    /// Zeek's `history`.
    pub history: History,
}

impl Connection {
    /// From its first packet to its last one, as Zeek's `duration`. Packets behind the FIN or RST of the side that
    /// closed second do not count. So an answer that follows a half-close counts, and the last ACK does not.
    pub fn duration(&self) -> Duration {
        self.last.since(self.start)
    }
}
