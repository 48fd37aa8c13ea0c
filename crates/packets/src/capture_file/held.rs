//! The frame that a reader is at.

use crate::{LinkType, Timestamp};

/// The most captured octets of a frame: as many as libpcap and Wireshark allow.
pub const FRAME_LEN_MAX: usize = 262_144;

/// A frame whose octets are the next ones of the input.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) time: Timestamp,
    pub(super) link: LinkType,
    pub(super) len: u32,
    pub(super) captured: usize,
}
