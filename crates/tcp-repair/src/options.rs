//! Socket options that neither rustix nor socket2 has. (tcp(7), socket(7), `include/uapi/linux/tcp.h`.)
//!
//! The functions that nix's macros generate here call getsockopt(2) and setsockopt(2) in `unsafe` blocks of nix. All
//! types are integers or arrays of octets: each bit pattern is a value. The kernel reads and writes as many octets as
//! the type has, and fails if they are too few.

use std::io;
use std::os::fd::AsFd;

// The macros name `libc`, and so does the code that they generate.
use nix::libc;
use nix::sys::socket::sockopt::{GetStruct, SetStruct};
use nix::sys::socket::{GetSockOpt, SetSockOpt};
use socket2::{SockFilter, SockRef};

/// With a window probe. -1 would be without (`TCP_REPAIR_OFF_NO_WP`).
const REPAIR_OFF: i32 = 0;
const REPAIR_ON: i32 = 1;
/// Not in `libc`. (`include/uapi/asm-generic/socket.h`)
const SO_BUF_LOCK: libc::c_int = 72;
/// The octets of `struct tcp_info` up to `tcpi_notsent_bytes`, which Linux 4.6 added.
const INFO_LEN: usize = 148;

macro_rules! option {
    ($name:ident, get $value:ty, $level:expr, $option:path) => {
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $name;
        nix::getsockopt_impl!($name, $level, $option, $value, GetStruct<$value>);
    };
    ($name:ident, set $value:ty, $level:expr, $option:path) => {
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $name;
        nix::setsockopt_impl!($name, $level, $option, $value, SetStruct<'_, $value>);
    };
    ($name:ident, $value:ty, $level:expr, $option:path) => {
        option!($name, get $value, $level, $option);
        nix::setsockopt_impl!($name, $level, $option, $value, SetStruct<'_, $value>);
    };
}

option!(Repair, set i32, libc::IPPROTO_TCP, libc::TCP_REPAIR);
option!(RepairQueue, set i32, libc::IPPROTO_TCP, libc::TCP_REPAIR_QUEUE);
// Reads the sequence number after the last byte of the queue, and sets that of the first byte.
option!(QueueSequence, u32, libc::IPPROTO_TCP, libc::TCP_QUEUE_SEQ);
// One `struct tcp_repair_opt`: code and value in native order.
option!(RepairOption, set [u8; 8], libc::IPPROTO_TCP, libc::TCP_REPAIR_OPTIONS);
// `struct tcp_repair_window`: five numbers.
option!(RepairWindow, [u32; 5], libc::IPPROTO_TCP, libc::TCP_REPAIR_WINDOW);
// The value of the next timestamp. Its lowest bit: the unit is a microsecond, not a millisecond.
option!(Timestamp, u32, libc::IPPROTO_TCP, libc::TCP_TIMESTAMP);
// Reads the limit that the peer has announced, in repair mode, and sets the limit of the user.
option!(SegmentLen, u32, libc::IPPROTO_TCP, libc::TCP_MAXSEG);
option!(WindowClamp, u32, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP);
option!(TcpInfo, get [u8; INFO_LEN], libc::IPPROTO_TCP, libc::TCP_INFO);
// Which buffers keep the size that the user has set: bit 0 sends, bit 1 receives.
option!(BufferLocks, u32, libc::SOL_SOCKET, SO_BUF_LOCK);
option!(SendBufferForce, set u32, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE);
option!(ReceiveBufferForce, set u32, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE);

pub(crate) fn get<O: GetSockOpt>(socket: &impl AsFd, option: O) -> io::Result<O::Val> {
    Ok(nix::sys::socket::getsockopt(socket, option)?)
}

#[expect(clippy::needless_pass_by_value, reason = "a value is a few octets")]
pub(crate) fn set<O: SetSockOpt<Val: Sized>>(socket: &impl AsFd, option: O, value: O::Val) -> io::Result<()> {
    Ok(nix::sys::socket::setsockopt(socket, option, &value)?)
}

/// A queue in repair mode.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Queue {
    None = 0,
    Read = 1,
    Write = 2,
}

/// Selects the queue that recv(2), send(2) and [`QueueSequence`] mean.
///
/// While [`Queue::Write`] is selected, the kernel does not send new data: it counts data as sent when it would send it
/// (`tcp_write_xmit`). With another queue, timers and the completion of earlier packets send from the write queue, in
/// repair mode, too.
pub(crate) fn select(socket: &impl AsFd, queue: Queue) -> io::Result<()> {
    set(socket, RepairQueue, queue as i32)
}

/// Drops all packets for the socket that arrive from now on, and begins repair mode. The order is for this: a packet
/// changes the queues in repair mode, too.
pub(crate) fn begin_repair(socket: &impl AsFd) -> io::Result<()> {
    const RETURN: u16 = 0x06;
    let drop_all = SockFilter::new(RETURN, 0, 0, 0);
    SockRef::from(socket).attach_filter(&[drop_all])?;
    set(socket, Repair, REPAIR_ON)
}

/// Receives packets again, and ends repair mode. The kernel sends a window probe then: the peer answers it at once with
/// what it has received.
pub(crate) fn end_repair(socket: &impl AsFd) -> io::Result<()> {
    // ENOENT: there is no filter.
    let _ = SockRef::from(socket).detach_filter();
    set(socket, Repair, REPAIR_OFF)?;
    // The end of repair mode clears it (`do_tcp_setsockopt`). Without it, no listener could bind the port again.
    SockRef::from(socket).set_reuse_address(true)
}

/// What this crate needs of `struct tcp_info`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Info {
    pub(crate) state: u8,
    pub(crate) timestamps: bool,
    pub(crate) sack: bool,
    /// Of the peer's window and of ours.
    pub(crate) window_scales: Option<(u8, u8)>,
    /// The longest segment to the peer, in bytes.
    pub(crate) segment_len: u32,
    pub(crate) segments_received: u32,
    /// Bytes at the end of the write queue that were never sent.
    pub(crate) unsent_len: u32,
}

pub(crate) fn info(socket: &impl AsFd) -> io::Result<Info> {
    const TIMESTAMPS: u8 = 1;
    const SACK: u8 = 2;
    const WINDOW_SCALES: u8 = 4;
    let info = get(socket, TcpInfo)?;
    let number = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    let (options, scales) = (info[5], info[6]);
    // A bit field: the first of both has the low bits on little-endian machines.
    let halves = (scales & 15, scales >> 4);
    let scales = if cfg!(target_endian = "little") { halves } else { (halves.1, halves.0) };
    Ok(Info {
        state: info[0],
        timestamps: options & TIMESTAMPS != 0,
        sack: options & SACK != 0,
        window_scales: (options & WINDOW_SCALES != 0).then_some(scales),
        segment_len: number(16),
        segments_received: number(140),
        unsent_len: number(144),
    })
}
