//! Captured frames.

use crate::Timestamp;

/// A captured frame, or the beginning of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Time of the capture.
    pub time: Timestamp,
    /// The type of its first header.
    pub link: LinkType,
    /// Octets on the wire.
    pub len: u32,
    /// The captured octets, from the first one.
    pub data: &'a [u8],
}

/// The link type of an interface: a number of the registry at <https://www.tcpdump.org/linktypes.html>.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

/// An unsupported link type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "unsupported link type {0} (https://www.tcpdump.org/linktypes.html), supported: Ethernet (1), raw IP (12, 14, 101, \
     228, 229), loopback (0, 108), Linux cooked captures (113, 276), PPP (9, 50, 51), Cisco HDLC (104), FDDI (10), \
     IEEE 802.11 (105, 119, 127, 163) and NFLOG (239)"
)]
pub struct UnknownLinkType(pub u16);

impl LinkType {
    /// BSD loopback: the address family, in the byte order of the capturing host.
    pub const NULL: Self = Self(0);
    /// Ethernet, without preamble and frame check sequence.
    pub const ETHERNET: Self = Self(1);
    /// PPP, with or without the address and control fields of HDLC.
    pub const PPP: Self = Self(9);
    pub const FDDI: Self = Self(10);
    /// IP of either version, as some systems number it in their files.
    pub const RAW_BSD: Self = Self(12);
    /// IP of either version, as OpenBSD numbers it.
    pub const RAW_OPENBSD: Self = Self(14);
    /// PPP in HDLC-like framing, or Cisco HDLC.
    pub const PPP_HDLC: Self = Self(50);
    /// `PPPoE`, without the Ethernet header.
    pub const PPP_ETHER: Self = Self(51);
    /// IP of either version.
    pub const RAW: Self = Self(101);
    /// Cisco HDLC, or PPP in HDLC-like framing.
    pub const C_HDLC: Self = Self(104);
    /// IEEE 802.11.
    pub const IEEE802_11: Self = Self(105);
    /// IEEE 802.11 behind a Prism header, or an AVS header.
    pub const IEEE802_11_PRISM: Self = Self(119);
    /// IEEE 802.11 behind an AVS header.
    pub const IEEE802_11_AVS: Self = Self(163);
    /// IEEE 802.11 behind a radiotap header.
    pub const IEEE802_11_RADIOTAP: Self = Self(127);
    /// A packet logged by Linux netfilter.
    pub const NFLOG: Self = Self(239);
    /// OpenBSD loopback: the address family, in network byte order.
    pub const LOOP: Self = Self(108);
    /// Linux "cooked" capture, as of the interface `any`.
    pub const LINUX_SLL: Self = Self(113);
    pub const IPV4: Self = Self(228);
    pub const IPV6: Self = Self(229);
    /// Linux "cooked" capture, version 2.
    pub const LINUX_SLL2: Self = Self(276);

    /// All supported link types.
    pub const ALL: [Self; 20] = [
        Self::NULL,
        Self::ETHERNET,
        Self::RAW_BSD,
        Self::RAW_OPENBSD,
        Self::RAW,
        Self::LOOP,
        Self::LINUX_SLL,
        Self::IPV4,
        Self::IPV6,
        Self::LINUX_SLL2,
        Self::PPP,
        Self::FDDI,
        Self::PPP_HDLC,
        Self::PPP_ETHER,
        Self::C_HDLC,
        Self::IEEE802_11,
        Self::IEEE802_11_RADIOTAP,
        Self::IEEE802_11_PRISM,
        Self::IEEE802_11_AVS,
        Self::NFLOG,
    ];

    /// Fails if the decoder supports no frame of this type.
    pub fn known(self) -> Result<Self, UnknownLinkType> {
        if Self::ALL.contains(&self) { Ok(self) } else { Err(UnknownLinkType(self.0)) }
    }
}
