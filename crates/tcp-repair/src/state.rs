//! The connection as a value.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest queue that moves, in bytes. Limits of the kernel are below, by default: `net.ipv4.tcp_wmem`, and
/// `net.core.wmem_max` for a buffer of a fixed size.
pub const QUEUE_LEN_MAX: usize = 8 << 20;

/// The longest output of [`State::encode`], in bytes.
pub const ENCODED_LEN_MAX: usize = 2 * QUEUE_LEN_MAX + 256;

/// The first byte of an encoded state.
const VERSION: u8 = 1;

/// RFC 7323, section 2.3.
const SCALE_MAX: u8 = 14;
const WINDOW_MAX: u32 = 0xffff << SCALE_MAX;

/// A TCP connection, without the options that its owner sets again: keepalive, timeouts, linger, congestion control.
///
/// It has the unread and the unacknowledged bytes of the connection. It has nothing else that is secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State(pub(crate) Fields);

/// Format 1 on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fields {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) read: Bytes,
    pub(crate) write: Bytes,
    /// How many bytes at the end of `write` were never sent.
    pub(crate) unsent_len: u32,
    /// The longest segment that the peer accepts, in bytes. It is 0 nowhere.
    pub(crate) segment_len: u16,
    /// Shifts of the peer's window and of ours. (RFC 7323, section 2)
    pub(crate) window_scales: Option<(u8, u8)>,
    pub(crate) sack: bool,
    /// The next timestamp, in milliseconds, or in microseconds if it is odd.
    pub(crate) timestamp: Option<u32>,
    pub(crate) window: Window,
    pub(crate) buffers: Buffers,
}

/// The contents of a queue.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bytes {
    /// The sequence number of the first byte.
    pub(crate) first: u32,
    #[serde(with = "serde_bytes")]
    pub(crate) bytes: Vec<u8>,
}

/// `struct tcp_repair_window`, in its order, with `window_clamp` of `struct tcp_sock`. Lengths in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Window {
    /// The sequence number of the segment that last changed the peer's window.
    pub(crate) sent_changed_at: u32,
    pub(crate) sent_len: u32,
    pub(crate) sent_len_max: u32,
    pub(crate) received_len: u32,
    /// The acknowledgment number of the segment that last announced our window.
    pub(crate) received_announced_at: u32,
    pub(crate) received_clamp: u32,
}

/// Sizes as getsockopt(2) returns them: with what the kernel adds for its own use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Buffers {
    pub(crate) send_len: u32,
    pub(crate) receive_len: u32,
    /// `SO_BUF_LOCK`: which of both the kernel does not adapt.
    pub(crate) locks: u8,
}

/// A sequence of bytes is no state of a connection: the sender is at fault.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum DecodeError {
    #[error("the connection has format {0}, this node has {VERSION}: upgrade both nodes to the same version")]
    Version(u8),
    #[error("the connection is cut off or has other bytes behind it")]
    Malformed,
    #[error("the connection is impossible: {0}")]
    Impossible(&'static str),
}

impl State {
    /// The service address and its port.
    pub fn local(&self) -> SocketAddr {
        self.0.local
    }

    /// The address and port of the client.
    pub fn remote(&self) -> SocketAddr {
        self.0.remote
    }

    /// Bytes that were received and not read, at most [`QUEUE_LEN_MAX`].
    pub fn unread(&self) -> &[u8] {
        &self.0.read.bytes
    }

    /// Bytes that were written and not acknowledged, at most [`QUEUE_LEN_MAX`]: those that were sent before, and then
    /// those that were not.
    pub fn unacknowledged(&self) -> &[u8] {
        &self.0.write.bytes
    }

    /// For another machine, in at most [`ENCODED_LEN_MAX`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut encoded = Vec::with_capacity(self.0.read.bytes.len() + self.0.write.bytes.len() + 256);
        encoded.push(VERSION);
        postcard::to_extend(&self.0, encoded).expect("no field has an unknown length")
    }

    /// Reads what [`encode`](Self::encode) has written. All fields are checked. A state that another machine made up
    /// can still describe a connection that does not exist.
    pub fn decode(encoded: &[u8]) -> Result<Self, DecodeError> {
        let (&version, fields) = encoded.split_first().ok_or(DecodeError::Malformed)?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        if encoded.len() > ENCODED_LEN_MAX {
            return Err(DecodeError::Malformed);
        }
        match postcard::take_from_bytes::<Fields>(fields) {
            Ok((fields, [])) => fields.check().map(Self),
            _ => Err(DecodeError::Malformed),
        }
    }
}

impl Fields {
    /// Refuses what no kernel has, and what this crate does not freeze.
    pub(crate) fn check(self) -> Result<Self, DecodeError> {
        let Self { local, remote, read, write, window, buffers, .. } = &self;
        let lens = [window.sent_len, window.sent_len_max, window.received_len, window.received_clamp];
        let impossible = [
            (local.is_ipv4() != remote.is_ipv4(), "the addresses are of two families"),
            ([local, remote].iter().any(|address| !is_plain(address)), "an address is not global unicast"),
            (read.bytes.len().max(write.bytes.len()) > QUEUE_LEN_MAX, "a queue is too long"),
            (self.unsent_len as usize > write.bytes.len(), "more bytes are unsent than queued"),
            (self.segment_len == 0, "segments have no length"),
            (self.window_scales.is_some_and(|(sent, own)| sent.max(own) > SCALE_MAX), "a window scale is too large"),
            (lens.iter().any(|len| *len > WINDOW_MAX), "a window is too large"),
            (window.sent_len > window.sent_len_max, "the peer's window is larger than its maximum"),
            (is_after(window.received_announced_at, read.end()), "a window was announced too late"),
            (
                is_after(window.sent_changed_at, read.end().wrapping_add(window.received_len)),
                "the peer's window was changed outside of ours",
            ),
            (buffers.send_len.max(buffers.receive_len) > i32::MAX as u32, "a buffer is too large"),
            (buffers.locks > 3, "an unknown buffer is locked"),
        ];
        match impossible.iter().find(|(is_so, _)| *is_so) {
            Some((_, why)) => Err(DecodeError::Impossible(why)),
            None => Ok(self),
        }
    }
}

impl Bytes {
    /// The sequence number after the last byte.
    pub(crate) fn end(&self) -> u32 {
        self.first.wrapping_add(self.bytes.len() as u32)
    }
}

/// Prints no contents.
impl std::fmt::Debug for Bytes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} bytes at {}", self.bytes.len(), self.first)
    }
}

/// Whether sequence number `one` comes after `other`. (RFC 9293, section 3.4)
fn is_after(one: u32, other: u32) -> bool {
    other.wrapping_sub(one).cast_signed() < 0
}

/// An address that means the same on another machine. A link-local one belongs to an interface.
fn is_plain(address: &SocketAddr) -> bool {
    let ip = address.ip();
    let is_wrong = ip.is_unspecified()
        || ip.is_multicast()
        || match ip {
            IpAddr::V4(ip) => ip.is_broadcast(),
            IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
        };
    !is_wrong && address.port() != 0
}

#[cfg(test)]
mod tests;
