//! Tunnels: IP packets that carry IP packets, or Ethernet frames.

use super::Other;
use super::ip::{self, Datagram, Version};
use super::link::{self, Packet};
use super::octets::Octets;

/// The packet that `datagram` carries. The beginning of one is in the first fragment of what carries it, too.
pub(super) fn packet<'a>(datagram: &Datagram<'a>, vxlan_ports: &[u16]) -> Result<Packet<'a>, Other> {
    let payload = datagram.payload;
    match datagram.protocol {
        // RFC 2003, section 3.1.
        ip::IPV4 => Ok(Packet { version: Version::V4, octets: payload }),
        // RFC 4213, section 3, and RFC 2473, section 3.
        ip::IPV6 => Ok(Packet { version: Version::V6, octets: payload }),
        ip::GRE => gre(payload),
        ip::UDP => vxlan(payload, vxlan_ports),
        _ => Err(Other::NotTcp),
    }
}

/// RFC 2784, section 2, with key and sequence number (RFC 2890, section 2). Routing (RFC 1701) and other versions, as
/// that of PPTP, are not read.
fn gre(payload: Octets<'_>) -> Result<Packet<'_>, Other> {
    let ([flags, version, high, low], rest) = payload.split()?;
    if flags & GRE_ROUTING != 0 || version & GRE_VERSION != 0 {
        return Err(Other::NotTcp);
    }
    let optional = flags & (GRE_CHECKSUM | GRE_KEY | GRE_SEQUENCE);
    let rest = rest.skip(optional.count_ones() as usize * 4)?;
    match u16::from_be_bytes([*high, *low]) {
        TRANSPARENT_ETHERNET => link::ethernet(rest),
        ether_type => link::ether_type(ether_type, rest),
    }
}

/// RFC 7348, section 5. The length in the UDP header says nothing that the frame within does not say better.
fn vxlan<'a>(payload: Octets<'a>, ports: &[u16]) -> Result<Packet<'a>, Other> {
    let ([_, _, high, low, ..], rest) = payload.split::<8>()?;
    if !ports.contains(&u16::from_be_bytes([*high, *low])) {
        return Err(Other::NotTcp);
    }
    let ([flags, ..], frame) = rest.split::<8>()?;
    if flags & VXLAN_IDENTIFIED == 0 { Err(Other::NotTcp) } else { link::ethernet(frame) }
}

const GRE_CHECKSUM: u8 = 0x80;
const GRE_ROUTING: u8 = 0x40;
const GRE_KEY: u8 = 0x20;
const GRE_SEQUENCE: u8 = 0x10;
const GRE_VERSION: u8 = 0x07;
/// What RFC 1701 calls it: an Ethernet frame, without frame check sequence.
const TRANSPARENT_ETHERNET: u16 = 0x6558;
/// The flag I: there is a network identifier, as there always is.
const VXLAN_IDENTIFIED: u8 = 0x08;
