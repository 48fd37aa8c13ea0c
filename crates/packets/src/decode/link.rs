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

/// What an `EtherType` says of the octets behind it, which may be VLAN tags (IEEE 802.1Q, clause 9).
pub(super) fn ether_type(mut ether_type: u16, mut rest: Octets<'_>) -> Result<Packet<'_>, Other> {
    for _ in 0..=TAGS_MAX {
        match ether_type {
            IPV4 => return Ok(Packet { version: ip::Version::V4, octets: rest }),
            IPV6 => return Ok(Packet { version: ip::Version::V6, octets: rest }),
            VLAN | SERVICE_VLAN | OLD_SERVICE_VLAN => {
                let ([_, _, high, low], behind) = rest.split()?;
                (ether_type, rest) = (u16::from_be_bytes([*high, *low]), behind);
            }
            _ => return Err(Other::NotIp),
        }
    }
    Err(Other::TooDeep)
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
/// IEEE 802.1ad has two; some nest once more.
const TAGS_MAX: usize = 8;
