//! What is said of a connection.

use std::net::SocketAddr;
use std::time::Duration;

use watari_packets::Timestamp;

use crate::app::Protocol;
use crate::ending::{Ending, Phase, Side};
use crate::http::Http;
use crate::tls::Tls;
use crate::turn::Exchange;
use crate::zeek::{ConnState, History};

/// What [`crate::Connections`] has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A connection began.
    Opened(Opened),
    /// A request was answered, or never will be.
    Request(Request),
    /// One that has got no answer yet waits for long. It may still get one.
    Overdue(Overdue),
    /// A connection ended.
    Closed(Box<Connection>),
    /// A connection was given up to hold others.
    Evicted(Evicted),
}

impl Event {
    /// The client, if it says who that is, and the server.
    pub const fn ends_mut(&mut self) -> (Option<&mut SocketAddr>, &mut SocketAddr) {
        match self {
            Self::Opened(opened) => (Some(&mut opened.client), &mut opened.server),
            Self::Request(request) => (Some(&mut request.client), &mut request.server),
            Self::Overdue(overdue) => (Some(&mut overdue.client), &mut overdue.server),
            Self::Closed(connection) => (Some(&mut connection.client), &mut connection.server),
            Self::Evicted(evicted) => (None, &mut evicted.server),
        }
    }

    /// Whose connection it is about.
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
    /// Who opened it.
    pub client: SocketAddr,
    /// Who was asked.
    pub server: SocketAddr,
    /// When its first packet came.
    pub at: Timestamp,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Who asked.
    pub client: SocketAddr,
    /// Who was asked.
    pub server: SocketAddr,
    /// Its times.
    pub exchange: Exchange,
    /// What clear HTTP/1 shows.
    pub http: Option<Http>,
}

/// Something waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overdue {
    /// Who waits.
    pub client: SocketAddr,
    /// For whom.
    pub server: SocketAddr,
    /// Since when.
    pub since: Timestamp,
    /// When that was too long.
    pub at: Timestamp,
    /// Whether it is the SYN that has no answer.
    pub is_knock: bool,
}

/// A connection was given up before its handshake was complete, or before anything of one of its sides was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evicted {
    /// Who was asked.
    pub server: SocketAddr,
    /// When it was given up.
    pub at: Timestamp,
    /// Whether the server had answered its SYN, as the answer shows or what followed it.
    pub is_answered: bool,
    /// Whether it was said to be overdue.
    pub was_overdue: bool,
}

/// A connection that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Who opened it.
    pub client: SocketAddr,
    /// Who was asked.
    pub server: SocketAddr,
    /// When its SYN came, or else its first packet.
    pub start: Timestamp,
    /// When it ended: the first FIN or RST; else when its last packet came, or time ran out. It is counted in this second.
    pub end: Timestamp,
    /// When its last packet came, or the one by which both sides had closed; see [`Connection::duration`].
    pub last: Timestamp,
    /// How it ended.
    pub ending: Ending,
    /// How far it had come.
    pub phase: Phase,
    /// Who ended it.
    pub closed_by: Option<Side>,
    /// Whether the client has got a whole answer to its last request, as far as can be told.
    pub is_delivered: bool,
    /// Whether [`Event::Overdue`] was said of what it waits for still.
    pub was_overdue: bool,
    /// From the first SYN to the end of the handshake, if both were seen.
    pub handshake: Option<Duration>,
    /// Requests: exactly with clear HTTP/1, else as often as the client spoke after the server.
    pub requests: u32,
    /// Octets of data, each counted once.
    pub bytes_to_client: u64,
    /// Octets of data, each counted once.
    pub bytes_to_server: u64,
    /// Of the octets of both directions, how many were acknowledged and never seen, as Zeek's `missed_bytes`.
    pub missed_bytes: u64,
    /// Packets that were seen.
    pub packets_to_client: u32,
    /// Packets that were seen.
    pub packets_to_server: u32,
    /// What it speaks.
    pub protocol: Protocol,
    /// What was seen of a handshake of TLS.
    pub tls: Option<Tls>,
    /// What Zeek says of it.
    pub conn_state: ConnState,
    /// What Zeek says of it.
    pub history: History,
}

impl Connection {
    /// From its first packet to its last one, as Zeek's `duration`: packets behind the FIN or RST of the second side to close do
    /// not count. So an answer that follows a half-close counts, and the last ACK does not.
    pub fn duration(&self) -> Duration {
        self.last.since(self.start)
    }
}
