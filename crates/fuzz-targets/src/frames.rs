//! Captured frames of any link type. The decoder never panics, and a part of a frame yields nothing that the whole
//! frame does not yield.

use arbitrary::Arbitrary;
use watari_packets::{Decoded, Decoder, Frame, LinkType, Other, Reassembly, Segment, Timestamp};

#[derive(Arbitrary, Debug)]
pub(crate) struct Input<'a> {
    link: u8,
    /// Octets of the frame that were not captured.
    missing: u16,
    verify_checksums: bool,
    data: &'a [u8],
}

pub(crate) fn run(input: Input<'_>) {
    let Input { link, missing, verify_checksums, data } = input;
    let link = LinkType::ALL[usize::from(link) % LinkType::ALL.len()];
    let len = data.len() as u32 + u32::from(missing);
    let whole = Frame { time: Timestamp(7), link, len, data };
    let minding = Decoder { verify_checksums, ..Decoder::default() }.decode(&whole);
    let decoded = Decoder::default().decode(&whole);
    assert!(minding == decoded || minding == Decoded::Other(Other::Checksum));
    assert_ne!(decoded, Decoded::Other(Other::Checksum));
    assert_ne!(decoded, Decoded::Other(Other::LinkType));
    if let Decoded::Segment(segment) | Decoded::FirstFragment(segment) = decoded {
        check(&segment, data);
    }
    if decoded == Decoded::Other(Other::Fragment) {
        let mut reassembly = Reassembly::default();
        let alone = reassembly.complete(&Decoder::default(), &whole);
        assert!(
            matches!(alone, Decoded::Other(Other::Fragment | Other::Malformed)),
            "one fragment has no whole header"
        );
    }
    for kept in 0..data.len() {
        let part = Decoder::default().decode(&Frame { data: &data[..kept], ..whole });
        assert!(part == Decoded::Other(Other::Truncated) || without_data(part) == without_data(decoded));
    }
}

/// A segment has only data that are in the frame.
fn check(segment: &Segment<'_>, frame: &[u8]) {
    assert!(segment.data.len() <= segment.len as usize);
    assert!(frame.len() >= segment.data.len() + 40, "there is an IP header and one of TCP");
    let numbers = [segment.sequence.to_be_bytes(), segment.acknowledgment.to_be_bytes()].concat();
    let ports = [segment.source.port().to_be_bytes(), segment.destination.port().to_be_bytes()].concat();
    let header = [ports, numbers].concat();
    assert!(frame.windows(header.len()).any(|octets| octets == header));
    assert!(segment.data.is_empty() || frame.as_ptr_range().contains(&segment.data.as_ptr()), "nothing is copied");
}

fn without_data(decoded: Decoded<'_>) -> Decoded<'_> {
    match decoded {
        Decoded::Segment(segment) => Decoded::Segment(Segment { data: b"", ..segment }),
        Decoded::FirstFragment(segment) => Decoded::FirstFragment(Segment { data: b"", ..segment }),
        Decoded::Other(other) => Decoded::Other(other),
    }
}
