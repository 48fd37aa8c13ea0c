//! Waits until written bytes have arrived.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

/// The longest wait for the other side to read from its full buffer.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// The interval of the checks.
const PAUSE: Duration = Duration::from_millis(1);

/// Waits until all written bytes are in the other side's buffer, at most for [`WAIT_MAX`]. It reads the system's list
/// of connections, because the `ioctl` for this is not available without `unsafe`.
pub(super) async fn delivered(socket: &TcpStream) {
    let deadline = Instant::now() + WAIT_MAX;
    while Instant::now() < deadline && is_unacknowledged(socket).unwrap_or(false) {
        sleep(PAUSE).await;
    }
}

/// From the system's list of connections (proc(5)); `None` if this one is not in it.
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

/// The address as in that list: its bytes as a number in the byte order of the host.
fn notation(address: SocketAddr) -> Option<String> {
    match address {
        SocketAddr::V4(address) => {
            Some(format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port()))
        }
        SocketAddr::V6(_) => None,
    }
}
