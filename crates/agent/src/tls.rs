//! What an agent offers in handshakes, by the address that the client connected to.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use watari_handshake::ServerConfig;

/// What an agent offers in handshakes.
#[derive(Debug, Clone)]
pub struct Tls {
    /// For clients of all addresses that are not among the listeners.
    pub default: ServerConfig,
    /// For clients of these.
    pub listeners: Vec<(Listener, ServerConfig)>,
}

/// An address of a dispatcher that clients connect to, as its prefaces name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    /// `None`: any.
    pub ip: Option<IpAddr>,
    /// The port.
    pub port: u16,
}

impl Tls {
    /// What clients are offered that connected to `server`: what is said of its address, else of its port.
    pub(crate) fn of(&self, server: SocketAddr) -> &ServerConfig {
        let (ip, port) = (server.ip().to_canonical(), server.port());
        let exact = [Listener { ip: Some(ip), port }, Listener { ip: None, port }];
        let said = exact.iter().find_map(|wanted| self.listeners.iter().find(|(listener, _)| listener == wanted));
        said.map_or(&self.default, |(_, tls)| tls)
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip {
            Some(ip) => SocketAddr::new(ip, self.port).fmt(f),
            None => write!(f, ":{}", self.port),
        }
    }
}
