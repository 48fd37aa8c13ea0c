//! Loopback addresses that nobody else is likely to draw.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports of a loopback address drawn at random, of 127.128.0.0/9; clients of tests take the lower half.
///
/// A port is not looked for by binding it: a child process that another thread starts in that moment holds the socket, too,
/// until it runs its program, and whoever binds the port meanwhile is refused. Nor is there a need to: outgoing connections
/// take 127.0.0.1, and sockets of all addresses take ports that are higher.
#[derive(Debug)]
pub struct LoopbackAddresses {
    ip: Ipv4Addr,
    port: AtomicU16,
}

/// Far above what needs privileges, and far below where the system begins to give out ports itself.
const FIRST_PORT: u16 = 10_000;

impl LoopbackAddresses {
    /// Of an address drawn now.
    pub fn draw() -> Self {
        let [a, b, c, ..] = RandomState::new().hash_one(()).to_le_bytes();
        let ip = Ipv4Addr::new(127, a | 0x80, b, c.clamp(1, 254));
        Self { ip, port: AtomicU16::new(FIRST_PORT) }
    }

    /// The next port.
    pub fn take(&self) -> SocketAddr {
        (self.ip, self.port.fetch_add(1, Ordering::Relaxed)).into()
    }
}
