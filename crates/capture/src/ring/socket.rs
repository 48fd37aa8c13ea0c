//! Options of a capture's socket that libpcap does not set. (packet(7).)
//!
//! The setters that nix's macros generate here call setsockopt(2) in an `unsafe` block of nix. The kernel reads as many
//! octets as the type has, and fails if they are too few.

use std::io;
use std::os::fd::AsFd;

// The macros name `libc`, and so does the code that they generate.
use nix::libc;
use nix::sys::socket::sockopt::{GetUsize, SetBool, SetUsize};
use nix::sys::socket::{getsockopt, setsockopt};

/// `PACKET_FANOUT`: the group of sockets that share the frames, and the method.
#[derive(Debug, Clone, Copy)]
struct Fanout;
/// `PACKET_IGNORE_OUTGOING`.
#[derive(Debug, Clone, Copy)]
struct IgnoreOutgoing;

const PACKET_FANOUT: libc::c_int = 18;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
/// Distributes by a hash of addresses and ports that is the same for both directions. It is also the field's default.
const PACKET_FANOUT_HASH: usize = 0;
/// The kernel chooses an unused group.
const PACKET_FANOUT_FLAG_UNIQUEID: usize = 0x2000;
/// The effect of [`ignore_outgoing`] for a group.
const PACKET_FANOUT_FLAG_IGNORE_OUTGOING: usize = 0x4000;

nix::setsockopt_impl!(Fanout, libc::SOL_PACKET, PACKET_FANOUT, usize, SetUsize);
nix::getsockopt_impl!(Fanout, libc::SOL_PACKET, PACKET_FANOUT, usize, GetUsize);
nix::setsockopt_impl!(IgnoreOutgoing, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, bool, SetBool);

/// A group of sockets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group(usize);

/// Joins a group, or begins one. All sockets of a group must agree on whether they get outgoing frames.
pub(super) fn share(socket: &impl AsFd, group: Option<Group>, incoming_only: bool) -> io::Result<Group> {
    let (id, unique) = group.map_or((0, PACKET_FANOUT_FLAG_UNIQUEID), |Group(id)| (id, 0));
    let incoming_only = if incoming_only { PACKET_FANOUT_FLAG_IGNORE_OUTGOING } else { 0 };
    setsockopt(socket, Fanout, &(id | ((PACKET_FANOUT_HASH | unique | incoming_only) << 16)))?;
    Ok(Group(getsockopt(socket, Fanout)? & 0xffff))
}

/// Excludes outgoing frames.
pub(super) fn ignore_outgoing(socket: &impl AsFd) -> io::Result<()> {
    Ok(setsockopt(socket, IgnoreOutgoing, &true)?)
}
