//! Headers that are split over fragments (RFC 791, section 3.2; RFC 8200, section 4.5; RFC 5722).

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// The result for each packet; `None`: it is a fragment, and the header is not complete.
fn reassemble(reassembly: &mut Reassembly, decoder: &Decoder, packet: &[u8], time: Timestamp) -> Option<Outcome> {
    let frame = Frame { time, ..frame(LinkType::RAW, packet) };
    let content = match decoder.decode(&frame) {
        Decoded::Other(Other::Fragment) => reassembly.complete(decoder, &frame),
        other => other,
    };
    match content {
        Decoded::Segment(segment) => Some(Outcome::of(&segment, true)),
        Decoded::FirstFragment(segment) => Some(Outcome::of(&segment, false)),
        Decoded::Other(Other::Fragment) => None,
        Decoded::Other(other) => panic!("{other}"),
    }
}

/// A segment with its data.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Outcome {
    segment: Segment<'static>,
    data: Vec<u8>,
    is_whole: bool,
}

impl Outcome {
    fn of(segment: &Segment<'_>, is_whole: bool) -> Self {
        let &Segment { time, source, destination, sequence, acknowledgment, flags, window, len, data } = segment;
        let segment = Segment { time, source, destination, sequence, acknowledgment, flags, window, len, data: b"" };
        Self { segment, data: data.to_vec(), is_whole }
    }
}

/// A SYN with 20 octets of options and `len` of data.
fn split(version: u8, len: usize, identification: u16, offsets: &[usize]) -> (Outcome, Vec<Vec<u8>>) {
    let data: Vec<u8> = (0..len).map(|at| at as u8).collect();
    let segment = Segment { flags: Flags::SYN, len: len as u32, data: &data, ..segment(version) };
    let fragments = Builder::tcp(&segment, &[1; 20]).fragments(
        segment.source.ip(),
        segment.destination.ip(),
        identification,
        offsets,
    );
    (Outcome::of(&segment, true), fragments.into_iter().map(Builder::finish).collect())
}

fn verifying() -> Decoder {
    Decoder { verify_checksums: true, ..Decoder::default() }
}

#[test]
fn a_header_in_two_fragments_is_read_wherever_it_is_split() {
    for (version, len, at) in [4, 6].into_iter().flat_map(|version| {
        [0, 1, 60].into_iter().flat_map(move |len| (8..40 + len).step_by(8).map(move |at| (version, len, at)))
    }) {
        let (expected, fragments) = split(version, len, 7, &[at]);
        for order in [[0, 1], [1, 0]] {
            let mut reassembly = Reassembly::default();
            let outcomes = order.map(|n| reassemble(&mut reassembly, &verifying(), &fragments[n], TIME));
            let context = format!("IPv{version}, {len} octets of data, split at {at}, in order {order:?}");
            if at < 40 {
                assert_eq!(outcomes, [None, Some(expected.clone())], "{context}");
            } else {
                // The decoder alone has the header.
                assert_eq!(outcomes.iter().flatten().count(), 1, "{context}");
            }
        }
    }
}

proptest! {
    /// Split anywhere, in any order, with duplicates.
    #[test]
    fn any_fragments_give_the_same_segment(
        version in prop::sample::select(vec![4u8, 6]),
        len in 0..200usize,
        cuts in vec(1..30usize, 0..12),
        order in vec(any::<prop::sample::Index>(), 60),
        seconds in 0..=30u64,
    ) {
        let mut offsets: Vec<_> = cuts.into_iter().map(|cut| cut * 8).filter(|at| *at < 40 + len).collect();
        offsets.push(8);
        offsets.sort_unstable();
        offsets.dedup();
        let (expected, fragments) = split(version, len, 7, &offsets);
        let mut order: Vec<_> = order.iter().map(|at| at.index(fragments.len())).collect();
        order.extend(0..fragments.len());
        let mut reassembly = Reassembly::default();
        let mut outcome = None;
        for (at, fragment) in order.into_iter().enumerate() {
            let time = if at == 0 { TIME } else { TIME + Duration::from_secs(seconds) };
            outcome = reassemble(&mut reassembly, &verifying(), &fragments[fragment], time);
            if let Some(Outcome { segment, .. }) = &outcome {
                prop_assert_eq!(segment.time, time);
                break;
            }
        }
        let Some(Outcome { segment, data, is_whole }) = outcome else { panic!("no segment") };
        prop_assert_eq!(Segment { time: TIME, len: expected.segment.len, ..segment }, expected.segment);
        prop_assert!(expected.data.starts_with(&data) && data.len() <= segment.len as usize);
        prop_assert_eq!(is_whole, segment.len == expected.segment.len);
    }

    /// Arbitrary fragment headers around arbitrary octets.
    #[test]
    fn hostile_fragments_never_panic(
        packets in vec((any::<bool>(), 0..4u8, 0..20u16, any::<bool>(), vec(any::<u8>(), 0..40), 0..3u64), 0..60),
    ) {
        let mut reassembly = Reassembly::default();
        for (is_v6, identification, unit, more, payload, seconds) in packets {
            let packet = crafted(if is_v6 { 6 } else { 4 }, identification.into(), unit * 8, more, &payload);
            let frame = Frame { time: TIME + Duration::from_secs(seconds * 20), ..frame(LinkType::RAW, &packet) };
            if let Decoded::Segment(segment) | Decoded::FirstFragment(segment) = reassembly.complete(&Decoder::default(), &frame) {
                prop_assert!(segment.data.len() <= segment.len as usize);
            }
        }
    }
}

/// A TCP fragment from the addresses of the other tests.
fn crafted(version: u8, identification: u16, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let [i0, i1] = identification.to_be_bytes();
    if version == 4 {
        let len = (20 + payload.len() as u16).to_be_bytes();
        let field = ((offset / 8) | if more { 0x2000 } else { 0 }).to_be_bytes();
        let header = patched(&PACKET_V4[..20], 2, &[len[0], len[1], i0, i1, field[0], field[1]]);
        return [&header, payload].concat();
    }
    let len = (8 + payload.len() as u16).to_be_bytes();
    let field = (offset | u16::from(more)).to_be_bytes();
    let header = patched(&PACKET_V6[..40], 4, &[len[0], len[1], 44]);
    [&header, &[6, 0, field[0], field[1], 0, 0, i0, i1][..], payload].concat()
}

#[test]
fn packets_are_told_apart_by_addresses_and_identification() {
    for version in [4, 6] {
        let (expected, ours) = split(version, 0, 7, &[8]);
        let (_, others) = split(version, 0, 8, &[8]);
        let mut reassembly = Reassembly::default();
        let mut next = |packet: &[u8]| reassemble(&mut reassembly, &Decoder::default(), packet, TIME);
        assert_eq!(next(&ours[0]), None);
        assert_eq!(next(&others[1]), None);
        // The last octet of the source.
        let at = if version == 4 { 15 } else { 23 };
        assert_eq!(next(&patched(&ours[1], at, &[99])), None);
        assert_eq!(next(&ours[1]), Some(expected));
        assert_eq!(next(&ours[1]), None, "it is read once");
    }
}

#[test]
fn fragments_are_kept_for_30_s() {
    let (expected, fragments) = split(4, 0, 7, &[8]);
    for (seconds, is_read) in [(30, true), (31, false)] {
        let mut reassembly = Reassembly::default();
        let mut next = |at: usize, seconds| {
            reassemble(&mut reassembly, &Decoder::default(), &fragments[at], TIME + Duration::from_secs(seconds))
        };
        assert_eq!(next(0, 0), None);
        assert_eq!(next(1, seconds).is_some(), is_read);
        if !is_read {
            // The later fragments make a packet of their own.
            let segment = Segment { time: TIME + Duration::from_secs(61), ..expected.segment };
            assert_eq!(next(0, 61), Some(Outcome { segment, ..expected.clone() }));
        }
    }
}

#[test]
fn a_new_packet_replaces_the_oldest_of_256() {
    let packets: Vec<_> = (0..=256).map(|identification| split(6, 0, identification, &[8]).1).collect();
    let mut reassembly = Reassembly::default();
    for packet in &packets {
        assert_eq!(reassemble(&mut reassembly, &Decoder::default(), &packet[0], TIME), None);
    }
    assert_eq!(reassembly.kept(), 256);
    for (at, packet) in packets.iter().enumerate().rev() {
        let outcome = reassemble(&mut reassembly, &Decoder::default(), &packet[1], TIME);
        assert_eq!(outcome.is_some(), at > 0, "{at}");
    }
    assert_eq!(reassembly.kept(), 256, "places are used again");
}

/// Fragments behind the beginning yield neither a header nor another packet's length.
#[test]
fn fragments_far_behind_the_header_take_no_place() {
    let mut reassembly = Reassembly::default();
    for (more, payload) in [(true, &[0; 8][..]), (false, &[0; 5])] {
        let packet = crafted(4, 7, 1480, more, payload);
        assert_eq!(reassemble(&mut reassembly, &Decoder::default(), &packet, TIME), None);
    }
    assert_eq!(reassembly.kept(), 0);
}

#[test]
fn the_last_fragment_gives_the_length() {
    let (expected, fragments) = split(4, 1000, 7, &[8, 24, 1000]);
    for (order, len, is_whole) in [
        (&[0, 1, 2][..], 960, false),
        (&[0, 2, 1], 960, false),
        (&[3, 0, 1, 2], 960, false),
        (&[0, 1, 3, 2], 1000, true),
    ] {
        let mut reassembly = Reassembly::default();
        let mut next = |at: &usize| reassemble(&mut reassembly, &Decoder::default(), &fragments[*at], TIME);
        let (last, before) = order.split_last().unwrap();
        assert!(before.iter().all(|at| next(at).is_none()), "{order:?}");
        let outcome = next(last).unwrap();
        let segment = Segment { len, ..expected.segment };
        assert_eq!((outcome.segment, outcome.is_whole), (segment, is_whole), "{order:?}");
        assert_eq!(outcome.data, expected.data[..88], "{order:?}: 128 octets with the header");
    }
}

/// RFC 5722, section 4: the packet is discarded in IPv6. In IPv4 the first octets count.
#[test]
fn overlaps() {
    for version in [4, 6] {
        let (expected, fragments) = split(version, 0, 7, &[8, 16]);
        // It covers the second fragment and a part of the third, with other octets.
        let other = crafted(version, 7, 8, true, &[0xee; 16]);
        let mut reassembly = Reassembly::default();
        let mut next = |packet: &[u8]| reassemble(&mut reassembly, &Decoder::default(), packet, TIME);
        assert_eq!([next(&fragments[0]), next(&fragments[1]), next(&fragments[1])], [None, None, None], "a duplicate");
        if version == 6 {
            assert_eq!([next(&other), next(&fragments[2]), next(&fragments[0])], [None, None, None]);
        } else {
            // Nor does the octet 0xee count, which would make the header longer.
            assert_eq!(next(&crafted(4, 7, 0, true, &[0xee; 16])), None);
            assert_eq!(next(&fragments[2]), Some(expected));
        }
    }
}

/// RFC 8200, section 4.5: a length that is not a multiple of 8, or an end beyond 65,535 octets.
#[test]
fn fragments_that_no_host_accepts_are_malformed() {
    for version in [4, 6] {
        for (offset, more, len) in [(8, true, 7), (65_528, false, 9), (8, false, 0)] {
            let packet = crafted(version, 7, offset, more, &vec![0; len]);
            let mut reassembly = Reassembly::default();
            let decoded = reassembly.complete(&Decoder::default(), &frame(LinkType::RAW, &packet));
            assert_eq!(decoded, Decoded::Other(Other::Malformed), "IPv{version}: {len} octets at {offset}");
        }
    }
    let begun = crafted(4, 7, 0, true, &PACKET_V4[20..28]);
    let no_header = crafted(4, 7, 8, false, &PACKET_V4[28..36]);
    let mut reassembly = Reassembly::default();
    assert_eq!(reassemble(&mut reassembly, &Decoder::default(), &begun, TIME), None);
    let decoded = reassembly.complete(&Decoder::default(), &frame(LinkType::RAW, &no_header));
    assert_eq!(decoded, Decoded::Other(Other::Malformed), "a packet of 16 octets");
}

/// The header's checksum covers all octets. It is verified if all are stored.
#[test]
fn checksums_of_split_segments_are_verified() {
    let (_, fragments) = split(6, 8, 7, &[8]);
    let wrong = patched(&fragments[1], fragments[1].len() - 1, &[0xee]);
    let mut reassembly = Reassembly::default();
    assert_eq!(reassemble(&mut reassembly, &verifying(), &fragments[0], TIME), None);
    let decoded = reassembly.complete(&verifying(), &frame(LinkType::RAW, &wrong));
    assert_eq!(decoded, Decoded::Other(Other::Checksum));
}

/// The capture has 20 octets of the header, the wire had all of it.
#[test]
fn a_capture_may_end_within_the_options() {
    let (expected, fragments) = split(4, 100, 7, &[8]);
    let mut reassembly = Reassembly::default();
    assert_eq!(reassemble(&mut reassembly, &Decoder::default(), &fragments[0], TIME), None);
    let snapped = Frame { len: fragments[1].len() as u32, ..frame(LinkType::RAW, &fragments[1][..20 + 16]) };
    assert_eq!(reassembly.complete(&Decoder::default(), &snapped), Decoded::Segment(expected.segment));
}

/// RFC 8200, section 4.1: each header occurs once.
#[test]
fn a_fragment_of_a_fragment_is_malformed() {
    let inner = [6, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    let packet = patched(&crafted(6, 7, 0, true, &inner), 40, &[44]);
    assert_eq!(decode(LinkType::RAW, &packet), Decoded::Other(Other::Malformed));
}
