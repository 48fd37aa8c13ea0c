//! Settings of the monitor.

use std::net::SocketAddr;
use std::time::Duration;

use crate::ending::Side;

/// Timeouts and limits of [`crate::Connections`]. All times are packet times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// A connection ends as `TIMEOUT` this long after its last request. (The paper: 10 minutes.)
    pub timeout: Duration,
    /// A connection that is not established is given up this long after the last SYN.
    pub handshake_timeout: Duration,
    /// The longest silence of a connection that one side has closed.
    pub half_closed_timeout: Duration,
    /// The longest silence with no request pending. Then the connection counts as `OPEN`, and is forgotten.
    pub silence_max: Duration,
    /// A connection is reported this long after its end, so that segments out of order still count.
    pub settle: Duration,
    /// The same as `settle`, after a RST that its receiver may not have accepted.
    pub settle_doubtful: Duration,
    /// How long late segments of a reported connection begin no new one.
    pub linger: Duration,
    /// A connection is idle this long after an answer.
    pub idle_after: Duration,
    /// A SYN is reported overdue after this time without an answer.
    pub connect_overdue: Duration,
    /// A request is reported overdue after this time without the first octet of an answer.
    pub request_overdue: Duration,
    /// The most connections held. Established ones of which both sides were seen are never evicted.
    pub connections_max: u32,
    /// The most connections with an incomplete handshake. Beyond that, the oldest of them are evicted.
    pub half_open_max: u32,
    /// The most entries of connections that are over.
    pub over_max: u32,
    /// The known servers, for connections without a SYN.
    pub servers: Servers,
    /// A random number from the caller. It makes positions in the hash table unpredictable.
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
            connect_overdue: Duration::from_secs(3),
            request_overdue: Duration::from_secs(10),
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
    /// Addresses of servers.
    pub addresses: Vec<SocketAddr>,
}

impl Servers {
    /// Whether this is a known server, or no server is configured.
    pub fn is_told(&self, server: SocketAddr) -> bool {
        self.ports.is_empty() && self.addresses.is_empty() || self.knows(server)
    }

    /// The side that sent a segment without a SYN. The first of these that applies decides: only one of the two is a
    /// known server; the data show it; the lower port is the server's; the receiver is the server.
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
