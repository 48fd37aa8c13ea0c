//! A captured frame becomes a TCP segment.
//!
//! ```text
//!   Frame -> link: Ethernet, VLAN tags, MPLS, PPP, PPPoE, HDLC, FDDI, 802.11, NFLOG, cooked, loopback, none
//!              |  what an IP header should begin
//!            ip: version 4 or 6, options, extension headers, fragments   <-+
//!              |  protocol and payload                                     |
//!              +--> tcp: the segment                                       |
//!              +--> reassembly: the segment, from fragments without its    |
//!              |                whole header                               |
//!              +--> tunnel: IP in IP, GRE, ERSPAN, VXLAN, Geneve ----------+  at most TUNNELS_MAX times
//!              +--> Other: the reason why there is no segment
//! ```
//!
//! Written by hand, although `etherparse` is well kept: it knows no tunnels, and takes lengths from the frame where these
//! headers say them of the wire. The headers are few, small and fixed.
//!
//! Lengths are those on the wire, wherever the capture ends. What it ends before is unknown, not wrong: with each prefix
//! of a frame comes either [`Other::Truncated`] or what comes of the whole frame, with less data.

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

/// How many tunnels a segment may be in, one in the other.
pub const TUNNELS_MAX: usize = 4;

/// Reads frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoder {
    /// The UDP ports to which VXLAN is sent: 4789 (RFC 7348, section 8.1) if nothing else is said, 8472 where it is the
    /// Linux kernel's own choice.
    pub vxlan_ports: Vec<u16>,
    /// Whether the checksums of IPv4 and TCP have to be right. Captures of a machine's own packets have them wrong, for
    /// its network card computes them behind the capture.
    pub verify_checksums: bool,
}

/// What is in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A segment.
    Segment(Segment<'a>),
    /// The beginning of a segment, in the first fragment of its IP packet: `len` is what this fragment has of it. How
    /// much follows in other fragments is not known, and those are not read. From a [`Reassembly`] `len` is what the
    /// fragments up to this one have.
    FirstFragment(Segment<'a>),
    /// No segment, or none that can be read.
    Other(Other),
}

/// Why a frame is no segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Other {
    /// The frame's link type is not one of [`LinkType::ALL`](crate::LinkType::ALL).
    #[error("a link type that is not read")]
    LinkType,
    /// Neither IPv4 nor IPv6, as ARP.
    #[error("not IP")]
    NotIp,
    /// IP, but neither TCP nor a tunnel that is read.
    #[error("not TCP")]
    NotTcp,
    /// A fragment behind the first one, which has no header; or a first one that does not have the whole header of
    /// TCP. A [`Reassembly`] may have the segment.
    #[error("a fragment without the whole header")]
    Fragment,
    /// The capture ends before the header does.
    #[error("a header that the capture does not have all of")]
    Truncated,
    /// A header contradicts itself or the length of what it is in.
    #[error("a malformed header")]
    Malformed,
    /// More tunnels, VLAN tags, labels or extension headers, one in the other, than anybody uses.
    #[error("too many headers, one in the other")]
    TooDeep,
    /// A checksum is wrong, and the decoder was told to mind.
    #[error("a wrong checksum")]
    Checksum,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { vxlan_ports: vec![4789], verify_checksums: false }
    }
}

impl Decoder {
    /// What is in `frame`. Neither fails nor allocates.
    pub fn decode<'a>(&self, frame: &Frame<'a>) -> Decoded<'a> {
        self.read(frame).unwrap_or_else(Decoded::Other)
    }

    fn read<'a>(&self, frame: &Frame<'a>) -> Result<Decoded<'a>, Other> {
        self.read_datagram(frame, |datagram| tcp::read(frame.time, datagram, self.verify_checksums))
    }

    /// What `read` makes of the innermost packet, which carries TCP, or of a fragment of it. A closure, because returning a
    /// packet would copy it for each frame.
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
    /// All reasons, in the order in which they are declared.
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
