//! TLS settings of an agent, by the address that the client connected to.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use watari_handshake::ServerConfig;

#[derive(Debug, Clone)]
pub struct Tls {
    /// For clients of all addresses that no listener matches.
    pub default: ServerConfig,
    /// For clients of these addresses.
    pub listeners: Vec<(Listener, ServerConfig)>,
}

/// A dispatcher's address for clients, as its prefaces report it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    /// `None`: any address.
    pub ip: Option<IpAddr>,
    pub port: u16,
}

impl Tls {
    /// The settings for clients that connected to `server`: those for its address and port, otherwise those for its
    /// port.
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
