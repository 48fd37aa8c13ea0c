//! A live socket becomes a [`State`].

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{RecvFlags, connect_unspec, recv};
use socket2::SockRef;
use thiserror::Error;

use crate::options::{
    BufferLocks, Info, Queue, QueueSequence, RepairWindow, SegmentLen, Timestamp, WindowClamp, begin_repair,
    end_repair, get, info, select,
};
use crate::state::{Buffers, Bytes, DecodeError, Fields, QUEUE_LEN_MAX, State, Window};

/// How often the queues are read before [`FreezeError::Changing`]. A packet that is being processed when the filter is
/// set changes them once.
const ATTEMPTS: usize = 4;

/// A connection that stands still: the kernel drops packets for it, and sends nothing new. It still repeats
/// unacknowledged segments, as the peer's kernel does.
///
/// Dropped, it goes on as by [`thaw`](Self::thaw).
pub struct Frozen<S: AsFd> {
    /// `None` only within [`thaw`](Self::thaw) and [`discard`](Self::discard).
    socket: Option<S>,
    state: State,
}

/// A connection that goes on as before, and why.
#[derive(Debug, Error)]
#[error("cannot freeze the connection: {error}")]
pub struct NotFrozen<S> {
    pub socket: S,
    #[source]
    pub error: FreezeError,
}

/// Why a connection was not frozen.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FreezeError {
    /// For example half closed. The owner closes such a connection as usual.
    #[error("it is in state {0}, and only ESTABLISHED ones move")]
    State(TcpState),
    #[error("it has more than {QUEUE_LEN_MAX} bytes in a queue")]
    TooLong,
    /// The client sends urgent data (RFC 6093), whose position cannot be restored.
    #[error("the peer has sent urgent data")]
    Urgent,
    /// For example a link-local address, or a window larger than RFC 7323 allows.
    #[error("{0}")]
    Unsupported(DecodeError),
    /// Another thread uses the socket, or another program removes its filter.
    #[error("it changes while it is read")]
    Changing,
    #[error("TCP_REPAIR needs CAP_NET_ADMIN in the user namespace of the network")]
    NotPermitted,
    #[error("{0}")]
    System(#[from] io::Error),
}

impl<S: AsFd> Frozen<S> {
    /// Freezes a connection and reads its state. Its owner must not read or write until [`thaw`](Self::thaw): a read
    /// fails, and written bytes would be missing in the state.
    ///
    /// # Errors
    /// The connection goes on, with nothing lost.
    pub fn freeze(socket: S) -> Result<Self, NotFrozen<S>> {
        match freeze(&socket) {
            Ok(state) => Ok(Self { socket: Some(socket), state }),
            Err(error) => Err(NotFrozen { socket, error }),
        }
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// The connection goes on here. Nothing is lost: the peer repeats what the kernel has dropped, and the kernel
    /// repeats what it held back.
    ///
    /// # Errors
    /// The process has lost `CAP_NET_ADMIN`. The socket stays frozen, and closing it is silent.
    pub fn thaw(mut self) -> io::Result<S> {
        let socket = self.socket.take().expect("it was neither thawed nor discarded");
        end_repair(&socket)?;
        Ok(socket)
    }

    /// The connection is gone from this machine, without a FIN or RST. Other descriptors of the socket are dead then,
    /// too.
    ///
    /// A packet of the peer that still arrives here finds no socket: the kernel answers with RST, unless the address is
    /// gone or its packets are blocked.
    ///
    /// # Errors
    /// The kernel has no memory for the call. The connection stays frozen until all descriptors are closed, which is
    /// silent as well.
    pub fn discard(mut self) -> io::Result<()> {
        let socket = self.socket.take().expect("it was neither thawed nor discarded");
        // In repair mode this is silent (`tcp_disconnect`), and it does not depend on other descriptors.
        Ok(connect_unspec(&socket)?)
    }
}

impl<S: AsFd> Drop for Frozen<S> {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            let _ = end_repair(socket);
        }
    }
}

impl<S: AsFd> fmt::Debug for Frozen<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Frozen").field(&self.state).finish()
    }
}

fn freeze(socket: &impl AsFd) -> Result<State, FreezeError> {
    check_state(&info(socket)?)?;
    let state = begin_repair(socket).map_err(refusal).and_then(|()| read_until_unchanged(socket));
    if state.is_err() {
        let _ = end_repair(socket);
    }
    state
}

fn refusal(error: io::Error) -> FreezeError {
    if error.kind() == io::ErrorKind::PermissionDenied { FreezeError::NotPermitted } else { error.into() }
}

fn check_state(info: &Info) -> Result<(), FreezeError> {
    match TcpState::from(info.state) {
        TcpState::Established => Ok(()),
        other => Err(FreezeError::State(other)),
    }
}

fn read_until_unchanged(socket: &impl AsFd) -> Result<State, FreezeError> {
    // Urgent data that was read is like other data. EINVAL: there is no urgent data (`tcp_recv_urg`).
    if recv(socket, &mut [0], RecvFlags::OOB | RecvFlags::PEEK | RecvFlags::DONTWAIT) != Err(Errno::INVAL) {
        return Err(FreezeError::Urgent);
    }
    for _ in 0..ATTEMPTS {
        if let Some(state) = read(socket)? {
            return Ok(state);
        }
    }
    Err(FreezeError::Changing)
}

/// `None`: the queues have changed meanwhile. Otherwise, the write queue remains selected.
fn read(socket: &impl AsFd) -> Result<Option<State>, FreezeError> {
    let named = SockRef::from(socket);
    let (Some(local), Some(remote)) = (named.local_addr()?.as_socket(), named.peer_addr()?.as_socket()) else {
        return Err(FreezeError::Unsupported(DecodeError::Impossible("the addresses are not IP addresses")));
    };
    let before = info(socket)?;
    let Some(read) = read_queue(socket)? else { return Ok(None) };
    // From here on, no byte is sent for the first time, so it is certain which bytes the peer may acknowledge.
    select(socket, Queue::Write)?;
    let after = info(socket)?;
    check_state(&after)?;
    let Some(write) = write_queue(socket)? else { return Ok(None) };
    if info(socket)? != after || after.segments_received != before.segments_received {
        return Ok(None);
    }
    // Reading can announce a new window, so this is later.
    let [sent_changed_at, sent_len, sent_len_max, received_len, received_announced_at] = get(socket, RepairWindow)?;
    let window = Window {
        sent_changed_at,
        sent_len,
        sent_len_max,
        received_len,
        received_announced_at,
        received_clamp: get(socket, WindowClamp)?,
    };
    let buffers = Buffers {
        send_len: named.send_buffer_size()? as u32,
        receive_len: named.recv_buffer_size()? as u32,
        locks: get(socket, BufferLocks)? as u8,
    };
    let fields = Fields {
        local: plain(local),
        remote: plain(remote),
        unsent_len: after.unsent_len,
        segment_len: get(socket, SegmentLen)?.min(u32::from(u16::MAX)) as u16,
        window_scales: after.window_scales,
        sack: after.sack,
        timestamp: if after.timestamps { Some(get(socket, Timestamp)?) } else { None },
        read,
        write,
        window,
        buffers,
    };
    fields.check().map(|fields| Some(State(fields))).map_err(FreezeError::Unsupported)
}

fn read_queue(socket: &impl AsFd) -> Result<Option<Bytes>, FreezeError> {
    select(socket, Queue::Read)?;
    let end = get(socket, QueueSequence)?;
    let len = ioctl_fionread(socket).map_err(io::Error::from)?;
    if len > QUEUE_LEN_MAX as u64 {
        return Err(FreezeError::TooLong);
    }
    let mut bytes = vec![0; len as usize];
    // An empty queue would be EAGAIN.
    let peeked = if bytes.is_empty() { 0 } else { peek(socket, &mut bytes)? };
    Ok((peeked == bytes.len()).then(|| Bytes { first: end.wrapping_sub(peeked as u32), bytes }))
}

/// The queue begins with a whole segment, of which the peer may have acknowledged a part. That part is sent again, and
/// the peer drops it.
fn write_queue(socket: &impl AsFd) -> Result<Option<Bytes>, FreezeError> {
    let end = get(socket, QueueSequence)?;
    // The kernel returns the length of the queue, not of what it has copied (`tcp_peek_sndq`).
    let len = peek(socket, &mut [0])?;
    if len > QUEUE_LEN_MAX {
        return Err(FreezeError::TooLong);
    }
    let mut bytes = vec![0; len];
    let peeked = peek(socket, &mut bytes)?;
    Ok((peeked == len).then(|| Bytes { first: end.wrapping_sub(len as u32), bytes }))
}

fn peek(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(recv(socket, buffer, RecvFlags::PEEK | RecvFlags::DONTWAIT)?.1)
}

/// IPv4 on an IPv6 socket becomes IPv4.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// `include/net/tcp_states.h`, with the names of RFC 9293.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpState {
    Established,
    SynSent,
    SynReceived,
    FinWait1,
    FinWait2,
    TimeWait,
    Closed,
    CloseWait,
    LastAck,
    Listen,
    Closing,
    Other(u8),
}

impl From<u8> for TcpState {
    fn from(number: u8) -> Self {
        match number {
            1 => Self::Established,
            2 => Self::SynSent,
            3 => Self::SynReceived,
            4 => Self::FinWait1,
            5 => Self::FinWait2,
            6 => Self::TimeWait,
            7 => Self::Closed,
            8 => Self::CloseWait,
            9 => Self::LastAck,
            10 => Self::Listen,
            11 => Self::Closing,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for TcpState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Established => "ESTABLISHED",
            Self::SynSent => "SYN-SENT",
            Self::SynReceived => "SYN-RECEIVED",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::TimeWait => "TIME-WAIT",
            Self::Closed => "CLOSED",
            Self::CloseWait => "CLOSE-WAIT",
            Self::LastAck => "LAST-ACK",
            Self::Listen => "LISTEN",
            Self::Closing => "CLOSING",
            Self::Other(number) => return write!(formatter, "{number}"),
        })
    }
}
