//! What the TCP connections of clients and legs are set to.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// What the kernel may buffer of one connection in one direction, in bytes. It bounds what a source may have to ship.
const BUFFER_LEN: usize = 256 * 1024;

/// Sets the options: no Nagle delay, keepalive, bounded buffers, and a congestion control that needs no pacing qdisc.
pub fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_send_buffer_size(BUFFER_LEN)?;
    socket.set_recv_buffer_size(BUFFER_LEN)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(Duration::from_mins(1)))?;
    // A kernel without cubic keeps its default.
    let _ = socket.set_tcp_congestion(b"cubic");
    Ok(())
}

/// Makes closing a reset, also when it is the kernel that closes because this process died.
///
/// A client's connection, and the leg of one that is served, are set to this from the start: whatever happens to the
/// process, a stream that was cut never looks complete, and whoever reads it knows at once.
pub fn reset_on_close(stream: &TcpStream) {
    // Fails only on a socket that is gone already; so do the following.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// Makes closing a FIN behind everything that was written, also when it is the kernel that closes.
pub fn fin_on_close(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(None);
}

/// Ends a stream that is complete: what was written arrives, and then a FIN.
pub fn finish(stream: &TcpStream) {
    fin_on_close(stream);
    let _ = SockRef::from(stream).shutdown(std::net::Shutdown::Write);
}
