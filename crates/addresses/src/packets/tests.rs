#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

const MAC: Mac = [2, 0, 0, 0, 0, 7];
const OTHER: Mac = [2, 0, 0, 0, 0, 8];
const V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
const V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0x12, 0x3456);

/// RFC 5227, section 3: "identical to the ARP Probe [..] except that now the sender and target IP addresses are both
/// set".
#[test]
fn gratuitous_arp() {
    let expected = [
        &[0xff; 6][..],
        &MAC,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
        &MAC,
        &[192, 0, 2, 10, 0, 0, 0, 0, 0, 0, 192, 0, 2, 10],
    ];
    assert_eq!(announcement(MAC, V4.into()), expected.concat());
    let mut probe = probe(MAC, V4.into());
    assert_eq!(probe[28..32], [0; 4]);
    probe[28..32].copy_from_slice(&V4.octets());
    assert_eq!(probe, expected.concat());
}

/// RFC 4861, section 4.4, with the checksum of RFC 4443, section 2.3.
#[test]
fn unsolicited_advertisement() {
    let frame = announcement(MAC, V6.into());
    assert_eq!(frame[..14], [0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 7, 0x86, 0xdd]);
    assert_eq!(frame[14..22], [0x60, 0, 0, 0, 0, 32, 58, 255]);
    assert_eq!(frame[22..38], V6.octets());
    assert_eq!(frame[54..56], [136, 0]);
    assert_eq!(frame[58..62], [0x20, 0, 0, 0]);
    assert_eq!(frame[62..78], V6.octets());
    assert_eq!(frame[78..], [2, 1, 2, 0, 0, 0, 0, 7]);
    assert_eq!(sum(&frame), 0);
}

/// RFC 4862, section 5.4.2: from the unspecified address to the solicited-node multicast address.
#[test]
fn solicitation() {
    let frame = probe(MAC, V6.into());
    assert_eq!(frame[..6], [0x33, 0x33, 0xff, 0x12, 0x34, 0x56][..]);
    assert_eq!(frame[22..38], [0; 16]);
    assert_eq!(frame[38..54], "ff02::1:ff12:3456".parse::<Ipv6Addr>().unwrap().octets());
    assert_eq!((frame[54], frame.len()), (135, 14 + 40 + 24));
    assert_eq!(sum(&frame), 0);
}

/// The checksum of a message with its checksum in it. 0: it is right.
fn sum(frame: &[u8]) -> u16 {
    let (ip, message) = frame[14..].split_at(40);
    let len = u32::try_from(message.len()).unwrap().to_be_bytes();
    checksum(&[&ip[8..40], &len, &[0, 0, 0, 58], message].concat())
}

#[test]
fn a_claim_is_recognised() {
    let frame = announcement(OTHER, V4.into());
    assert_eq!(arp_claim(&frame, V4, MAC), Some(OTHER));
    assert_eq!(arp_claim(&frame, V4, OTHER), None);
    assert_eq!(arp_claim(&frame, Ipv4Addr::new(192, 0, 2, 11), MAC), None);
    assert_eq!(arp_claim(&probe(OTHER, V4.into()), V4, MAC), None);
    let message = &announcement(OTHER, V6.into())[54..];
    assert_eq!(neighbour_claim(message, V6, MAC), Some(OTHER));
    assert_eq!(neighbour_claim(message, V6, OTHER), None);
    assert_eq!(neighbour_claim(&message[..24], V6, MAC), Some([0; 6]));
    assert_eq!(neighbour_claim(message, Ipv6Addr::LOCALHOST, MAC), None);
    assert_eq!(neighbour_claim(&probe(OTHER, V6.into())[54..], V6, MAC), None);
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = arp_claim(&bytes, V4, MAC);
        let _ = neighbour_claim(&bytes, V6, MAC);
    }
}
