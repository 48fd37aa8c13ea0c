#![allow(clippy::unwrap_used)]

mod fragments;
mod properties;

use std::net::SocketAddr;

use super::*;
use crate::build::{Builder, Gre};
use crate::checksum;
use crate::{Flags, LinkType, Segment, Timestamp, UnknownLinkType};

const TIME: Timestamp = Timestamp(1_800_000_000_123_456_789);

/// A packet octet by octet: from 192.0.2.1 to 198.51.100.2, with four octets of data.
const PACKET_V4: [u8; 44] = [
    0x45, 0x00, 0x00, 0x2c, 0x12, 0x34, 0x40, 0x00, 0x40, 0x06, 0x3c, 0x61, 192, 0, 2, 1, 198, 51, 100,
    2, // RFC 791
    0xc0, 0x00, 0x01, 0xbb, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x50, 0x18, 0x20, 0x00, 0xf8, 0xfe, 0, 0,
    b'd', b'a', b't', b'a', // RFC 9293, section 3.1
];

/// The same over IPv6.
const PACKET_V6: [u8; 64] = [
    0x60, 0x00, 0x00, 0x00, 0x00, 0x18, 0x06, 0x40, // RFC 8200, section 3
    0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, //
    0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, //
    0xc0, 0x00, 0x01, 0xbb, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x50, 0x18, 0x20, 0x00, 0x89, 0xc1, 0, 0,
    b'd', b'a', b't', b'a',
];

const ETHERNET: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

fn segment(version: u8) -> Segment<'static> {
    let (source, destination) = match version {
        4 => ("192.0.2.1:49152", "198.51.100.2:443"),
        _ => ("[2001:db8::1]:49152", "[2001:db8::2]:443"),
    };
    Segment {
        time: TIME,
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        sequence: 0x0102_0304,
        acknowledgment: 0x0506_0708,
        flags: Flags::PSH.with(Flags::ACK),
        window: 0x2000,
        len: 4,
        data: b"data",
    }
}

fn frame(link: LinkType, data: &[u8]) -> Frame<'_> {
    Frame { time: TIME, link, len: data.len() as u32, data }
}

fn decode(link: LinkType, data: &[u8]) -> Decoded<'_> {
    Decoder::default().decode(&frame(link, data))
}

fn verify(data: &[u8]) -> Decoded<'_> {
    let decoder = Decoder { verify_checksums: true, ..Decoder::default() };
    decoder.decode(&frame(LinkType::RAW, data))
}

/// `octets` with others from `at` on.
fn patched(octets: &[u8], at: usize, others: &[u8]) -> Vec<u8> {
    let mut patched = octets.to_vec();
    patched[at..at + others.len()].copy_from_slice(others);
    patched
}

/// A valid IPv4 segment to put headers around.
fn builder() -> Builder {
    let segment = segment(4);
    Builder::tcp(&segment, &[]).ip(segment.source.ip(), segment.destination.ip())
}

fn outer() -> (std::net::IpAddr, std::net::IpAddr) {
    ("203.0.113.1".parse().unwrap(), "203.0.113.2".parse().unwrap())
}

/// <https://www.tcpdump.org/linktypes.html>; VLAN tags: IEEE 802.1Q, clause 9; MPLS: RFC 3032, section 2.1; `PPPoE`:
/// RFC 2516, section 4.
#[test]
fn link_layers() {
    let cooked = [0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0];
    let cooked_2 = [0, 0, 0, 0, 0, 2, 0, 1, 4, 6, 2, 0, 0, 0, 0, 1, 0, 0];
    let wireless = |ether_type: [u8; 2]| [&[0x08; 22][..], &[0x10, 0], &SNAP, &ether_type].concat();
    let prism = |len: [u8; 4], rest| {
        let ether_type = if len[0] == 0 { [0x08, 0x00] } else { [0x86, 0xdd] };
        [&[0, 0, 0, 0x44], &len[..], &vec![0; rest], &wireless(ether_type)].concat()
    };
    let avs = [&[0x80, 0x21, 0x10, 0x02, 0, 0, 0, 12, 0, 0, 0, 0][..], &wireless([0x08, 0x00])].concat();
    let cases: [(LinkType, Vec<u8>, &[u8], u8); 43] = [
        (LinkType::ETHERNET, [&ETHERNET[..], &[0x88, 0x47, 0, 0x01, 0x01, 64]].concat(), &PACKET_V4, 4),
        (LinkType::ETHERNET, [&ETHERNET[..], &[0x88, 0x48, 0, 0x01, 0, 64, 0, 0, 0x21, 64]].concat(), &PACKET_V6, 6),
        (LinkType::ETHERNET, [&ETHERNET[..], &[0x88, 0x64, 0x11, 0, 0, 9, 0, 46, 0, 0x21]].concat(), &PACKET_V4, 4),
        (
            LinkType::ETHERNET,
            [&ETHERNET[..], &[0x81, 0, 0, 7, 0x88, 0x64, 0x11, 0, 0, 9, 0, 66, 0, 0x57]].concat(),
            &PACKET_V6,
            6,
        ),
        (LinkType::LINUX_SLL2, [&[0x88, 0x47], &cooked_2[..], &[0, 0x01, 0x01, 64]].concat(), &PACKET_V6, 6),
        (LinkType::ETHERNET, [&ETHERNET[..], &[0x08, 0x00]].concat(), &PACKET_V4, 4),
        (LinkType::ETHERNET, [&ETHERNET[..], &[0x86, 0xdd]].concat(), &PACKET_V6, 6),
        (LinkType::ETHERNET, [&ETHERNET[..], &[0x81, 0x00, 0x20, 0x64, 0x08, 0x00]].concat(), &PACKET_V4, 4),
        (
            LinkType::ETHERNET,
            [&ETHERNET[..], &[0x88, 0xa8, 0, 7, 0x81, 0x00, 0, 8, 0x86, 0xdd]].concat(),
            &PACKET_V6,
            6,
        ),
        (
            LinkType::ETHERNET,
            [&ETHERNET[..], &[0x91, 0x00, 0, 7, 0x91, 0x00, 0, 8, 0x81, 0x00, 0, 9, 0x08, 0x00]].concat(),
            &PACKET_V4,
            4,
        ),
        (LinkType::RAW, vec![], &PACKET_V4, 4),
        (LinkType::RAW, vec![], &PACKET_V6, 6),
        (LinkType::RAW_BSD, vec![], &PACKET_V4, 4),
        (LinkType::RAW_OPENBSD, vec![], &PACKET_V6, 6),
        (LinkType::IPV4, vec![], &PACKET_V4, 4),
        (LinkType::IPV6, vec![], &PACKET_V6, 6),
        (LinkType::NULL, vec![2, 0, 0, 0], &PACKET_V4, 4),
        (LinkType::NULL, vec![0, 0, 0, 2], &PACKET_V4, 4),
        (LinkType::NULL, vec![24, 0, 0, 0], &PACKET_V6, 6),
        (LinkType::NULL, vec![28, 0, 0, 0], &PACKET_V6, 6),
        (LinkType::NULL, vec![0, 0, 0, 30], &PACKET_V6, 6),
        (LinkType::LOOP, vec![0, 0, 0, 2], &PACKET_V4, 4),
        (LinkType::LOOP, vec![0, 0, 0, 24], &PACKET_V6, 6),
        (LinkType::LINUX_SLL, [&cooked[..], &[0x08, 0x00]].concat(), &PACKET_V4, 4),
        (LinkType::LINUX_SLL, [&cooked[..], &[0x81, 0x00, 0, 1, 0x86, 0xdd]].concat(), &PACKET_V6, 6),
        (LinkType::LINUX_SLL2, [&[0x08, 0x00], &cooked_2[..]].concat(), &PACKET_V4, 4),
        (LinkType::LINUX_SLL2, [&[0x86, 0xdd], &cooked_2[..]].concat(), &PACKET_V6, 6),
        (LinkType::PPP, vec![0x00, 0x21], &PACKET_V4, 4),
        (LinkType::PPP, vec![0x57], &PACKET_V6, 6),
        (LinkType::PPP, vec![0xff, 0x03, 0x21], &PACKET_V4, 4),
        (LinkType::PPP_HDLC, vec![0x0f, 0x00, 0x08, 0x00], &PACKET_V4, 4),
        (LinkType::C_HDLC, vec![0x8f, 0x00, 0x86, 0xdd], &PACKET_V6, 6),
        (LinkType::PPP_ETHER, vec![0x11, 0, 0, 7, 0, 99, 0x21], &PACKET_V4, 4),
        (LinkType::FDDI, [&[0x57; 13][..], &SNAP, &[0x08, 0x00]].concat(), &PACKET_V4, 4),
        (LinkType::IEEE802_11, [&[0x08; 22][..], &[0x10, 0], &SNAP, &[0x08, 0x00]].concat(), &PACKET_V4, 4),
        // Quality of service and more control; between access points; behind padding.
        (LinkType::IEEE802_11, [&[0x88; 22][..], &[0; 8], &SNAP, &[0x86, 0xdd]].concat(), &PACKET_V6, 6),
        (LinkType::IEEE802_11, [&[0x08, 0x03], &[0; 28][..], &SNAP, &[0x08, 0x00]].concat(), &PACKET_V4, 4),
        (
            LinkType::IEEE802_11_RADIOTAP,
            [&[0, 0, 13, 0, 2, 0, 0, 0x80, 0, 0, 0, 0, 0x20, 0x88, 0x01][..], &[0; 26], &SNAP, &[0x08, 0x00]].concat(),
            &PACKET_V4,
            4,
        ),
        (LinkType::IEEE802_11_PRISM, prism([0, 0, 0, 144], 136), &PACKET_V4, 4),
        (LinkType::IEEE802_11_PRISM, prism([144, 0, 0, 0], 136), &PACKET_V6, 6),
        (LinkType::IEEE802_11_PRISM, avs.clone(), &PACKET_V4, 4),
        (LinkType::IEEE802_11_AVS, avs, &PACKET_V4, 4),
        (LinkType::NFLOG, vec![2, 0, 0, 0, 0, 5, 0, 10, b'x', 0, 0, 0, 0, 4, 0, 9], &PACKET_V4, 4),
    ];
    for (link, header, packet, version) in cases {
        let octets = [&header, packet].concat();
        assert_eq!(decode(link, &octets), Decoded::Segment(segment(version)), "{link:?} {header:x?}");
        assert_eq!(link.known(), Ok(link));
        assert_eq!(decode(LinkType(147), &octets), Decoded::Other(Other::LinkType));
    }
}

/// LLC and SNAP, without the type.
const SNAP: [u8; 6] = [0xaa, 0xaa, 0x03, 0, 0, 0];

#[test]
fn other_link_types_are_refused_by_number() {
    let refused = LinkType(147).known().unwrap_err();
    assert_eq!(refused, UnknownLinkType(147));
    assert!(refused.to_string().contains("147"));
}

#[test]
fn what_is_no_segment_has_a_reason() {
    let tags = [0x81, 0x00, 0, 1].repeat(10);
    let labels = [0x88, 0x47].into_iter().chain([0, 0x01, 0, 64].repeat(17)).collect::<Vec<u8>>();
    let cases: [(&str, LinkType, Vec<u8>, Other); 41] = [
        ("labels", LinkType::ETHERNET, [&ETHERNET[..], &labels, &PACKET_V4].concat(), Other::TooDeep),
        ("encrypted", LinkType::IEEE802_11, [&[0x08, 0x41, 0, 0][..], &[0; 20], &SNAP].concat(), Other::NotIp),
        ("no data", LinkType::IEEE802_11, [0x48; 30].to_vec(), Other::NotIp),
        ("a beacon", LinkType::IEEE802_11, [&[0x80][..], &[0; 30]].concat(), Other::NotIp),
        ("a later part", LinkType::IEEE802_11, [&[0x08, 0x01][..], &[1; 30]].concat(), Other::Fragment),
        ("several in one", LinkType::IEEE802_11, [&[0x88, 0x01][..], &[0; 22], &[0x80, 0]].concat(), Other::NotIp),
        ("short radiotap", LinkType::IEEE802_11_RADIOTAP, vec![0, 0, 7, 0, 0, 0, 0, 0, 8, 1], Other::Malformed),
        ("short Prism", LinkType::IEEE802_11_PRISM, vec![0, 0, 0, 0x44, 7, 0, 0, 0, 8, 1], Other::Malformed),
        ("long AVS", LinkType::IEEE802_11_AVS, vec![0x80, 0x21, 0x10, 1, 1, 0, 0, 0, 8, 1], Other::Malformed),
        ("a token", LinkType::FDDI, [0x80; 40].to_vec(), Other::NotIp),
        ("LCP", LinkType::PPP_HDLC, vec![0xff, 0x03, 0xc0, 0x21, 1], Other::NotIp),
        ("an attribute of nothing", LinkType::NFLOG, [2, 0, 0, 0, 0, 0, 0, 10].to_vec(), Other::Malformed),
        (
            "endless attributes",
            LinkType::NFLOG,
            [&[2, 0, 0, 0][..], &[4, 0, 10, 0].repeat(99)].concat(),
            Other::TooDeep,
        ),
        (
            "a pseudowire",
            LinkType::ETHERNET,
            [&ETHERNET[..], &[0x88, 0x47, 0, 0x01, 0x01, 64], &[0; 60]].concat(),
            Other::NotIp,
        ),
        (
            "PPPoE's discovery",
            LinkType::ETHERNET,
            [&ETHERNET[..], &[0x88, 0x63, 0x11, 9], &[0; 46]].concat(),
            Other::NotIp,
        ),
        (
            "PPP's own",
            LinkType::ETHERNET,
            [&ETHERNET[..], &[0x88, 0x64, 0x11, 0, 0, 9, 0, 46, 0xc0, 0x21], &[0; 44]].concat(),
            Other::NotIp,
        ),
        (
            "no data of PPPoE",
            LinkType::ETHERNET,
            [&ETHERNET[..], &[0x88, 0x64, 0x11, 0xa7, 0, 9, 0, 46, 0, 0x21], &PACKET_V4].concat(),
            Other::NotIp,
        ),
        ("ARP", LinkType::ETHERNET, [&ETHERNET[..], &[0x08, 0x06], &[0; 46]].concat(), Other::NotIp),
        ("802.3", LinkType::ETHERNET, [&ETHERNET[..], &[0x00, 0x2e], &[0; 46]].concat(), Other::NotIp),
        ("tags", LinkType::ETHERNET, [&ETHERNET[..], &tags, &[0x08, 0x00], &PACKET_V4].concat(), Other::TooDeep),
        ("a short frame", LinkType::ETHERNET, ETHERNET.to_vec(), Other::Malformed),
        ("family 7", LinkType::NULL, [&[7, 0, 0, 0], &PACKET_V4[..]].concat(), Other::NotIp),
        ("version 5", LinkType::RAW, patched(&PACKET_V4, 0, &[0x55]), Other::NotIp),
        ("version 6 for 4", LinkType::IPV4, patched(&PACKET_V4, 0, &[0x65]), Other::Malformed),
        ("version 4 for 6", LinkType::IPV6, patched(&PACKET_V6, 0, &[0x40]), Other::Malformed),
        ("a header of 16 octets", LinkType::RAW, patched(&PACKET_V4, 0, &[0x44]), Other::Malformed),
        ("19 octets in all", LinkType::RAW, patched(&PACKET_V4, 2, &[0, 19]), Other::Malformed),
        ("options beyond its length", LinkType::RAW, patched(&PACKET_V4, 0, &[0x4f]), Other::Malformed),
        ("39 octets in all", LinkType::RAW, patched(&PACKET_V4, 2, &[0, 39]), Other::Malformed),
        ("UDP", LinkType::RAW, patched(&PACKET_V4, 9, &[17]), Other::NotTcp),
        ("UDP of 7 octets", LinkType::RAW, patched(&patched(&PACKET_V4, 9, &[17]), 2, &[0, 27]), Other::Malformed),
        ("ICMP", LinkType::RAW, patched(&PACKET_V4, 9, &[1]), Other::NotTcp),
        ("no next header", LinkType::RAW, patched(&PACKET_V6, 6, &[59]), Other::NotTcp),
        ("ESP", LinkType::RAW, patched(&PACKET_V6, 6, &[50]), Other::NotTcp),
        ("IPv6's options in IPv4", LinkType::RAW, patched(&PACKET_V4, 9, &[60]), Other::NotTcp),
        ("19 octets of TCP", LinkType::RAW, patched(&PACKET_V6, 4, &[0, 19]), Other::Malformed),
        ("a TCP header of 16", LinkType::RAW, patched(&PACKET_V4, 32, &[0x40]), Other::Malformed),
        ("TCP options beyond", LinkType::RAW, patched(&PACKET_V4, 32, &[0xf0]), Other::Malformed),
        ("a later fragment", LinkType::RAW, patched(&PACKET_V4, 6, &[0x20, 0x01]), Other::Fragment),
        ("a far fragment", LinkType::RAW, patched(&PACKET_V4, 6, &[0x30, 0x00]), Other::Fragment),
        ("the last fragment", LinkType::RAW, patched(&PACKET_V4, 6, &[0x00, 0xb9]), Other::Fragment),
    ];
    for (what, link, octets, reason) in cases {
        assert_eq!(decode(link, &octets), Decoded::Other(reason), "{what}");
    }
    assert_eq!(Other::ALL.map(|other| other as usize), [0, 1, 2, 3, 4, 5, 6, 7]);
}

/// Truncated at each length: the addresses need the octets before the TCP options.
#[test]
fn what_the_capture_cut_off_is_unknown() {
    let segment = segment(4);
    let whole = Builder::tcp(&segment, &[1; 12]).ip(segment.source.ip(), segment.destination.ip()).ethernet().finish();
    let header_len = 14 + 20 + 20;
    for kept in 0..=whole.len() {
        let snapped = Frame { data: &whole[..kept], len: whole.len() as u32, ..frame(LinkType::ETHERNET, &[]) };
        let data = &segment.data[..kept.saturating_sub(header_len + 12).min(4)];
        let expected = if kept < header_len {
            Decoded::Other(Other::Truncated)
        } else {
            Decoded::Segment(Segment { data, ..segment })
        };
        assert_eq!(Decoder::default().decode(&snapped), expected, "of {kept} octets");
    }
}

/// A header that ends with the frame may be truncated like any other.
#[test]
fn what_ends_with_a_header_may_be_cut_off_too() {
    let without_data = patched(&PACKET_V4[..40], 2, &[0, 40]);
    for kept in 1..40 {
        let snapped = Frame { len: 40, ..frame(LinkType::RAW, &without_data[..kept]) };
        assert_eq!(Decoder::default().decode(&snapped), Decoded::Other(Other::Truncated), "of {kept} octets");
    }
}

/// RFC 894: data fields are padded to 46 octets.
#[test]
fn padding_is_no_data() {
    let without_data = patched(&PACKET_V4[..40], 2, &[0, 40]);
    let padded = [&ETHERNET[..], &[0x08, 0x00], &without_data, &[0xff; 6]].concat();
    let expected = Segment { len: 0, data: b"", ..segment(4) };
    assert_eq!(decode(LinkType::ETHERNET, &padded), Decoded::Segment(expected));
}

/// The capture of a host that leaves segmentation to its network card; for IPv6 also RFC 2675, section 3.
#[test]
fn packets_longer_than_their_length_field_are_as_long_as_the_frame() {
    for (packet, length_at, version) in [(&PACKET_V4[..], 2, 4), (&PACKET_V6, 4, 6)] {
        let packet = patched(packet, length_at, &[0, 0]);
        let frame = Frame { len: 100_000, ..frame(LinkType::RAW, &packet) };
        let len = 100_000 - packet.len() as u32 + 4;
        assert_eq!(Decoder::default().decode(&frame), Decoded::Segment(Segment { len, ..segment(version) }));
    }
}

/// Some tools write the captured length as the length on the wire, too.
#[test]
fn the_packet_knows_better_than_the_frame_how_long_it_was() {
    let packet = patched(&PACKET_V4, 2, &[0x05, 0xdc]);
    assert_eq!(decode(LinkType::RAW, &packet), Decoded::Segment(Segment { len: 1460, ..segment(4) }));
    let none = Frame { len: 0, ..frame(LinkType::RAW, &PACKET_V4) };
    assert_eq!(Decoder::default().decode(&none), Decoded::Segment(segment(4)));
}

/// RFC 791, section 3.2; RFC 8200, section 4.5; RFC 6946.
#[test]
fn first_fragments_have_the_header() {
    let first = patched(&PACKET_V4, 6, &[0x20, 0x00]);
    assert_eq!(decode(LinkType::RAW, &first), Decoded::FirstFragment(segment(4)));

    let fragment = |offset_and_flags: [u8; 2]| {
        let header = [6, 0, offset_and_flags[0], offset_and_flags[1], 0, 0, 0, 1];
        let fixed = patched(&PACKET_V6[..40], 4, &[0, 32, 44]);
        [&fixed[..], &header, &PACKET_V6[40..]].concat()
    };
    assert_eq!(decode(LinkType::RAW, &fragment([0, 1])), Decoded::FirstFragment(segment(6)));
    assert_eq!(decode(LinkType::RAW, &fragment([0, 9])), Decoded::Other(Other::Fragment));
    assert_eq!(decode(LinkType::RAW, &fragment([0, 8])), Decoded::Other(Other::Fragment));
    assert_eq!(decode(LinkType::RAW, &fragment([0, 0])), Decoded::Segment(segment(6)));
}

/// RFC 8200, section 4; RFC 4302, section 2.2; RFC 6275, section 6.1.1.
#[test]
fn extension_headers_are_gone_past() {
    let segment = segment(6);
    let (source, destination) = (segment.source.ip(), segment.destination.ip());
    let tcp = || Builder::tcp(&segment, &[]);
    let stacked = tcp().extension(60, 1).extension(43, 3).extension(135, 2).extension(0, 1).ip(source, destination);
    assert_eq!(decode(LinkType::RAW, &stacked.finish()), Decoded::Segment(segment));

    // 24 octets: (4 + 2) * 4.
    let authentication = [&[6, 4], &[0; 22][..]].concat();
    let fixed = patched(&PACKET_V6[..40], 4, &[0, 48, 51]);
    let authenticated = [&fixed[..], &authentication, &PACKET_V6[40..]].concat();
    assert_eq!(decode(LinkType::RAW, &authenticated), Decoded::Segment(segment));

    let endless = (0..9).fold(tcp(), |inner, _| inner.extension(60, 1)).ip(source, destination);
    assert_eq!(decode(LinkType::RAW, &endless.finish()), Decoded::Other(Other::TooDeep));
}

#[test]
fn ipv4_options_are_gone_past() {
    let segment = segment(4);
    let (source, destination) = (segment.source.ip(), segment.destination.ip());
    let octets = Builder::tcp(&segment, &[1; 40]).ipv4_with_options(source, destination, &[1; 40]).finish();
    assert_eq!(verify(&octets), Decoded::Segment(segment));
}

/// Octet by octet, around the IPv4 packet. IP in IP: RFC 2003; RFC 4213, section 3. GRE: RFC 2784, RFC 2890; around
/// Ethernet RFC 1701. VXLAN: RFC 7348, section 5. Geneve: RFC 8926, section 3.4. ERSPAN: draft-foschiano-erspan-03,
/// section 4.
#[test]
fn tunnels() {
    let ethernet = [&ETHERNET[..], &[0x08, 0x00], &PACKET_V4].concat();
    let cases: [(&str, u8, Vec<u8>, &[u8]); 15] = [
        ("IP in IP", 4, vec![], &PACKET_V4),
        ("IPv6 in IPv4", 41, vec![], &PACKET_V6),
        ("GRE", 47, vec![0, 0, 0x08, 0x00], &PACKET_V4),
        ("GRE around IPv6", 47, vec![0, 0, 0x86, 0xdd], &PACKET_V6),
        ("GRE with a key", 47, vec![0x20, 0, 0x08, 0x00, 0, 0, 0, 9], &PACKET_V4),
        ("GRE with all", 47, [&[0xb0, 0, 0x08, 0x00], &[0; 12][..]].concat(), &PACKET_V4),
        ("GRE around Ethernet", 47, vec![0, 0, 0x65, 0x58], &ethernet),
        ("VXLAN", 17, vec![0xc0, 0, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0], &ethernet),
        ("MPLS in GRE", 47, vec![0, 0, 0x88, 0x47, 0, 0x01, 0x01, 64], &PACKET_V4),
        ("ERSPAN I", 47, vec![0, 0, 0x88, 0xbe], &ethernet),
        ("ERSPAN II", 47, [&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1], &[0x10, 0, 0, 7, 0, 0, 0, 0][..]].concat(), &ethernet),
        (
            "ERSPAN III",
            47,
            [&[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1], &[0x20, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0x80, 0][..]].concat(),
            &ethernet,
        ),
        (
            "with more",
            47,
            [&[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1][..], &[0x20, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1], &[0; 8][..]].concat(),
            &ethernet,
        ),
        ("Geneve", 17, vec![0xc0, 0, 0x17, 0xc1, 0, 0, 0, 0, 0, 0, 0x65, 0x58, 0, 0, 7, 0], &ethernet),
        (
            "with options",
            17,
            vec![0xc0, 0, 0x17, 0xc1, 0, 0, 0, 0, 1, 0x40, 0x86, 0xdd, 0, 0, 7, 0, 0, 0, 7, 0],
            &PACKET_V6,
        ),
    ];
    for (what, protocol, header, packet) in cases {
        let len = (20 + header.len() + packet.len()) as u16;
        let fixed = patched(&patched(&PACKET_V4[..20], 9, &[protocol]), 2, &len.to_be_bytes());
        let octets = [&fixed, &header, packet].concat();
        let version = if packet == PACKET_V6 { 6 } else { 4 };
        assert_eq!(decode(LinkType::RAW, &octets), Decoded::Segment(segment(version)), "{what}");
        // The same in IPv6 (RFC 2473).
        let len = (header.len() + packet.len()) as u16;
        let fixed = patched(&patched(&PACKET_V6[..40], 6, &[protocol]), 4, &len.to_be_bytes());
        let octets = [&fixed, &header, packet].concat();
        assert_eq!(decode(LinkType::RAW, &octets), Decoded::Segment(segment(version)), "{what} in IPv6");
    }
}

#[test]
fn what_only_looks_like_a_tunnel() {
    let (from, to) = outer();
    let vxlan = builder().ethernet().vxlan(4789).ip(from, to).finish();
    let gre = builder().gre(Gre::default()).ip(from, to).finish();
    let geneve = builder().geneve(4).ip(from, to).finish();
    let erspan = builder().ethernet().erspan(true).ip(from, to).finish();
    let cases = [
        ("Geneve's next version", patched(&geneve, 28, &[0x41]), Other::NotTcp),
        ("Geneve's own", patched(&geneve, 29, &[0x80]), Other::NotTcp),
        ("Geneve around something", patched(&geneve, 30, &[0x88, 0x0b]), Other::NotIp),
        ("Geneve that ends", patched(&patched(&geneve, 28, &[0x3f]), 2, &[0, 60]), Other::Malformed),
        ("IP in ERSPAN III", patched(&erspan, 38, &[0x88]), Other::NotIp),
        ("another port", patched(&vxlan, 22, &[0x21, 0x18]), Other::NotTcp),
        ("the port as source", patched(&vxlan, 20, &[0x12, 0xb5, 0xc0, 0x00]), Other::NotTcp),
        ("no network identifier", patched(&vxlan, 28, &[0]), Other::NotTcp),
        ("ARP in VXLAN", patched(&vxlan, 48, &[0x08, 0x06]), Other::NotIp),
        ("GRE with routing", patched(&gre, 20, &[0x40]), Other::NotTcp),
        ("PPTP", patched(&gre, 21, &[1]), Other::NotTcp),
        ("GRE around something", patched(&gre, 22, &[0x88, 0x0b]), Other::NotIp),
        ("GRE that ends", patched(&patched(&gre, 20, &[0xb0]), 2, &[0, 32]), Other::Malformed),
    ];
    for (what, octets, reason) in cases {
        assert_eq!(decode(LinkType::RAW, &octets), Decoded::Other(reason), "{what}");
    }
}

#[test]
fn ports_of_vxlan_can_be_set() {
    let (from, to) = outer();
    let octets = builder().ethernet().vxlan(8472).ip(from, to).finish();
    let decoder = Decoder { vxlan_ports: vec![4789, 8472], ..Decoder::default() };
    assert_eq!(decoder.decode(&frame(LinkType::RAW, &octets)), Decoded::Segment(segment(4)));
    assert_eq!(decode(LinkType::RAW, &octets), Decoded::Other(Other::NotTcp));
}

#[test]
fn tunnels_nest_four_deep() {
    let (from, to) = outer();
    let nested = |depth| (0..depth).fold(builder(), |inner, _| inner.ip(from, to)).finish();
    assert_eq!(decode(LinkType::RAW, &nested(TUNNELS_MAX)), Decoded::Segment(segment(4)));
    assert_eq!(decode(LinkType::RAW, &nested(TUNNELS_MAX + 1)), Decoded::Other(Other::TooDeep));
}

/// A fragment of the outer packet has the beginning of the segment. The inner header has the whole length.
#[test]
fn first_fragments_of_tunnels_have_less_data() {
    let (from, to) = outer();
    let whole = builder().ip(from, to).finish();
    let first = patched(&patched(&whole, 6, &[0x20, 0x00]), 2, &[0, 62]);
    let decoded = decode(LinkType::RAW, &first[..62]);
    assert_eq!(decoded, Decoded::Segment(Segment { data: b"da", ..segment(4) }));
}

/// RFC 1071; RFC 9293, section 3.1.
#[test]
fn checksums_matter_on_demand() {
    assert_eq!(verify(&PACKET_V4), Decoded::Segment(segment(4)));
    assert_eq!(verify(&PACKET_V6), Decoded::Segment(segment(6)));
    for (what, packet) in [
        ("of the IPv4 header", patched(&PACKET_V4, 10, &[0x3c, 0x62])),
        ("of TCP", patched(&PACKET_V4, 36, &[0xf8, 0xff])),
        ("of TCP over IPv6", patched(&PACKET_V6, 56, &[0x89, 0xc2])),
        ("a bit of data", patched(&PACKET_V6, 63, b"b")),
    ] {
        assert_eq!(verify(&packet), Decoded::Other(Other::Checksum), "{what}");
        assert!(matches!(decode(LinkType::RAW, &packet), Decoded::Segment(_)), "{what}");
    }
}

#[test]
fn checksums_that_cannot_be_computed_are_let_pass() {
    let decoder = Decoder { verify_checksums: true, ..Decoder::default() };
    let snapped = Frame { len: PACKET_V6.len() as u32, ..frame(LinkType::RAW, &PACKET_V6[..62]) };
    assert_eq!(decoder.decode(&snapped), Decoded::Segment(Segment { data: b"da", ..segment(6) }));

    let mut first = patched(&PACKET_V4, 6, &[0x20, 0x00]);
    first[10..12].fill(0);
    let checksum = !checksum::sum(&[&first[..20]]);
    let first = patched(&patched(&first, 10, &checksum.to_be_bytes()), 36, &[0, 0]);
    assert_eq!(verify(&first), Decoded::FirstFragment(segment(4)));

    // A routing header (RFC 8200, section 4.4) with one hop left.
    let segment = segment(6);
    let (source, destination): (SocketAddr, SocketAddr) = (segment.source, "[2001:db8::99]:443".parse().unwrap());
    let on_its_way = Segment { destination, ..segment };
    let routed = Builder::tcp(&segment, &[]).extension(43, 3).ip(source.ip(), destination.ip()).finish();
    assert_eq!(verify(&routed), Decoded::Other(Other::Checksum));
    assert_eq!(verify(&patched(&routed, 43, &[1])), Decoded::Segment(on_its_way));
}
