//! IP headers: version 4 (RFC 791) and 6 (RFC 8200).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::decoded::Other;
use super::octets::Octets;
use super::packet::{Packet, Version};
use crate::checksum;

/// Protocol numbers (<https://www.iana.org/assignments/protocol-numbers>).
pub(super) const IPV4: u8 = 4;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const IPV6: u8 = 41;
pub(super) const GRE: u8 = 47;

/// An IP packet behind its headers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Datagram<'a> {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// The protocol number of the payload.
    pub(super) protocol: u8,
    /// The payload with the length in the header, so without the padding of a short Ethernet frame.
    pub(super) payload: Octets<'a>,
    /// The position of the payload in that of the whole packet, if this is a fragment.
    pub(super) fragment: Option<Fragment>,
    /// Whether `destination` is only the next hop of the packet. Checksums cover its last one (RFC 8200, section 8.1).
    pub(super) is_routed: bool,
}

impl Datagram<'_> {
    /// Whether it is a fragment behind the first one.
    pub(super) fn is_later_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.offset > 0)
    }
}

/// The position of a fragment (RFC 791, section 3.1; RFC 8200, section 4.5).
#[derive(Debug, Clone, Copy)]
pub(super) struct Fragment {
    /// The same in all fragments of a packet. In IPv4 it has 16 bits.
    pub(super) identification: u32,
    /// Octets of the packet's payload before this fragment; a multiple of 8.
    pub(super) offset: u16,
    pub(super) is_last: bool,
}

#[inline]
pub(super) fn read(packet: Packet<'_>, verify_checksum: bool) -> Result<Datagram<'_>, Other> {
    match packet.version {
        Version::V4 => read_v4(packet.octets, verify_checksum),
        Version::V6 => read_v6(packet.octets),
    }
}

/// RFC 791, section 3.1.
#[inline]
fn read_v4(packet: Octets<'_>, verify_checksum: bool) -> Result<Datagram<'_>, Other> {
    let header = packet.first::<20>()?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    // If a host leaves segmentation to its network card, its captured packets are too long for the field.
    let total_len = if total_len == 0 { packet.len() } else { total_len };
    if header[0] >> 4 != 4 || header_len < header.len() || total_len < header_len {
        return Err(Other::Malformed);
    }
    if verify_checksum && packet.captured().get(..header_len).is_some_and(|header| !checksum::is_good(&[header])) {
        return Err(Other::Checksum);
    }
    let [.., s1, s2, s3, s4, d1, d2, d3, d4] = *header;
    let datagram = Datagram {
        source: Ipv4Addr::new(s1, s2, s3, s4).into(),
        destination: Ipv4Addr::new(d1, d2, d3, d4).into(),
        protocol: header[9],
        payload: packet.of_len(total_len).skip(header_len)?,
        fragment: fragment_v4(header),
        is_routed: false,
    };
    // Most packets have neither this extension header nor a fragment of one.
    if datagram.protocol != AUTHENTICATION || datagram.is_later_fragment() {
        return Ok(datagram);
    }
    extensions(Version::V4, datagram)
}

/// RFC 8200, section 3.
fn read_v6(packet: Octets<'_>) -> Result<Datagram<'_>, Other> {
    let (fixed, rest) = packet.split::<8>()?;
    let (source, rest) = rest.split::<16>()?;
    let (destination, rest) = rest.split::<16>()?;
    if fixed[0] >> 4 != 6 {
        return Err(Other::Malformed);
    }
    // A jumbogram (RFC 2675, section 3), or too long for the field as above. A packet without payload has no TCP.
    let payload_len = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    let datagram = Datagram {
        source: Ipv6Addr::from(*source).into(),
        destination: Ipv6Addr::from(*destination).into(),
        protocol: fixed[6],
        payload: if payload_len == 0 { rest } else { rest.of_len(payload_len) },
        fragment: None,
        is_routed: false,
    };
    extensions(Version::V6, datagram)
}

fn fragment_v4(header: &[u8; 20]) -> Option<Fragment> {
    let field = u16::from_be_bytes([header[6], header[7]]);
    (field & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0).then(|| Fragment {
        identification: u32::from(u16::from_be_bytes([header[4], header[5]])),
        offset: (field & FRAGMENT_OFFSET) * 8,
        is_last: field & MORE_FRAGMENTS == 0,
    })
}

/// Skips extension headers (RFC 8200, section 4). IPv4 has only one. A fragment behind the first one has none.
fn extensions(version: Version, mut datagram: Datagram<'_>) -> Result<Datagram<'_>, Other> {
    for _ in 0..=EXTENSIONS_MAX {
        let payload = datagram.payload;
        let len = match (version, datagram.protocol) {
            (_, AUTHENTICATION) => (usize::from(payload.first::<2>()?[1]) + 2) * 4,
            (Version::V6, HOP_BY_HOP | DESTINATION | MOBILITY) => units_of_8(payload.first::<2>()?[1]),
            (Version::V6, ROUTING) => {
                let [_, len, _, segments_left] = payload.first()?;
                datagram.is_routed |= *segments_left != 0;
                units_of_8(*len)
            }
            (Version::V6, FRAGMENT) => {
                // Each extension header occurs once (RFC 8200, section 4.1).
                if datagram.fragment.is_some() {
                    return Err(Other::Malformed);
                }
                datagram.fragment = fragment_v6(payload)?;
                8
            }
            _ => return Ok(datagram),
        };
        let [next] = payload.first()?;
        let is_fragment_header = datagram.protocol == FRAGMENT;
        datagram = Datagram { protocol: *next, payload: payload.skip(len)?, ..datagram };
        if is_fragment_header && datagram.is_later_fragment() {
            return Ok(datagram);
        }
    }
    Err(Other::TooDeep)
}

/// The first 8 octets of a header do not count.
fn units_of_8(len: u8) -> usize {
    (usize::from(len) + 1) * 8
}

/// RFC 8200, section 4.5. A header without an offset and without further fragments belongs to a whole packet (RFC
/// 6946).
fn fragment_v6(header: Octets<'_>) -> Result<Option<Fragment>, Other> {
    let [_, _, high, low, identification @ ..] = header.first::<8>()?;
    let field = u16::from_be_bytes([*high, *low]);
    let (offset, is_last) = (field & !7, field & 1 == 0);
    let identification = u32::from_be_bytes(*identification);
    Ok((offset > 0 || !is_last).then_some(Fragment { identification, offset, is_last }))
}

/// RFC 791, section 3.1: flags and fragment offset.
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
/// RFC 4302, section 2.2: its length counts units of 4 octets, without the first 8 octets.
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
/// RFC 6275, section 6.1.1.
const MOBILITY: u8 = 135;
/// Each occurs once, except the destination options (RFC 8200, section 4.1).
const EXTENSIONS_MAX: usize = 8;
