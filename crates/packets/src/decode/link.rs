//! Link layers: the headers before the IP header.

use super::octets::Octets;
use super::{Other, ip, wireless};
use crate::LinkType;

/// The expected IP version and the packet. The IP header decides the version.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet<'a> {
    pub(super) version: ip::Version,
    pub(super) octets: Octets<'a>,
}

/// Parses the headers of a link type.
pub(super) fn packet(link: LinkType, frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    match link {
        LinkType::ETHERNET => ethernet(frame),
        LinkType::RAW | LinkType::RAW_BSD | LinkType::RAW_OPENBSD => raw(frame),
        LinkType::IPV4 => Ok(Packet { version: ip::Version::V4, octets: frame }),
        LinkType::IPV6 => Ok(Packet { version: ip::Version::V6, octets: frame }),
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

/// Destination, source, type (RFC 894). A length in place of the type (IEEE 802.3) is not an IP type.
pub(super) fn ethernet(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    let ([.., high, low], rest) = frame.split::<14>()?;
    ether_type(u16::from_be_bytes([*high, *low]), rest)
}

/// Parses the octets behind an `EtherType`: IP, VLAN tags (IEEE 802.1Q, clause 9), MPLS labels or a `PPPoE` header.
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
fn pppoe(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    match frame.split::<6>()? {
        ([0x11, 0, ..], octets) => ppp(octets),
        _ => Err(Other::NotIp),
    }
}

/// RFC 1661, section 2, with a protocol field of two octets, or of one if that is odd (section 6.5).
fn ppp(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    let [first] = frame.first()?;
    let (protocol, octets) = if first & 1 == 0 {
        let (protocol, octets) = frame.split()?;
        (u16::from_be_bytes(*protocol), octets)
    } else {
        (u16::from(*first), frame.skip(1)?)
    };
    match protocol {
        PPP_IPV4 => Ok(Packet { version: ip::Version::V4, octets }),
        PPP_IPV6 => Ok(Packet { version: ip::Version::V6, octets }),
        PPP_MPLS | PPP_MPLS_UPSTREAM => mpls(octets),
        _ => Err(Other::NotIp),
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

/// LLC and SNAP headers with an `EtherType` (RFC 1042).
pub(super) fn snap(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    match frame.split()? {
        ([0xaa, 0xaa, 0x03, 0, 0, 0, high, low], rest) => ether_type(u16::from_be_bytes([*high, *low]), rest),
        _ => Err(Other::NotIp),
    }
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

/// The first nibble is the version.
fn raw(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    let [first] = frame.first()?;
    match first >> 4 {
        4 => Ok(Packet { version: ip::Version::V4, octets: frame }),
        6 => Ok(Packet { version: ip::Version::V6, octets: frame }),
        _ => Err(Other::NotIp),
    }
}

/// An address family in the byte order of the capturing host (`LINKTYPE_NULL`) or of the network (`LINKTYPE_LOOP`).
/// Families are small numbers, so the order with the smaller value is right. The number of IPv6 differs between BSDs.
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

/// Protocols of PPP (<https://www.iana.org/assignments/ppp-numbers>).
const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;
const PPP_MPLS: u16 = 0x0281;
const PPP_MPLS_UPSTREAM: u16 = 0x0283;
const HDLC_ALL_STATIONS: u8 = 0xff;
const CISCO_UNICAST: u8 = 0x0f;
const CISCO_BROADCAST: u8 = 0x8f;
/// Frame control of FDDI: the mask of the format, and its value for LLC.
const FDDI_FORMAT: u8 = 0x30;
const FDDI_LLC: u8 = 0x10;
const NFULA_PAYLOAD: u16 = 9;
/// More than the number of attribute types.
const ATTRIBUTES_MAX: usize = 64;

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
