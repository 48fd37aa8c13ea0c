//! A [`State`] becomes a live socket.

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::{SendFlags, send};
use socket2::{Domain, SockRef, Socket, Type};
use thiserror::Error;

use crate::options::{
    BufferLocks, Queue, QueueSequence, ReceiveBufferForce, RepairOption, RepairWindow, SegmentLen, SendBufferForce,
    Timestamp, WindowClamp, begin_repair, end_repair, info, select, set,
};
use crate::state::{Buffers, Fields, State};

/// The longest piece that the kernel takes at once for the read queue: it allocates it in one piece
/// (`tcp_send_rcvq`).
const PIECE_LEN_MAX: usize = 64 * 1024;

/// The most segments on their way before the kernel has an acknowledgment on a new connection (`TCP_INIT_CWND`).
const INITIAL_WINDOW_SEGMENTS: usize = 10;

/// Limits of a segment that setsockopt(2) accepts, in bytes (`TCP_MIN_MSS`, `MAX_TCP_WINDOW`).
const SEGMENT_LENS: (u32, u32) = (88, 32767);

/// A connection on this machine that stands still until its address is here.
///
/// It sends nothing, and the kernel drops packets for it. A socket that is closed in this state disappears without a
/// FIN or RST, so dropping it leaves the connection to its machine before.
pub struct Restored {
    socket: Socket,
    /// A segment that is sent again when the connection goes on. It may be empty.
    resent: Vec<u8>,
    /// Bytes that were never sent.
    unsent: Vec<u8>,
    buffers: Buffers,
}

/// A connection that goes on.
#[derive(Debug)]
#[must_use]
pub struct Live {
    /// Does not block.
    pub stream: TcpStream,
    /// Bytes that the kernel did not take because its send buffer is smaller than that of the machine before. They come
    /// before whatever the owner writes. Mostly empty.
    pub waiting: Vec<u8>,
}

/// Why a connection was not restored. It still exists on the machine where it is frozen.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RestoreError {
    #[error("TCP_REPAIR needs CAP_NET_ADMIN in the user namespace of the network")]
    NotPermitted,
    #[error("a connection with the same addresses is on this machine")]
    Exists,
    #[error("there is no route to the peer: {0}")]
    NoRoute(io::Error),
    #[error("the {0} buffer is too small: raise {1} to its value on the other machine")]
    BufferTooSmall(&'static str, &'static str),
    #[error("the kernel refuses the connection ({0}): {1}")]
    System(&'static str, io::Error),
}

impl State {
    /// Makes a socket of the connection, which stands still until [`Restored::release`].
    ///
    /// The address need not be on this machine yet, and the port may have a listener. The connection of the state must
    /// be frozen elsewhere, and must not go on there afterwards.
    pub fn restore(&self) -> Result<Restored, RestoreError> {
        let Self(fields) = self;
        let socket = Socket::new(Domain::for_address(fields.local), Type::STREAM.nonblocking().cloexec(), None)
            .map_err(system("socket"))?;
        begin_repair(&socket).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => RestoreError::NotPermitted,
            _ => RestoreError::System("TCP_REPAIR", error),
        })?;
        set_buffers(&socket, fields)?;
        connect(&socket, fields)?;
        set_options(&socket, fields).map_err(system("TCP_REPAIR_OPTIONS"))?;
        refill(&socket, Queue::Read, &fields.read.bytes)?;
        // After the read queue, whose end limits its values, and before the write queue, whose segments it shapes.
        set_window(&socket, fields).map_err(system("TCP_REPAIR_WINDOW"))?;
        let (sent, unsent) = fields.write.bytes.split_at(fields.write.bytes.len() - fields.unsent_len as usize);
        let (on_its_way, resent) = sent.split_at(sent.len() - resent_len(&socket, fields).map_err(system("TCP_INFO"))?);
        refill(&socket, Queue::Write, on_its_way)?;
        Ok(Restored { socket, resent: resent.to_vec(), unsent: unsent.to_vec(), buffers: fields.buffers.clone() })
    }
}

impl Restored {
    /// The connection goes on, on this machine. Its address must be here, and packets from it must be able to leave:
    /// the kernel sends a window probe and what is unsent now.
    ///
    /// # Errors
    /// The process has lost `CAP_NET_ADMIN`, or the kernel has no memory. The socket is closed then.
    pub fn release(self) -> io::Result<Live> {
        let Self { socket, resent, unsent, buffers } = self;
        end_repair(&socket)?;
        // Apart from the rest: the kernel may hold back the start of a longer write (`tcp_tso_should_defer`).
        let mut waiting = resent.clone();
        waiting.drain(..write(&socket, &resent)?);
        let taken = if waiting.is_empty() { write(&socket, &unsent)? } else { 0 };
        waiting.extend_from_slice(&unsent[taken..]);
        for (name, len) in [(Buffer::Send, buffers.send_len), (Buffer::Receive, buffers.receive_len)] {
            set_buffer(&socket, name, len)?;
        }
        set(&socket, BufferLocks, buffers.locks.into())?;
        Ok(Live { stream: socket.into(), waiting })
    }
}

/// To set other options before the connection goes on.
impl AsFd for Restored {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl fmt::Debug for Restored {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Restored").field("socket", &self.socket).finish_non_exhaustive()
    }
}

fn system(call: &'static str) -> impl Fn(io::Error) -> RestoreError {
    move |error| RestoreError::System(call, error)
}

/// Makes room for both queues. [`Restored::release`] sets the sizes of before.
fn set_buffers(socket: &Socket, fields: &Fields) -> Result<(), RestoreError> {
    let Fields { read, write, buffers, .. } = fields;
    let room = |len: u32, queue: &[u8]| len.max(u32::try_from(2 * queue.len()).unwrap_or(u32::MAX));
    set_buffer(socket, Buffer::Receive, room(buffers.receive_len, &read.bytes)).map_err(system("SO_RCVBUF"))?;
    set_buffer(socket, Buffer::Send, room(buffers.send_len, &write.bytes)).map_err(system("SO_SNDBUF"))
}

#[derive(Clone, Copy)]
enum Buffer {
    Send,
    Receive,
}

/// Sets the size that getsockopt(2) returns then: the kernel doubles the size that it is given. Beyond
/// `net.core.wmem_max` and `rmem_max` that needs `CAP_NET_ADMIN` in the initial user namespace.
fn set_buffer(socket: &Socket, buffer: Buffer, len: u32) -> io::Result<()> {
    let len = len / 2;
    match buffer {
        Buffer::Send => {
            set(socket, SendBufferForce, len).or_else(|_| SockRef::from(socket).set_send_buffer_size(len as usize))
        }
        Buffer::Receive => {
            set(socket, ReceiveBufferForce, len).or_else(|_| SockRef::from(socket).set_recv_buffer_size(len as usize))
        }
    }
}

/// In repair mode, connecting makes an established connection without a packet. (`tcp_connect`)
fn connect(socket: &Socket, fields: &Fields) -> Result<(), RestoreError> {
    let is_v4 = fields.local.is_ipv4();
    // Bind and find a route though the address may not be here. IP_FREEBIND would do for the first only.
    let set_transparent = |is_so| {
        if is_v4 { socket.set_ip_transparent_v4(is_so) } else { socket.set_ip_transparent_v6(is_so) }
    };
    set_transparent(true).map_err(system("IP_TRANSPARENT"))?;
    socket.bind(&fields.local.into()).map_err(system("bind"))?;
    for (queue, first) in [(Queue::Read, fields.read.first), (Queue::Write, fields.write.first)] {
        select(socket, queue).and_then(|()| set(socket, QueueSequence, first)).map_err(system("TCP_QUEUE_SEQ"))?;
    }
    select(socket, Queue::None).map_err(system("TCP_REPAIR_QUEUE"))?;
    // Connecting computes the length of segments. TCP_REPAIR_OPTIONS changes only its limit, without effect.
    let segment_len = u32::from(fields.segment_len).clamp(SEGMENT_LENS.0, SEGMENT_LENS.1);
    set(socket, SegmentLen, segment_len).map_err(system("TCP_MAXSEG"))?;
    socket.set_tcp_nodelay(true).map_err(system("TCP_NODELAY"))?;
    socket.connect(&fields.remote.into()).map_err(|error| match error.kind() {
        io::ErrorKind::AddrNotAvailable => RestoreError::Exists,
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => RestoreError::NoRoute(error),
        _ => RestoreError::System("connect", error),
    })?;
    set_transparent(false).map_err(system("IP_TRANSPARENT"))
}

/// What both sides have agreed on in their first segments. The numbers are the kinds of TCP options.
fn set_options(socket: &Socket, fields: &Fields) -> io::Result<()> {
    const SEGMENT_LEN: u32 = 2;
    const WINDOW_SCALE: u32 = 3;
    const SACK_PERMITTED: u32 = 4;
    const TIMESTAMPS: u32 = 8;
    let option = |kind: u32, value: u32| {
        let mut both = [0; 8];
        both[..4].copy_from_slice(&kind.to_ne_bytes());
        both[4..].copy_from_slice(&value.to_ne_bytes());
        set(socket, RepairOption, both)
    };
    option(SEGMENT_LEN, fields.segment_len.into())?;
    if let Some((sent, received)) = fields.window_scales {
        option(WINDOW_SCALE, u32::from(sent) | u32::from(received) << 16)?;
    }
    if fields.sack {
        option(SACK_PERMITTED, 0)?;
    }
    if let Some(timestamp) = fields.timestamp {
        option(TIMESTAMPS, 0)?;
        // The kernel has cleared the lowest bit of milliseconds, and the peer drops segments with earlier timestamps
        // than it has seen (RFC 7323, section 5).
        set(socket, Timestamp, timestamp.wrapping_add(2))?;
    }
    Ok(())
}

fn set_window(socket: &Socket, fields: &Fields) -> io::Result<()> {
    let window = &fields.window;
    let repaired = [
        window.sent_changed_at,
        window.sent_len,
        window.sent_len_max,
        window.received_len,
        window.received_announced_at,
    ];
    set(socket, RepairWindow, repaired)?;
    // Otherwise the window would shrink to that of a new connection.
    set(socket, WindowClamp, window.received_clamp.max(1))
}

/// The length of the last segment that was sent, if it shall be sent again.
///
/// The kernel drops acknowledgments of bytes that it has not sent. So it takes what was sent as sent, and a window probe
/// asks the peer what has arrived. But Linux answers such probes only every 500 ms (`tcp_invalid_ratelimit`), and an
/// answer does not show which segments were lost. Data is always answered. So the last segment is sent again if it is
/// certain that the kernel sends it at once. It is a tail loss probe (RFC 8985, section 7) without the wait before it.
fn resent_len(socket: &Socket, fields: &Fields) -> io::Result<usize> {
    let sent_len = fields.write.bytes.len() - fields.unsent_len as usize;
    let segment_len = info(socket)?.segment_len as usize;
    let is_certain = sent_len <= INITIAL_WINDOW_SEGMENTS * segment_len && sent_len <= fields.window.sent_len as usize;
    Ok(if is_certain { sent_len.min(segment_len) } else { 0 })
}

fn refill(socket: &Socket, queue: Queue, bytes: &[u8]) -> Result<(), RestoreError> {
    let (call, name, limit) = match queue {
        Queue::Read => ("send to the read queue", "receive", "net.core.rmem_max"),
        _ => ("send to the write queue", "send", "net.core.wmem_max"),
    };
    select(socket, queue).map_err(system("TCP_REPAIR_QUEUE"))?;
    let taken = write(socket, bytes).map_err(|error| match error.kind() {
        // `tcp_send_rcvq`
        io::ErrorKind::OutOfMemory => RestoreError::BufferTooSmall(name, limit),
        _ => RestoreError::System(call, error),
    })?;
    select(socket, Queue::None).map_err(system("TCP_REPAIR_QUEUE"))?;
    if taken == bytes.len() { Ok(()) } else { Err(RestoreError::BufferTooSmall(name, limit)) }
}

/// Writes as much as the kernel takes without waiting. Returns how much.
fn write(socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
    let mut taken = 0;
    for piece in bytes.chunks(PIECE_LEN_MAX) {
        let mut left = piece;
        while !left.is_empty() {
            match send(socket, left, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).map_err(io::Error::from) {
                Ok(len) => {
                    taken += len;
                    left = &left[len..];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(taken),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(taken)
}
