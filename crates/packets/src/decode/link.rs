//! Link layers: what stands before the IP header.

use super::octets::Octets;
use super::{Other, ip};
use crate::LinkType;

/// Which version of IP should be there; the header itself has the last word.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet<'a> {
    pub(super) version: ip::Version,
    pub(super) octets: Octets<'a>,
}

/// What a frame of this kind carries.
pub(super) fn packet(link: LinkType, frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    match link {
        LinkType::ETHERNET => ethernet(frame),
        LinkType::RAW | LinkType::RAW_BSD | LinkType::RAW_OPENBSD => raw(frame),
        LinkType::IPV4 => Ok(Packet { version: ip::Version::V4, octets: frame }),
        LinkType::IPV6 => Ok(Packet { version: ip::Version::V6, octets: frame }),
        LinkType::NULL | LinkType::LOOP => loopback(frame),
        LinkType::LINUX_SLL => cooked(frame),
        LinkType::LINUX_SLL2 => cooked_2(frame),
        _ => Err(Other::LinkType),
    }
}

/// Destination, source, type (RFC 894). A length in its place (IEEE 802.3) is no type of IP.
pub(super) fn ethernet(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    let ([.., high, low], rest) = frame.split::<14>()?;
    ether_type(u16::from_be_bytes([*high, *low]), rest)
}

/// What an `EtherType` says of the octets behind it, which may be VLAN tags (IEEE 802.1Q, clause 9), labels of MPLS or a header of
/// `PPPoE`.
pub(super) fn ether_type(mut ether_type: u16, mut rest: Octets<'_>) -> Result<Packet<'_>, Other> {
    for _ in 0..=TAGS_MAX {
        match ether_type {
            IPV4 => return Ok(Packet { version: ip::Version::V4, octets: rest }),
            IPV6 => return Ok(Packet { version: ip::Version::V6, octets: rest }),
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

/// RFC 3032, section 2.1. Labels do not say what they stand before; what carries neither version of IP, as a pseudowire does, is not
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

/// RFC 2516, sections 4 and 6: a session's data, with the protocol of PPP (RFC 1661, section 2).
fn pppoe(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    let ([version, code, _, _, _, _, high, low], octets) = frame.split()?;
    match (version, code, u16::from_be_bytes([*high, *low])) {
        (0x11, 0, 0x0021) => Ok(Packet { version: ip::Version::V4, octets }),
        (0x11, 0, 0x0057) => Ok(Packet { version: ip::Version::V6, octets }),
        _ => Err(Other::NotIp),
    }
}

/// The first nibble is the version.
fn raw(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    let [first] = frame.first()?;
    match first >> 4 {
        4 => Ok(Packet { version: ip::Version::V4, octets: frame }),
        6 => Ok(Packet { version: ip::Version::V6, octets: frame }),
        _ => Err(Other::NotIp),
    }
}

/// An address family in the byte order of the machine that captured (`LINKTYPE_NULL`) or the network's
/// (`LINKTYPE_LOOP`). They are small numbers, so that either order can be told from the other; and IPv6 has a different
/// one on each BSD.
fn loopback(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    let (family, octets) = frame.split()?;
    let family = u32::from_be_bytes(*family).min(u32::from_le_bytes(*family));
    match family {
        2 => Ok(Packet { version: ip::Version::V4, octets }),
        24 | 28 | 30 => Ok(Packet { version: ip::Version::V6, octets }),
        _ => Err(Other::NotIp),
    }
}

/// `LINKTYPE_LINUX_SLL`: packet type, `ARPHRD_`, length of the address, address (8 octets), protocol.
fn cooked(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    let ([.., high, low], rest) = frame.split::<16>()?;
    ether_type(u16::from_be_bytes([*high, *low]), rest)
}

/// `LINKTYPE_LINUX_SLL2`: protocol, reserved, interface, `ARPHRD_`, packet type, length of the address, address.
fn cooked_2(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    let ([high, low, ..], rest) = frame.split::<20>()?;
    ether_type(u16::from_be_bytes([*high, *low]), rest)
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;
/// What switches used before IEEE 802.1ad.
const OLD_SERVICE_VLAN: u16 = 0x9100;
const MPLS: u16 = 0x8847;
/// RFC 5332, section 4.
const MPLS_UPSTREAM: u16 = 0x8848;
/// More than providers stack.
const LABELS_MAX: usize = 16;
const PPPOE_SESSION: u16 = 0x8864;
/// IEEE 802.1ad has two; some nest once more.
const TAGS_MAX: usize = 8;
