//! A segment comes back from any headers around it. A part of a frame never yields a different segment.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
struct Parts {
    time: u64,
    addresses: (IpAddr, IpAddr),
    ports: (u16, u16),
    numbers: (u32, u32),
    flags: u8,
    window: u16,
    data: Vec<u8>,
    options: Vec<u8>,
}

#[derive(Debug, Clone)]
enum Tunnel {
    Ip,
    Gre(Gre),
    BridgedGre(Gre, Vec<u16>),
    Vxlan(Vec<u16>),
    Geneve(u8),
    BridgedGeneve(u8, Vec<u16>),
    Erspan(bool, Vec<u16>),
}

#[derive(Debug, Clone)]
enum Link {
    Ethernet(Vec<u16>),
    Mpls(Vec<u32>),
    Pppoe(Vec<u16>),
    Raw,
    Cooked,
    Cooked2,
    Loopback,
}

impl Parts {
    fn segment(&self) -> Segment<'_> {
        Segment {
            time: Timestamp(self.time),
            source: SocketAddr::new(self.addresses.0, self.ports.0),
            destination: SocketAddr::new(self.addresses.1, self.ports.1),
            sequence: self.numbers.0,
            acknowledgment: self.numbers.1,
            flags: Flags(self.flags),
            window: self.window,
            len: self.data.len() as u32,
            data: &self.data,
        }
    }

    fn frame(&self, extensions: &[u8], tunnels: &[(Tunnel, (IpAddr, IpAddr))], link: &Link) -> (LinkType, Vec<u8>) {
        let (source, destination) = self.addresses;
        let mut built = Builder::tcp(&self.segment(), &self.options);
        if source.is_ipv6() {
            built = extensions.iter().fold(built, |inner, units| inner.extension(60, *units));
        }
        built = built.ip(source, destination);
        for (tunnel, (source, destination)) in tunnels {
            built = tunnel.around(built).ip(*source, *destination);
        }
        link.around(built)
    }
}

fn tagged(built: Builder, tags: &[u16]) -> Builder {
    tags.iter().fold(built, |inner, tag| inner.vlan(*tag))
}

impl Tunnel {
    fn around(&self, built: Builder) -> Builder {
        match self {
            Self::Ip => built,
            Self::Gre(gre) => built.gre(*gre),
            Self::BridgedGre(gre, tags) => tagged(built, tags).ethernet().gre(*gre),
            Self::Vxlan(tags) => tagged(built, tags).ethernet().vxlan(4789),
            Self::Geneve(words) => built.geneve(words * 4),
            Self::BridgedGeneve(words, tags) => tagged(built, tags).ethernet().geneve(words * 4),
            Self::Erspan(is_iii, tags) => tagged(built, tags).ethernet().erspan(*is_iii),
        }
    }
}

impl Link {
    fn around(&self, built: Builder) -> (LinkType, Vec<u8>) {
        let (link, built) = match self {
            Self::Ethernet(tags) => (LinkType::ETHERNET, tagged(built, tags).ethernet()),
            Self::Mpls(labels) => (LinkType::ETHERNET, built.mpls(labels).ethernet()),
            Self::Pppoe(tags) => (LinkType::ETHERNET, tagged(built.pppoe(), tags).ethernet()),
            Self::Raw => (LinkType::RAW, built),
            Self::Cooked => (LinkType::LINUX_SLL, built.cooked()),
            Self::Cooked2 => (LinkType::LINUX_SLL2, built.cooked_2()),
            Self::Loopback => (LinkType::NULL, built.loopback()),
        };
        (link, built.finish())
    }
}

fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    let v4 = any::<(Ipv4Addr, Ipv4Addr)>().prop_map(|(a, b)| (a.into(), b.into()));
    let v6 = any::<(Ipv6Addr, Ipv6Addr)>().prop_map(|(a, b)| (a.into(), b.into()));
    prop_oneof![v4, v6]
}

prop_compose! {
    fn parts()(
        time: u64,
        addresses in addresses(),
        ports: (u16, u16),
        numbers: (u32, u32),
        flags: u8,
        window: u16,
        data in vec(any::<u8>(), 0..100),
        words in 0..=10usize,
    ) -> Parts {
        Parts { time, addresses, ports, numbers, flags, window, data, options: vec![1; words * 4] }
    }
}

fn tags() -> impl Strategy<Value = Vec<u16>> {
    vec(prop_oneof![Just(0x8100), Just(0x88a8), Just(0x9100)], 0..=4)
}

fn gre() -> impl Strategy<Value = Gre> {
    let parts = (any::<bool>(), option::of(any::<u32>()), option::of(any::<u32>()));
    parts.prop_map(|(checksum, key, sequence)| Gre { checksum, key, sequence })
}

fn tunnel() -> impl Strategy<Value = Tunnel> {
    prop_oneof![
        Just(Tunnel::Ip),
        gre().prop_map(Tunnel::Gre),
        (gre(), tags()).prop_map(|(gre, tags)| Tunnel::BridgedGre(gre, tags)),
        tags().prop_map(Tunnel::Vxlan),
        (0..64u8).prop_map(Tunnel::Geneve),
        (0..64u8, tags()).prop_map(|(words, tags)| Tunnel::BridgedGeneve(words, tags)),
        (any::<bool>(), tags()).prop_map(|(is_iii, tags)| Tunnel::Erspan(is_iii, tags)),
    ]
}

fn link() -> impl Strategy<Value = Link> {
    prop_oneof![
        tags().prop_map(Link::Ethernet),
        vec(0..1u32 << 20, 1..=16).prop_map(Link::Mpls),
        tags().prop_map(Link::Pppoe),
        Just(Link::Raw),
        Just(Link::Cooked),
        Just(Link::Cooked2),
        Just(Link::Loopback),
    ]
}

fn tunnels() -> impl Strategy<Value = Vec<(Tunnel, (IpAddr, IpAddr))>> {
    vec((tunnel(), addresses()), 0..=TUNNELS_MAX)
}

proptest! {
    #[test]
    fn segments_come_back_from_under_any_headers(
        parts in parts(), extensions in vec(1..4u8, 0..=3), tunnels in tunnels(), link in link(),
    ) {
        let (link, octets) = parts.frame(&extensions, &tunnels, &link);
        let whole = Frame { time: Timestamp(parts.time), link, len: octets.len() as u32, data: &octets };
        let expected = parts.segment();
        for verify_checksums in [false, true] {
            let decoder = Decoder { verify_checksums, ..Decoder::default() };
            prop_assert_eq!(decoder.decode(&whole), Decoded::Segment(expected));
        }
        for kept in 0..octets.len() {
            match Decoder::default().decode(&Frame { data: &octets[..kept], ..whole }) {
                Decoded::Segment(segment) => {
                    prop_assert!(expected.data.starts_with(segment.data));
                    prop_assert_eq!(Segment { data: expected.data, ..segment }, expected);
                }
                decoded => prop_assert_eq!(decoded, Decoded::Other(Other::Truncated)),
            }
        }
    }

    /// A part of arbitrary octets, with any frame length.
    #[test]
    fn a_part_of_a_frame_is_unknown_or_the_same(
        parts in parts(), tunnels in tunnels(), link in link(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), len in 0..4096u32,
    ) {
        let (link, mut octets) = parts.frame(&[], &tunnels, &link);
        for (at, octet) in changes {
            *at.get_mut(&mut octets) = octet;
        }
        let whole = Frame { time: TIME, link, len: len.max(octets.len() as u32), data: &octets };
        let expected = Decoder::default().decode(&whole);
        for kept in 0..octets.len() {
            let decoded = Decoder::default().decode(&Frame { data: &octets[..kept], ..whole });
            prop_assert!(decoded == Decoded::Other(Other::Truncated) || without_data(decoded) == without_data(expected));
        }
    }

    #[test]
    fn random_octets_never_panic(link in prop::sample::select(&LinkType::ALL[..]), len: u32, data in vec(any::<u8>(), 0..200)) {
        let frame = Frame { time: TIME, link, len, data: &data };
        let decoder = Decoder { verify_checksums: true, ..Decoder::default() };
        if let Decoded::Segment(segment) | Decoded::FirstFragment(segment) = decoder.decode(&frame) {
            prop_assert!(segment.data.len() <= segment.len as usize);
        }
    }
}

fn without_data(decoded: Decoded<'_>) -> Decoded<'_> {
    match decoded {
        Decoded::Segment(segment) => Decoded::Segment(Segment { data: b"", ..segment }),
        Decoded::FirstFragment(segment) => Decoded::FirstFragment(Segment { data: b"", ..segment }),
        Decoded::Other(other) => Decoded::Other(other),
    }
}
