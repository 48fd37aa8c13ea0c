//! Converts a captured frame into a TCP segment.
//!
//! ```text
//!   Frame -> link: Ethernet, VLAN tags, MPLS, PPP, PPPoE, HDLC, FDDI, 802.11, NFLOG, cooked, loopback, none
//!              |  an IP packet
//!            ip: version 4 or 6, options, extension headers, fragments   <-+
//!              |  protocol and payload                                     |
//!              +--> tcp: the segment                                       |
//!              +--> reassembly: the segment, from fragments without its    |
//!              |                whole header                               |
//!              +--> tunnel: IP in IP, GRE, ERSPAN, VXLAN, Geneve ----------+  at most TUNNELS_MAX times
//!              +--> Other: the reason why there is no segment
//! ```
//!
//! The parsers are our own, although `etherparse` is well maintained: it has no tunnels, and takes lengths from the
//! frame instead of the headers' lengths on the wire. The headers are few, small and fixed.
//!
//! Lengths are those on the wire, even if the capture ends earlier. Missing octets are unknown, not wrong: a prefix of
//! a frame yields either [`Other::Truncated`] or the result of the whole frame, with less data.

mod ip;
mod link;
mod octets;
mod reassembly;
mod tcp;
mod tunnel;
mod wireless;

use crate::{Frame, Segment};
use octets::Octets;
pub use reassembly::Reassembly;
pub use tunnel::GENEVE_PORT;

/// The most tunnels around a segment, one in the other.
pub const TUNNELS_MAX: usize = 4;

/// Parses frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoder {
    /// The UDP ports of VXLAN. Default: 4789 (RFC 7348, section 8.1). The Linux kernel's own default is 8472.
    pub vxlan_ports: Vec<u16>,
    /// Whether the checksums of IPv4 and TCP have to be valid. Captures of a host's own packets have wrong ones if its
    /// network card computes them after the capture.
    pub verify_checksums: bool,
}

/// The result for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded<'a> {
    Segment(Segment<'a>),
    /// The beginning of a segment, in the first fragment of its IP packet. `len` counts this fragment only. The length
    /// of the other fragments is unknown, and those are not read. From a [`Reassembly`], `len` counts the fragments up
    /// to this one.
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
    /// [`Reassembly`] may have the segment.
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
    /// A checksum is wrong, and [`Decoder::verify_checksums`] is set.
    #[error("a wrong checksum")]
    Checksum,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { vxlan_ports: vec![4789], verify_checksums: false }
    }
}

impl Decoder {
    /// Parses `frame`. It does not allocate.
    pub fn decode<'a>(&self, frame: &Frame<'a>) -> Decoded<'a> {
        self.read(frame).unwrap_or_else(Decoded::Other)
    }

    fn read<'a>(&self, frame: &Frame<'a>) -> Result<Decoded<'a>, Other> {
        self.read_datagram(frame, |datagram| tcp::read(frame.time, datagram, self.verify_checksums))
    }

    /// Calls `read` with the innermost packet, which carries TCP, or with a fragment of it. It takes a closure, because
    /// returning a packet would copy it for each frame.
    #[inline]
    fn read_datagram<'a, T, R>(&self, frame: &Frame<'a>, read: R) -> Result<T, Other>
    where
        R: FnOnce(&ip::Datagram<'a>) -> Result<T, Other>,
    {
        let mut packet = link::packet(frame.link, Octets::of(frame))?;
        for _ in 0..=TUNNELS_MAX {
            let datagram = ip::read(packet, self.verify_checksums)?;
            if datagram.protocol == ip::TCP {
                return read(&datagram);
            }
            if datagram.is_later_fragment() {
                return Err(Other::Fragment);
            }
            packet = tunnel::packet(&datagram, &self.vxlan_ports)?;
        }
        Err(Other::TooDeep)
    }
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

#[cfg(test)]
mod tests;
