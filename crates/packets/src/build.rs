//! Builds frames around segments, for synthetic captures and for tests.
//!
//! A [`Builder`] puts one header after the other around a segment, the innermost first. Its lengths and checksums are
//! correct.

use std::net::IpAddr;

use crate::Segment;
use crate::checksum::{self, sum};

/// Octets that begin with a header, to which another one can be prepended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Builder {
    octets: Vec<u8>,
    begins: Begins,
}

/// The type of the first header, as the next header states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begins {
    /// A transport header or a replacement for it, by its protocol number.
    Protocol(u8),
    /// An IP header, or a VLAN tag, by its `EtherType`.
    EtherType(u16),
    /// An Ethernet header.
    Ethernet,
    /// Another link-layer header.
    Link,
}

/// The optional fields of a GRE header (RFC 2784, RFC 2890).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gre {
    pub checksum: bool,
    pub key: Option<u32>,
    pub sequence: Option<u32>,
}

/// An Ethernet frame with `segment`. Data that were not captured are zeros.
pub fn ethernet(segment: &Segment<'_>) -> Vec<u8> {
    Builder::tcp(segment, &[]).ip(segment.source.ip(), segment.destination.ip()).ethernet().finish()
}

impl Builder {
    /// A TCP header with `options` (a multiple of 4 octets, at most 40), and the segment's data, with zeros up to its
    /// length. (RFC 9293, section 3.1.)
    pub fn tcp(segment: &Segment<'_>, options: &[u8]) -> Self {
        assert!(options.len().is_multiple_of(4) && options.len() <= 40, "the length counts words");
        let words = 5 + options.len() as u8 / 4;
        let mut octets = [
            &segment.source.port().to_be_bytes()[..],
            &segment.destination.port().to_be_bytes(),
            &segment.sequence.to_be_bytes(),
            &segment.acknowledgment.to_be_bytes(),
            &[words << 4, segment.flags.0],
            &segment.window.to_be_bytes(),
            &[0; 4],
            options,
            segment.data,
        ]
        .concat();
        octets.resize(usize::from(words) * 4 + segment.len as usize, 0);
        let (source, destination) = (segment.source.ip(), segment.destination.ip());
        let (pseudo_header, len) = checksum::pseudo_header(source, destination, octets.len());
        let checksum = !sum(&[&pseudo_header[..len], &octets]);
        octets[16..18].copy_from_slice(&checksum.to_be_bytes());
        Self { octets, begins: Begins::Protocol(6) }
    }

    /// An IP header, of version 4 if both addresses are. A packet that is too long for the length field has zero there,
    /// like packets that a network card segments.
    pub fn ip(self, source: IpAddr, destination: IpAddr) -> Self {
        match (source, destination) {
            (IpAddr::V4(_), IpAddr::V4(_)) => self.ipv4(source, destination, &[]),
            _ => self.ipv6(source, destination),
        }
    }

    /// IP headers around fragments that begin at `offsets` in the octets: multiples of 8, in ascending order, without
    /// 0. (RFC 791, section 3.2; RFC 8200, section 4.5.)
    pub fn fragments(&self, source: IpAddr, destination: IpAddr, identification: u16, offsets: &[usize]) -> Vec<Self> {
        assert!(offsets.iter().all(|offset| offset.is_multiple_of(8)), "offsets count units of 8 octets");
        let ends = offsets.iter().copied().chain([self.octets.len()]);
        let parts = [0].into_iter().chain(offsets.iter().copied()).zip(ends);
        parts.map(|(from, to)| self.fragment(source, destination, identification, from, to)).collect()
    }

    /// An IPv4 header with options: a multiple of 4 octets, at most 40. (RFC 791, section 3.1.)
    pub fn ipv4_with_options(self, source: IpAddr, destination: IpAddr, options: &[u8]) -> Self {
        assert!(options.len().is_multiple_of(4) && options.len() <= 40, "the length counts words");
        self.ipv4(source, destination, options)
    }

    /// An IPv6 extension header of `units` times 8 octets, at least one. All octets but its length are zero. (RFC 8200,
    /// section 4.)
    pub fn extension(self, protocol: u8, units: u8) -> Self {
        let mut header = vec![0; usize::from(units.max(1)) * 8];
        header[..2].copy_from_slice(&[self.protocol(), units.max(1) - 1]);
        self.behind(&header, Begins::Protocol(protocol))
    }

    /// A VLAN tag: 0x8100 for a single one, 0x88a8 for a service provider's around it. (IEEE 802.1Q, clause 9.)
    pub fn vlan(self, tag_protocol: u16) -> Self {
        let inner = self.ether_type().to_be_bytes();
        self.behind(&[[0, 1], inner].concat(), Begins::EtherType(tag_protocol))
    }

    /// MPLS labels around IP, the outermost first. (RFC 3032, section 2.1.)
    pub fn mpls(self, labels: &[u32]) -> Self {
        let entries =
            labels.iter().enumerate().map(|(at, label)| label << 12 | u32::from(at + 1 == labels.len()) << 8 | 64);
        let header: Vec<_> = entries.flat_map(u32::to_be_bytes).collect();
        self.behind(&header, Begins::EtherType(0x8847))
    }

    /// The headers of `PPPoE` and PPP around IP. (RFC 2516, section 4; RFC 1661, section 2.)
    pub fn pppoe(self) -> Self {
        let protocol: u16 = if self.begins == Begins::EtherType(0x0800) { 0x0021 } else { 0x0057 };
        let len = u16::try_from(2 + self.octets.len()).unwrap_or(0);
        let header = [0x1100, 7, len, protocol].map(u16::to_be_bytes).concat();
        self.behind(&header, Begins::EtherType(0x8864))
    }

    /// The same as [`Builder::pppoe`] with a protocol field of one octet. (RFC 1661, section 6.5.)
    pub fn pppoe_compressed(self) -> Self {
        let protocol = self.ppp_protocol();
        let len = u16::try_from(1 + self.octets.len()).unwrap_or(0).to_be_bytes();
        self.behind(&[0x11, 0, 0, 7, len[0], len[1], protocol], Begins::EtherType(0x8864))
    }

    /// PPP around IP, with or without the address and control fields of HDLC. (RFC 1661, section 2; RFC 1662, section
    /// 3.1.)
    pub fn ppp(self, is_framed: bool) -> Self {
        let protocol = self.ppp_protocol();
        let header = [0xff, 0x03, 0, protocol];
        self.behind(if is_framed { &header } else { &header[2..] }, Begins::Link)
    }

    /// Cisco HDLC. (RFC 1547, section 4.3.1.)
    pub fn cisco_hdlc(self) -> Self {
        let inner = self.ether_type().to_be_bytes();
        self.behind(&[&[0x0f, 0], &inner[..]].concat(), Begins::Link)
    }

    /// FDDI, with LLC and SNAP. (RFC 1042.)
    pub fn fddi(self) -> Self {
        let snap = self.snap();
        self.behind(&[&[0x50][..], &[2; 6], &[4; 6], &snap].concat(), Begins::Link)
    }

    /// An IEEE 802.11 data frame with LLC and SNAP: from a station, or between access points with quality of service.
    pub fn wireless(self, between_access_points: bool) -> Self {
        let snap = self.snap();
        let addresses = [[2; 6], [4; 6], [6; 6]].concat();
        let header = if between_access_points {
            [&[0x88, 0x03, 0, 0], &addresses[..], &[0x10, 0], &[8; 6], &[0, 0]].concat()
        } else {
            [&[0x08, 0x01, 0, 0], &addresses[..], &[0x10, 0]].concat()
        };
        self.behind(&[&header[..], &snap].concat(), Begins::Link)
    }

    /// A radiotap header with a timestamp and flags around an IEEE 802.11 frame.
    pub fn radiotap(self) -> Self {
        assert_eq!(self.begins, Begins::Link, "radiotap carries a frame");
        let header = [0, 0, 25, 0, 3, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        self.behind(&header, Begins::Link)
    }

    /// A Prism header of a little-endian host around an IEEE 802.11 frame, without values.
    pub fn prism(self) -> Self {
        assert_eq!(self.begins, Begins::Link, "Prism carries a frame");
        let header = [&[0x44, 0, 0, 0, 144, 0, 0, 0][..], b"wlan0", &[0; 131]].concat();
        self.behind(&header, Begins::Link)
    }

    /// An AVS header, version 1, around an IEEE 802.11 frame.
    pub fn avs(self) -> Self {
        assert_eq!(self.begins, Begins::Link, "AVS carries a frame");
        let header = [&[0x80, 0x21, 0x10, 0x01, 0, 0, 0, 64][..], &[0; 56]].concat();
        self.behind(&header, Begins::Link)
    }

    /// A netfilter log of a little-endian host: a prefix, and the packet.
    pub fn nflog(self) -> Self {
        let family = if self.begins == Begins::EtherType(0x0800) { 2 } else { 10 };
        let payload_len = u16::try_from(4 + self.octets.len()).unwrap_or(0).to_le_bytes();
        let prefix = [6, 0, 10, 0, b'x', 0, 0, 0];
        let header = [&[family, 0, 0, 7], &prefix[..], &payload_len, &[9, 0]].concat();
        let mut frame = self.behind(&header, Begins::Link);
        frame.octets.resize(frame.octets.len().next_multiple_of(4), 0);
        frame
    }

    /// An Ethernet header, and padding to 60 octets.
    pub fn ethernet(self) -> Self {
        let inner = self.ether_type().to_be_bytes();
        let mut frame = self.behind(&[&[2; 6], &[4; 6], &inner[..]].concat(), Begins::Ethernet);
        frame.octets.resize(frame.octets.len().max(60), 0);
        frame
    }

    /// A GRE header, around IP or Ethernet. (RFC 2784, section 2; RFC 2890, section 2.)
    pub fn gre(self, gre: Gre) -> Self {
        let inner = if self.begins == Begins::Ethernet { 0x6558 } else { self.ether_type() };
        let optional = |is_there, octets: u32| if is_there { octets.to_be_bytes().to_vec() } else { Vec::new() };
        let flag = |is_there, flag| if is_there { flag } else { 0u16 };
        let flags = flag(gre.checksum, 0x8000) | flag(gre.key.is_some(), 0x2000) | flag(gre.sequence.is_some(), 0x1000);
        let header = [
            flags.to_be_bytes().to_vec(),
            inner.to_be_bytes().to_vec(),
            optional(gre.checksum, 0),
            optional(gre.key.is_some(), gre.key.unwrap_or_default()),
            optional(gre.sequence.is_some(), gre.sequence.unwrap_or_default()),
        ];
        let mut built = self.behind(&header.concat(), Begins::Protocol(47));
        if gre.checksum {
            let checksum = !sum(&[&built.octets]);
            built.octets[4..6].copy_from_slice(&checksum.to_be_bytes());
        }
        built
    }

    /// An ERSPAN header around Ethernet, in GRE with a sequence number: type II, or type III with a subheader.
    /// (draft-foschiano-erspan-03, sections 4.2 and 4.3.)
    pub fn erspan(self, is_iii: bool) -> Self {
        assert_eq!(self.begins, Begins::Ethernet, "it carries Ethernet");
        let gre = |protocol: [u8; 2]| [&[0x10, 0], &protocol[..], &[0, 0, 0, 1]].concat();
        let header = if is_iii {
            [gre([0x22, 0xeb]), vec![0x20, 7, 0, 7, 0, 0, 0, 0, 0, 0, 0x80, 1], vec![0; 8]].concat()
        } else {
            [gre([0x88, 0xbe]), vec![0x10, 7, 0, 7, 0, 0, 0, 0]].concat()
        };
        self.behind(&header, Begins::Protocol(47))
    }

    /// A Geneve header around IP or Ethernet, in UDP. `options_len`: octets of options, a multiple of 4 up to 252. (RFC
    /// 8926, section 3.4.)
    pub fn geneve(self, options_len: u8) -> Self {
        assert!(options_len.is_multiple_of(4) && options_len <= 252, "the length counts words");
        let inner = if self.begins == Begins::Ethernet { 0x6558 } else { self.ether_type() }.to_be_bytes();
        let mut header = vec![options_len / 4, 0, inner[0], inner[1], 0, 0, 7, 0];
        if options_len > 0 {
            header.extend([0, 0, 7, options_len / 4 - 1]);
            header.resize(8 + usize::from(options_len), 0);
        }
        self.udp(6081, &header)
    }

    /// A VXLAN header around Ethernet, in UDP to `port`. (RFC 7348, section 5.)
    pub fn vxlan(self, port: u16) -> Self {
        assert_eq!(self.begins, Begins::Ethernet, "VXLAN carries Ethernet");
        self.udp(port, &[0x08, 0, 0, 0, 0, 0, 7, 0])
    }

    /// The header of a Linux "cooked" capture: `LINKTYPE_LINUX_SLL`.
    pub fn cooked(self) -> Self {
        let inner = self.ether_type().to_be_bytes();
        self.behind(&[&[0, 0, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0], &inner[..]].concat(), Begins::Link)
    }

    /// The header of a Linux "cooked" capture, version 2: `LINKTYPE_LINUX_SLL2`.
    pub fn cooked_2(self) -> Self {
        let inner = self.ether_type().to_be_bytes();
        let rest = [0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0];
        self.behind(&[&inner[..], &rest].concat(), Begins::Link)
    }

    /// The header of a loopback interface, in network byte order: `LINKTYPE_LOOP`, or `LINKTYPE_NULL` of a host with
    /// that order.
    pub fn loopback(self) -> Self {
        let family: u32 = if self.begins == Begins::EtherType(0x0800) { 2 } else { 24 };
        self.behind(&family.to_be_bytes(), Begins::Link)
    }

    pub fn finish(self) -> Vec<u8> {
        self.octets
    }

    /// A UDP header to `port`, followed by `header`. (RFC 768.)
    fn udp(self, port: u16, header: &[u8]) -> Self {
        let len = u16::try_from(8 + header.len() + self.octets.len()).unwrap_or(0);
        let udp = [49_152, port, len, 0].map(u16::to_be_bytes).concat();
        self.behind(&[&udp, header].concat(), Begins::Protocol(17))
    }

    fn ipv4(self, source: IpAddr, destination: IpAddr, options: &[u8]) -> Self {
        let header_len = 20 + options.len();
        let total_len = u16::try_from(header_len + self.octets.len()).unwrap_or(0).to_be_bytes();
        let words = header_len as u8 / 4;
        let fixed = [0x40 | words, 0, total_len[0], total_len[1], 0, 0, 0x40, 0, 64, self.protocol(), 0, 0];
        let mut header = [&fixed[..], &octets(source), &octets(destination), options].concat();
        let checksum = !sum(&[&header]);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        self.behind(&header, Begins::EtherType(0x0800))
    }

    fn fragment(&self, source: IpAddr, destination: IpAddr, identification: u16, from: usize, to: usize) -> Self {
        let part = Self { octets: self.octets[from..to].to_vec(), begins: self.begins };
        let (offset, more) = (from as u16, to < self.octets.len());
        if let (IpAddr::V6(_), _) | (_, IpAddr::V6(_)) = (source, destination) {
            let field = (offset | u16::from(more)).to_be_bytes();
            let header = [&[part.protocol(), 0], &field[..], &u32::from(identification).to_be_bytes()].concat();
            return part.behind(&header, Begins::Protocol(44)).ipv6(source, destination);
        }
        let mut packet = part.ipv4(source, destination, &[]);
        let field = (offset / 8) | if more { 0x2000 } else { 0 };
        packet.octets[4..8].copy_from_slice(&[identification, field].map(u16::to_be_bytes).concat());
        packet.octets[10..12].fill(0);
        let checksum = !sum(&[&packet.octets[..20]]);
        packet.octets[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet
    }

    /// RFC 8200, section 3.
    fn ipv6(self, source: IpAddr, destination: IpAddr) -> Self {
        let len = u16::try_from(self.octets.len()).unwrap_or(0).to_be_bytes();
        let fixed = [0x60, 0, 0, 0, len[0], len[1], self.protocol(), 64];
        let header = [&fixed[..], &octets_v6(source), &octets_v6(destination)].concat();
        self.behind(&header, Begins::EtherType(0x86dd))
    }

    fn behind(self, header: &[u8], begins: Begins) -> Self {
        Self { octets: [header, &self.octets].concat(), begins }
    }

    fn ppp_protocol(&self) -> u8 {
        if self.begins == Begins::EtherType(0x0800) { 0x21 } else { 0x57 }
    }

    fn snap(&self) -> Vec<u8> {
        [&[0xaa, 0xaa, 0x03, 0, 0, 0], &self.ether_type().to_be_bytes()[..]].concat()
    }

    /// The protocol number of the first header, which may be an IP header.
    fn protocol(&self) -> u8 {
        match self.begins {
            Begins::Protocol(protocol) => protocol,
            Begins::EtherType(0x0800) => 4,
            Begins::EtherType(0x86dd) => 41,
            begins => panic!("IP does not carry {begins:?}"),
        }
    }

    fn ether_type(&self) -> u16 {
        match self.begins {
            Begins::EtherType(ether_type) => ether_type,
            begins => panic!("there is no EtherType for {begins:?}"),
        }
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn octets_v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}
