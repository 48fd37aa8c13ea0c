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

mod decoded;
mod ether;
mod ip;
mod link;
mod octets;
mod packet;
mod reassembly;
mod tcp;
mod tunnel;
mod wireless;

use crate::Frame;
pub use decoded::{Decoded, Other};
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

#[cfg(test)]
mod tests;
