//! TCP options for connections of clients and for legs.

use std::io;
use std::net::{Shutdown, TcpListener};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, recv};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// The most bytes that the kernel buffers for one connection in each direction. It bounds what a source may have to
/// ship.
const BUFFER_LEN: usize = 256 * 1024;

/// The bytes between nodes that the kernel has not sent, when it takes further ones.
const UNSENT_LEN_MAX: u32 = 128 * 1024;

/// Keepalive: a silent peer is probed after 1 minute, then every 15 s, and given up after 4 probes. The idle timeout of
/// the connection's owner may be far longer.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_mins(1)).with_interval(Duration::from_secs(15)).with_retries(4);

/// The system stores the timeout in milliseconds, as a signed 32-bit number.
const USER_TIMEOUT_MAX: Duration = Duration::from_hours(24 * 24);

/// Sets the options of a connection: no Nagle delay, keepalive, bounded buffers, and a congestion control that needs no
/// pacing qdisc. Connections accepted from a prepared listener already have these options.
pub fn prepare(connection: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(connection);
    socket.set_send_buffer_size(BUFFER_LEN)?;
    socket.set_recv_buffer_size(BUFFER_LEN)?;
    prepare_without_buffers(connection)
}

fn prepare_without_buffers(connection: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(connection);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    // A kernel without cubic keeps its default.
    let _ = socket.set_tcp_congestion(b"cubic");
    Ok(())
}

/// Sets the options that all connections accepted from `listener` inherit, on Linux: those of [`prepare`], and a reset
/// on close (see [`reset_on_close`]).
///
/// `user_timeout` limits the time in which a peer has to acknowledge sent data, or to open its receive window. Without
/// it, the system gives up a peer that has vanished after a quarter of an hour, but a peer that only stopped reading
/// never. So legs have none: they wait for a client at the other end.
pub fn prepare_listener(listener: &TcpListener, user_timeout: Option<Duration>) -> io::Result<()> {
    prepare(listener)?;
    set_user_timeout(listener, user_timeout)?;
    SockRef::from(listener).set_linger(Some(Duration::ZERO))
}

/// Sets the options of [`prepare_listener`] on the connection of a client that another machine has accepted, except for
/// the buffers, whose sizes come along.
pub fn prepare_restored(connection: &impl AsFd, user_timeout: Duration) -> io::Result<()> {
    prepare_without_buffers(connection)?;
    set_user_timeout(connection, Some(user_timeout))?;
    SockRef::from(connection).set_linger(Some(Duration::ZERO))
}

/// Sets the options of a connection between nodes: no Nagle delay, and few bytes that the kernel has not sent. The others
/// wait where their sender can see them.
pub fn prepare_link(connection: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(connection);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(UNSENT_LEN_MAX)
}

/// Sets only the `user_timeout` of [`prepare_listener`].
pub fn set_user_timeout(listener: &impl AsFd, user_timeout: Option<Duration>) -> io::Result<()> {
    SockRef::from(listener).set_tcp_user_timeout(user_timeout.map(|timeout| timeout.min(USER_TIMEOUT_MAX)))
}

/// Makes closing a reset, also if the kernel closes because this process died.
///
/// Connections of clients, and legs of served connections, have this from the start: if the process dies, a cut stream
/// never looks complete, and its reader notices at once.
pub fn reset_on_close(stream: &TcpStream) {
    // Fails only on a socket that is already gone. The same is true for the functions below.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// Makes closing a FIN after everything written, also if the kernel closes.
pub fn fin_on_close(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(None);
}

/// Reads once without blocking. Returns 0 at the end of the stream.
///
/// A read that does not fill `buffer` has taken everything. So the stream is marked as not readable, and the next
/// attempt waits for an event instead of another system call.
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

/// Ends a complete stream: all that was written arrives, then a FIN.
pub fn finish(stream: &TcpStream) {
    fin_on_close(stream);
    shut_down(stream);
}

/// Sends a FIN after all that was written. Does not change how the stream closes.
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
