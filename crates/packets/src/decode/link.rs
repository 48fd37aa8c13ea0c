//! Link layers: the headers before the IP header.

use super::decoded::Other;
use super::ether::{ether_type, ethernet, ppp, pppoe, raw, snap};
use super::octets::Octets;
use super::packet::{Packet, Version};
use super::wireless;
use crate::LinkType;

/// Parses the headers of a link type.
pub(super) fn packet(link: LinkType, frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    match link {
        LinkType::ETHERNET => ethernet(frame),
        LinkType::RAW | LinkType::RAW_BSD | LinkType::RAW_OPENBSD => raw(frame),
        LinkType::IPV4 => Ok(Packet { version: Version::V4, octets: frame }),
        LinkType::IPV6 => Ok(Packet { version: Version::V6, octets: frame }),
        LinkType::NULL | LinkType::LOOP => loopback(frame),
        LinkType::LINUX_SLL => cooked(frame),
        LinkType::LINUX_SLL2 => cooked_2(frame),
        LinkType::PPP | LinkType::PPP_HDLC | LinkType::C_HDLC => hdlc(frame),
        LinkType::PPP_ETHER => pppoe(frame),
        LinkType::FDDI => fddi(frame),
        LinkType::IEEE802_11 => wireless::frame(frame, false),
        LinkType::IEEE802_11_PRISM | LinkType::IEEE802_11_AVS => wireless::prism(frame),
        LinkType::IEEE802_11_RADIOTAP => wireless::radiotap(frame),
        LinkType::NFLOG => nflog(frame),
        _ => Err(Other::LinkType),
    }
}

/// The first octet on a serial line shows the header: the address and control fields of PPP (RFC 1662, section 3.1),
/// Cisco's framing with an `EtherType` (RFC 1547, section 4.3.1), or PPP without either (RFC 1661, section 6.6).
fn hdlc(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    match frame.first()? {
        [HDLC_ALL_STATIONS] => ppp(frame.skip(2)?),
        [CISCO_UNICAST | CISCO_BROADCAST] => {
            let ([_, _, high, low], rest) = frame.split()?;
            ether_type(u16::from_be_bytes([*high, *low]), rest)
        }
        [_] => ppp(frame),
    }
}

/// Frame control, destination, source. In data frames an LLC header follows.
fn fddi(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    let ([control, ..], rest) = frame.split::<13>()?;
    if control & FDDI_FORMAT == FDDI_LLC { snap(rest) } else { Err(Other::NotIp) }
}

/// `LINKTYPE_NFLOG`: address family, version, resource, and attributes with length and type, in the byte order of the
/// capturing host. One attribute is the packet.
fn nflog(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    let ([_, version, _, _], mut rest) = frame.split()?;
    if *version != 0 {
        return Err(Other::NotIp);
    }
    for _ in 0..ATTRIBUTES_MAX {
        let ([l0, l1, k0, k1], value) = rest.split()?;
        // Types are small numbers, so the byte order with the smaller value is right.
        let is_little = u16::from_le_bytes([*k0, *k1]) < u16::from_be_bytes([*k0, *k1]);
        let of = |octets: [u8; 2]| if is_little { u16::from_le_bytes(octets) } else { u16::from_be_bytes(octets) };
        if of([*k0, *k1]) == NFULA_PAYLOAD {
            return raw(value);
        }
        let len = usize::from(of([*l0, *l1])).next_multiple_of(4);
        if len < 4 {
            return Err(Other::Malformed);
        }
        rest = rest.skip(len)?;
    }
    Err(Other::TooDeep)
}

/// An address family in the byte order of the capturing host (`LINKTYPE_NULL`) or of the network (`LINKTYPE_LOOP`).
/// Families are small numbers, so the order with the smaller value is right. The number of IPv6 differs between BSDs.
fn loopback(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    let (family, octets) = frame.split()?;
    let family = u32::from_be_bytes(*family).min(u32::from_le_bytes(*family));
    match family {
        2 => Ok(Packet { version: Version::V4, octets }),
        24 | 28 | 30 => Ok(Packet { version: Version::V6, octets }),
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

const HDLC_ALL_STATIONS: u8 = 0xff;
const CISCO_UNICAST: u8 = 0x0f;
const CISCO_BROADCAST: u8 = 0x8f;
/// Frame control of FDDI: the mask of the format, and its value for LLC.
const FDDI_FORMAT: u8 = 0x30;
const FDDI_LLC: u8 = 0x10;
const NFULA_PAYLOAD: u16 = 9;
/// More than the number of attribute types.
const ATTRIBUTES_MAX: usize = 64;
