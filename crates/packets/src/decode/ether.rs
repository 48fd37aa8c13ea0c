//! Ethernet and what follows an `EtherType`: IP, VLAN tags, MPLS labels, `PPPoE` and PPP.

use super::decoded::Other;
use super::octets::Octets;
use super::packet::{Packet, Version};

/// Destination, source, type (RFC 894). A length in place of the type (IEEE 802.3) is not an IP type.
pub(super) fn ethernet(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    let ([.., high, low], rest) = frame.split::<14>()?;
    ether_type(u16::from_be_bytes([*high, *low]), rest)
}

/// Parses the octets behind an `EtherType`: IP, VLAN tags (IEEE 802.1Q, clause 9), MPLS labels or a `PPPoE` header.
pub(super) fn ether_type(mut ether_type: u16, mut rest: Octets<'_>) -> Result<Packet<'_>, Other> {
    for _ in 0..=TAGS_MAX {
        match ether_type {
            IPV4 => return Ok(Packet { version: Version::V4, octets: rest }),
            IPV6 => return Ok(Packet { version: Version::V6, octets: rest }),
            VLAN | SERVICE_VLAN | OLD_SERVICE_VLAN => {
                let ([_, _, high, low], behind) = rest.split()?;
                (ether_type, rest) = (u16::from_be_bytes([*high, *low]), behind);
            }
            MPLS | MPLS_UPSTREAM => return mpls(rest),
            PPPOE_SESSION => return pppoe(rest),
            _ => return Err(Other::NotIp),
        }
    }
    Err(Other::TooDeep)
}

/// RFC 3032, section 2.1. Labels have no type of their payload. A payload other than IP, such as a pseudowire, is not
/// read.
fn mpls(mut stack: Octets<'_>) -> Result<Packet<'_>, Other> {
    for _ in 0..LABELS_MAX {
        let ([_, _, bottom, _], behind) = stack.split()?;
        if bottom & 1 != 0 {
            return raw(behind);
        }
        stack = behind;
    }
    Err(Other::TooDeep)
}

/// RFC 2516, sections 4 and 6: data of a session, with a PPP protocol field (RFC 1661, section 2).
pub(super) fn pppoe(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    match frame.split::<6>()? {
        ([0x11, 0, ..], octets) => ppp(octets),
        _ => Err(Other::NotIp),
    }
}

/// RFC 1661, section 2, with a protocol field of two octets, or of one if that is odd (section 6.5).
pub(super) fn ppp(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    let [first] = frame.first()?;
    let (protocol, octets) = if first & 1 == 0 {
        let (protocol, octets) = frame.split()?;
        (u16::from_be_bytes(*protocol), octets)
    } else {
        (u16::from(*first), frame.skip(1)?)
    };
    match protocol {
        PPP_IPV4 => Ok(Packet { version: Version::V4, octets }),
        PPP_IPV6 => Ok(Packet { version: Version::V6, octets }),
        PPP_MPLS | PPP_MPLS_UPSTREAM => mpls(octets),
        _ => Err(Other::NotIp),
    }
}

/// LLC and SNAP headers with an `EtherType` (RFC 1042).
pub(super) fn snap(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    match frame.split()? {
        ([0xaa, 0xaa, 0x03, 0, 0, 0, high, low], rest) => ether_type(u16::from_be_bytes([*high, *low]), rest),
        _ => Err(Other::NotIp),
    }
}

/// The first nibble is the version.
pub(super) fn raw(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    let [first] = frame.first()?;
    match first >> 4 {
        4 => Ok(Packet { version: Version::V4, octets: frame }),
        6 => Ok(Packet { version: Version::V6, octets: frame }),
        _ => Err(Other::NotIp),
    }
}

/// Protocols of PPP (<https://www.iana.org/assignments/ppp-numbers>).
const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;
const PPP_MPLS: u16 = 0x0281;
const PPP_MPLS_UPSTREAM: u16 = 0x0283;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;
/// Used by switches before IEEE 802.1ad.
const OLD_SERVICE_VLAN: u16 = 0x9100;
const MPLS: u16 = 0x8847;
/// RFC 5332, section 4.
const MPLS_UPSTREAM: u16 = 0x8848;
/// More than providers stack.
const LABELS_MAX: usize = 16;
const PPPOE_SESSION: u16 = 0x8864;
/// IEEE 802.1ad has two. Some networks nest once more.
const TAGS_MAX: usize = 8;
