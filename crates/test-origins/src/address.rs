//! Loopback addresses that other processes are unlikely to draw.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports of a random loopback address in 127.128.0.0/9, from a random first port on. A server that has closed its
/// connections keeps its port for a minute, and tests start many. Clients of tests use the lower half of 127.0.0.0/8.
///
/// Ports are not found by binding them. If another thread starts a child process at that moment, the child holds the
/// socket until it runs its program, and meanwhile the port cannot be bound. Nor is it necessary: outgoing connections
/// use 127.0.0.1, and sockets of all addresses use higher ports.
#[derive(Debug)]
pub struct LoopbackAddresses {
    ip: Ipv4Addr,
    port: AtomicU16,
}

/// Far above the privileged ports.
const PORT_MIN: u16 = 10_000;
/// Number of possible first ports. The later ones stay below the system's ephemeral ports.
const FIRST_PORTS: u16 = 20_000;

impl LoopbackAddresses {
    /// Draws an address.
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

/// An address of 127.128.0.0/9, for a server that binds port 0 of it. There are eight million, so the address of a
/// server that has ended is not soon another server's.
pub(crate) fn random_loopback_ip() -> Ipv4Addr {
    let [a, b, c, ..] = RandomState::new().hash_one(()).to_le_bytes();
    Ipv4Addr::new(127, a | 0x80, b, c.clamp(1, 254))
}
