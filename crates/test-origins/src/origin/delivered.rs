//! Waiting for what was written to arrive.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

/// How long the other side may leave its buffer full.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often the system is asked.
const PAUSE: Duration = Duration::from_millis(1);

/// Waits until all that was written is in the other side's buffer, or for [`PATIENCE`]. Nothing else tells but an
/// `ioctl`, which nobody offers without `unsafe`.
pub(super) async fn delivered(socket: &TcpStream) {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline && is_unacknowledged(socket).unwrap_or(false) {
        sleep(PAUSE).await;
    }
}

/// From the system's list of connections (proc(5)); `None` where this one is not in it.
fn is_unacknowledged(socket: &TcpStream) -> Option<bool> {
    let (local, peer) = (notation(socket.local_addr().ok()?)?, notation(socket.peer_addr().ok()?)?);
    let list = std::fs::read_to_string("/proc/net/tcp").ok()?;
    list.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_it = words.next() == Some(&local) && words.next() == Some(&peer);
        let queues = words.nth(1).filter(|_| is_it)?;
        Some(!queues.starts_with("00000000:"))
    })
}

/// As the list has it: the bytes of the address as a number of the machine's.
fn notation(address: SocketAddr) -> Option<String> {
    match address {
        SocketAddr::V4(address) => {
            Some(format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port()))
        }
        SocketAddr::V6(_) => None,
    }
}
