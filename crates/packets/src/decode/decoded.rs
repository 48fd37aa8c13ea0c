//! The result for a frame.

use crate::Segment;

/// The result for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded<'a> {
    Segment(Segment<'a>),
    /// The beginning of a segment, in the first fragment of its IP packet. `len` counts this fragment only. The length
    /// of the other fragments is unknown, and those are not read. From a [`Reassembly`](super::Reassembly), `len`
    /// counts the fragments up to this one.
    FirstFragment(Segment<'a>),
    /// No segment, or none that can be parsed.
    Other(Other),
}

/// Why a frame has no segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Other {
    /// The frame's link type is not one of [`LinkType::ALL`](crate::LinkType::ALL).
    #[error("an unsupported link type")]
    LinkType,
    /// Neither IPv4 nor IPv6, such as ARP.
    #[error("not IP")]
    NotIp,
    /// IP, but neither TCP nor a supported tunnel.
    #[error("not TCP")]
    NotTcp,
    /// A fragment behind the first one, which has no header, or a first one without the whole TCP header. A
    /// [`Reassembly`](super::Reassembly) may have the segment.
    #[error("a fragment without the whole header")]
    Fragment,
    /// The capture ends within a header.
    #[error("a header that the capture cuts off")]
    Truncated,
    /// A header contradicts itself or the length of the packet around it.
    #[error("a malformed header")]
    Malformed,
    /// More nested tunnels, VLAN tags, labels or extension headers than networks use.
    #[error("too many nested headers")]
    TooDeep,
    /// A checksum is wrong, and [`Decoder::verify_checksums`](super::Decoder::verify_checksums) is set.
    #[error("a wrong checksum")]
    Checksum,
}

impl Other {
    /// All reasons, in the order of their declaration.
    pub const ALL: [Self; 8] = [
        Self::LinkType,
        Self::NotIp,
        Self::NotTcp,
        Self::Fragment,
        Self::Truncated,
        Self::Malformed,
        Self::TooDeep,
        Self::Checksum,
    ];
}
