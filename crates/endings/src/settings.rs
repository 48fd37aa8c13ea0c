//! What is settable.

use std::net::SocketAddr;
use std::time::Duration;

use crate::ending::Side;

/// What connections are held to. All times are times of packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long after its last request a connection ends as `TIMEOUT`. (The paper: 10 minutes.)
    pub timeout: Duration,
    /// How long after the last SYN a connection that is not established is given up.
    pub handshake_timeout: Duration,
    /// How long a connection may be silent with one side closed.
    pub half_closed_timeout: Duration,
    /// How long it may be silent with nothing pending; then it counts as open, and is forgotten.
    pub silence_max: Duration,
    /// How long after its end a connection is reported: what comes out of order meanwhile is still heard.
    pub settle: Duration,
    /// The same for a reset that its receiver may not have accepted.
    pub settle_doubtful: Duration,
    /// How long what still comes for a reported connection begins no new one.
    pub linger: Duration,
    /// How long after an answer a connection is idle.
    pub idle_after: Duration,
    /// How long a SYN may be without an answer before that is said.
    pub knock_patience: Duration,
    /// How long a request may be without the first octet of an answer before that is said.
    pub request_patience: Duration,
    /// The most connections that are held. Established ones of which both sides were seen are never given up for others.
    pub connections_max: u32,
    /// The most of them whose handshake is not complete; beyond, the oldest of those are given up.
    pub half_open_max: u32,
    /// The most of them that are over already.
    pub over_max: u32,
    /// Which ends are servers, where no SYN shows it.
    pub servers: Servers,
    /// Makes it unforeseeable where connections stand in the table; drawn by the caller.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_mins(10),
            handshake_timeout: Duration::from_secs(75),
            half_closed_timeout: Duration::from_secs(10),
            silence_max: Duration::from_hours(1),
            settle: Duration::from_millis(250),
            settle_doubtful: Duration::from_secs(10),
            linger: Duration::from_mins(1),
            idle_after: Duration::from_secs(1),
            knock_patience: Duration::from_secs(3),
            request_patience: Duration::from_secs(10),
            connections_max: 1 << 20,
            half_open_max: 1 << 16,
            over_max: 1 << 13,
            servers: Servers::default(),
            seed: 0,
        }
    }
}

/// Known servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Servers {
    /// Ports that servers listen on, at any address.
    pub ports: Vec<u16>,
    /// Servers.
    pub addresses: Vec<SocketAddr>,
}

impl Servers {
    /// Whether this is one of them, or none is known.
    pub fn is_told(&self, server: SocketAddr) -> bool {
        self.ports.is_empty() && self.addresses.is_empty() || self.knows(server)
    }

    /// Which side sent a segment that shows it by no SYN: the only known server of the two; else what its data show; else the
    /// lower port is the server's; else who was sent to.
    pub(crate) fn sender(&self, source: SocketAddr, destination: SocketAddr, speaker: Option<Side>) -> Side {
        let by_port = if source.port() < destination.port() { Side::Server } else { Side::Client };
        match (self.knows(source), self.knows(destination)) {
            (true, false) => Side::Server,
            (false, true) => Side::Client,
            _ => speaker.unwrap_or(by_port),
        }
    }

    fn knows(&self, end: SocketAddr) -> bool {
        self.ports.contains(&end.port())
            || self.addresses.iter().any(|known| (known.ip().to_canonical(), known.port()) == (end.ip(), end.port()))
    }
}
