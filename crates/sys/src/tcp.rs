//! What the TCP connections of clients and legs are set to.

use std::io;
use std::net::{Shutdown, TcpListener};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, recv};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// What the kernel may buffer of one connection in one direction, in bytes. It bounds what a source may have to ship.
const BUFFER_LEN: usize = 256 * 1024;

/// A peer that says nothing is asked after this long whether it is there, so often, and then given up: the idle timeout of whoever
/// owns the connection may be far longer.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_mins(1)).with_interval(Duration::from_secs(15)).with_retries(4);

/// What the system can count in milliseconds.
const USER_TIMEOUT_MAX: Duration = Duration::from_hours(24 * 24);

/// Sets the options of a connection: no Nagle delay, keepalive, bounded buffers, and a congestion control that needs no pacing
/// qdisc. Not for one that was accepted from a listener that is prepared: it has them.
pub fn prepare(connection: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(connection);
    socket.set_tcp_nodelay(true)?;
    socket.set_send_buffer_size(BUFFER_LEN)?;
    socket.set_recv_buffer_size(BUFFER_LEN)?;
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    // A kernel without cubic keeps its default.
    let _ = socket.set_tcp_congestion(b"cubic");
    Ok(())
}

/// Sets once what every connection that `listener` accepts inherits, on Linux: the options of [`prepare`], and that closing is a
/// reset (see [`reset_on_close`]).
///
/// `user_timeout` is how long a peer may leave what it was sent without acknowledging it, or without making room for more. Without,
/// the system takes a quarter of an hour to give up a peer that has vanished, but one that only stopped reading may do so for ever:
/// so it is not for legs, which wait for a client at the other end.
pub fn prepare_listener(listener: &TcpListener, user_timeout: Option<Duration>) -> io::Result<()> {
    prepare(listener)?;
    set_user_timeout(listener, user_timeout)?;
    SockRef::from(listener).set_linger(Some(Duration::ZERO))
}

/// Sets the `user_timeout` of [`prepare_listener`] alone.
pub fn set_user_timeout(listener: &impl AsFd, user_timeout: Option<Duration>) -> io::Result<()> {
    SockRef::from(listener).set_tcp_user_timeout(user_timeout.map(|timeout| timeout.min(USER_TIMEOUT_MAX)))
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

/// Reads once what is there at once; 0 is the end of the stream.
///
/// Less than `buffer` has room for says that there is no more: the next attempt waits for news, and does not have to ask the
/// system in vain.
pub fn try_read(stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    let outcome = stream.try_io(Interest::READABLE, || {
        read = retry_on_intr(|| recv(stream, &mut *buffer, RecvFlags::empty()))?.0;
        if read > 0 && read < buffer.len() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    match outcome {
        Err(error) if read == 0 => Err(error),
        _ => Ok(read),
    }
}

/// Ends a stream that is complete: what was written arrives, and then a FIN.
pub fn finish(stream: &TcpStream) {
    fin_on_close(stream);
    shut_down(stream);
}

/// Sends a FIN behind what was written. Closing stays what it was set to.
pub fn shut_down(stream: &TcpStream) {
    let _ = SockRef::from(stream).shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn options(socket: &impl AsFd) -> String {
        let socket = SockRef::from(socket);
        let buffers = (socket.send_buffer_size().unwrap(), socket.recv_buffer_size().unwrap());
        let keepalive = (
            socket.keepalive().unwrap(),
            socket.tcp_keepalive_time().unwrap(),
            socket.tcp_keepalive_interval().unwrap(),
            socket.tcp_keepalive_retries().unwrap(),
        );
        let ends = (socket.linger().unwrap(), socket.tcp_user_timeout().unwrap());
        let algorithm = socket.tcp_congestion().unwrap();
        format!("{:?}", (socket.tcp_nodelay().unwrap(), buffers, keepalive, ends, algorithm))
    }

    #[test]
    fn what_is_accepted_inherits_everything() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || {
            let near = std::net::TcpStream::connect(address).unwrap();
            (near, listener.accept().unwrap().0)
        };
        let (_other, before) = connect();
        prepare_listener(&listener, Some(Duration::from_secs(77))).unwrap();
        let (_near, accepted) = connect();
        assert_eq!(options(&accepted), options(&listener));
        assert_ne!(options(&accepted), options(&before));
        let socket = SockRef::from(&accepted);
        assert_eq!(socket.linger().unwrap(), Some(Duration::ZERO));
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(77)));
        assert_eq!(socket.recv_buffer_size().unwrap(), 2 * BUFFER_LEN);
    }
}
