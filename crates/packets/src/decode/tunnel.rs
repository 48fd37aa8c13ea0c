//! Tunnels: IP packets that carry IP packets, or frames.

use super::decoded::Other;
use super::ether::{self, ethernet};
use super::ip::{self, Datagram};
use super::octets::Octets;
use super::packet::{Packet, Version};

/// The packet that `datagram` carries. A first fragment has the beginning of it, too.
pub(super) fn packet<'a>(datagram: &Datagram<'a>, vxlan_ports: &[u16]) -> Result<Packet<'a>, Other> {
    let payload = datagram.payload;
    match datagram.protocol {
        // RFC 2003, section 3.1.
        ip::IPV4 => Ok(Packet { version: Version::V4, octets: payload }),
        // RFC 4213, section 3, and RFC 2473, section 3.
        ip::IPV6 => Ok(Packet { version: Version::V6, octets: payload }),
        ip::GRE => gre(payload),
        ip::UDP => over_udp(payload, vxlan_ports),
        _ => Err(Other::NotTcp),
    }
}

/// RFC 2784, section 2, with key and sequence number (RFC 2890, section 2). Routing (RFC 1701) and other versions, such
/// as that of PPTP, are not read.
fn gre(payload: Octets<'_>) -> Result<Packet<'_>, Other> {
    let ([flags, version, high, low], rest) = payload.split()?;
    if flags & GRE_ROUTING != 0 || version & GRE_VERSION != 0 {
        return Err(Other::NotTcp);
    }
    let is_numbered = flags & GRE_SEQUENCE != 0;
    let optional = flags & (GRE_CHECKSUM | GRE_KEY | GRE_SEQUENCE);
    let rest = rest.skip(optional.count_ones() as usize * 4)?;
    match u16::from_be_bytes([*high, *low]) {
        // Type I has no header of its own, and its GRE no sequence number.
        ERSPAN_II => ethernet(rest.skip(if is_numbered { 8 } else { 0 })?),
        ERSPAN_III => erspan_iii(rest),
        ether_type => carried(ether_type, rest),
    }
}

/// The payload of a tunnel that has an `EtherType`.
fn carried(ether_type: u16, rest: Octets<'_>) -> Result<Packet<'_>, Other> {
    if ether_type == TRANSPARENT_ETHERNET { ethernet(rest) } else { ether::ether_type(ether_type, rest) }
}

/// draft-foschiano-erspan-03, section 4.3: frames that a switch mirrors to a remote port. Only Ethernet is read.
fn erspan_iii(payload: Octets<'_>) -> Result<Packet<'_>, Other> {
    let ([.., kind, flags], rest) = payload.split::<12>()?;
    if kind & ERSPAN_FRAME_TYPE != 0 {
        return Err(Other::NotIp);
    }
    ethernet(rest.skip(if flags & ERSPAN_SUBHEADER == 0 { 0 } else { 8 })?)
}

/// The destination port selects the tunnel. The UDP length is not needed: the inner packet has its own.
fn over_udp<'a>(payload: Octets<'a>, vxlan_ports: &[u16]) -> Result<Packet<'a>, Other> {
    let ([_, _, high, low, ..], rest) = payload.split::<8>()?;
    match u16::from_be_bytes([*high, *low]) {
        port if vxlan_ports.contains(&port) => vxlan(rest),
        GENEVE_PORT => geneve(rest),
        _ => Err(Other::NotTcp),
    }
}

/// RFC 7348, section 5.
fn vxlan(payload: Octets<'_>) -> Result<Packet<'_>, Other> {
    let ([flags, ..], frame) = payload.split::<8>()?;
    if flags & VXLAN_IDENTIFIED == 0 { Err(Other::NotTcp) } else { ethernet(frame) }
}

/// RFC 8926, section 3.4.
fn geneve(payload: Octets<'_>) -> Result<Packet<'_>, Other> {
    let ([first, flags, high, low, ..], rest) = payload.split::<8>()?;
    if first & GENEVE_VERSION != 0 || flags & GENEVE_CONTROL != 0 {
        return Err(Other::NotTcp);
    }
    let options_len = usize::from(first & GENEVE_OPTIONS) * 4;
    carried(u16::from_be_bytes([*high, *low]), rest.skip(options_len)?)
}

const GRE_CHECKSUM: u8 = 0x80;
const GRE_ROUTING: u8 = 0x40;
const GRE_KEY: u8 = 0x20;
const GRE_SEQUENCE: u8 = 0x10;
const GRE_VERSION: u8 = 0x07;
/// An Ethernet frame without frame check sequence, called so by RFC 1701.
const TRANSPARENT_ETHERNET: u16 = 0x6558;
/// Types II and I.
const ERSPAN_II: u16 = 0x88be;
const ERSPAN_III: u16 = 0x22eb;
/// The field FT: 0 is Ethernet.
const ERSPAN_FRAME_TYPE: u8 = 0x7c;
/// The flag O: a subheader follows.
const ERSPAN_SUBHEADER: u8 = 0x01;
/// The UDP port of Geneve (RFC 8926, section 3.3).
pub const GENEVE_PORT: u16 = 6081;
const GENEVE_VERSION: u8 = 0xc0;
/// In units of 4 octets.
const GENEVE_OPTIONS: u8 = 0x3f;
/// The flag O: the packet is for the tunnel endpoint itself.
const GENEVE_CONTROL: u8 = 0x80;
/// The flag I: the network identifier is valid, which VXLAN requires.
const VXLAN_IDENTIFIED: u8 = 0x08;
