//! Loopback addresses that nobody else is likely to draw.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports of a loopback address drawn at random, of 127.128.0.0/9, from a port on that is drawn, too: a server that has closed its
/// connections keeps its port for a minute, and tests start many. Clients of tests take the lower half of addresses.
///
/// A port is not looked for by binding it: a child process that another thread starts in that moment holds the socket, too,
/// until it runs its program, and whoever binds the port meanwhile is refused. Nor is there a need to: outgoing connections
/// take 127.0.0.1, and sockets of all addresses take ports that are higher.
#[derive(Debug)]
pub struct LoopbackAddresses {
    ip: Ipv4Addr,
    port: AtomicU16,
}

/// Far above what needs privileges.
const PORT_MIN: u16 = 10_000;
/// So many may be the first; the others follow, still below where the system begins to give out ports itself.
const FIRST_PORTS: u16 = 20_000;

impl LoopbackAddresses {
    /// Of an address drawn now.
    pub fn draw() -> Self {
        let [low, high, ..] = RandomState::new().hash_one(()).to_le_bytes();
        let first = PORT_MIN + u16::from_le_bytes([low, high]) % FIRST_PORTS;
        Self { ip: random_loopback_ip(), port: AtomicU16::new(first) }
    }

    /// The next port.
    pub fn take(&self) -> SocketAddr {
        (self.ip, self.port.fetch_add(1, Ordering::Relaxed)).into()
    }
}

/// An address of 127.128.0.0/9, for a server that binds port 0 of it: one of eight million, so that an address whose server has
/// ended is not that of another server a moment later.
pub(crate) fn random_loopback_ip() -> Ipv4Addr {
    let [a, b, c, ..] = RandomState::new().hash_one(()).to_le_bytes();
    Ipv4Addr::new(127, a | 0x80, b, c.clamp(1, 254))
}
