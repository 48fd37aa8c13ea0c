#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::arbitrary;

const LIMIT: usize = 2048;

fn encoded(header: &Header) -> Vec<u8> {
    let mut out = Vec::new();
    header.encode(&mut out).unwrap();
    out
}

fn tcp(client: &str, server: &str) -> Header {
    Header::Tcp { client: client.parse().unwrap(), server: server.parse().unwrap(), tlvs: Vec::new() }
}

/// A binary header with this command byte, family and body.
fn binary(version_and_command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len()).unwrap().to_be_bytes();
    [&SIGNATURE[..], &[version_and_command, family], &len, body].concat()
}

prop_compose! {
    fn header()(
        (client, server) in arbitrary::addresses(),
        tlvs in vec((any::<u8>(), vec(any::<u8>(), 0..100)), 0..5),
    ) -> Header {
        let tlvs = tlvs.into_iter().map(|(kind, value)| Tlv { kind, value }).collect();
        Header::Tcp { client, server, tlvs }
    }
}

proptest! {
    #[test]
    fn headers_come_back(header in header(), rest in vec(any::<u8>(), 0..20)) {
        let whole = encoded(&header);
        let followed = [&whole[..], &rest].concat();
        prop_assert_eq!(parse(&followed, LIMIT), Ok(Some((header, whole.len()))));
    }

    #[test]
    fn every_prefix_waits_for_more(header in header()) {
        let whole = encoded(&header);
        for len in 0..whole.len() {
            prop_assert_eq!(parse(&whole[..len], LIMIT), Ok(None));
        }
    }

    #[test]
    fn random_bodies_never_panic(version_and_command in 0x1f..0x24u8, family: u8, body in vec(any::<u8>(), 0..80)) {
        let whole = binary(version_and_command, family, &body);
        if let Ok(parsed) = parse(&whole, LIMIT) {
            prop_assert_eq!(parsed.unwrap().1, whole.len());
        }
    }

    #[test]
    fn random_lines_never_panic(line in "PROXY (TCP4|TCP6|UNKNOWN)?[ 0-9a-f.:\\r\\n]{0,120}") {
        let _ = parse(line.as_bytes(), LIMIT);
    }

    #[test]
    fn lines_come_back((client, server) in arbitrary::addresses()) {
        let family = if client.is_ipv4() { "TCP4" } else { "TCP6" };
        let line =
            format!("PROXY {family} {} {} {} {}\r\n", client.ip(), server.ip(), client.port(), server.port());
        let header = Header::Tcp { client, server, tlvs: Vec::new() };
        prop_assert_eq!(parse(line.as_bytes(), LIMIT), Ok(Some((header, line.len()))));
        for len in 0..line.len() {
            prop_assert_eq!(parse(&line.as_bytes()[..len], LIMIT), Ok(None));
        }
    }
}

/// Section 2.2, byte by byte.
#[test]
fn a_header_as_published() {
    let bytes = [
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11".as_slice(),
        &[0, 16, 192, 0, 2, 1, 198, 51, 100, 2, 0x04, 0xd2, 0x01, 0xbb],
        &[0xe0, 0, 1, 7],
    ];
    let header = Header::Tcp {
        client: "192.0.2.1:1234".parse().unwrap(),
        server: "198.51.100.2:443".parse().unwrap(),
        tlvs: vec![Tlv { kind: 0xe0, value: vec![7] }],
    };
    assert_eq!(encoded(&header), bytes.concat());
    assert_eq!(parse(&bytes.concat(), LIMIT), Ok(Some((header, 32))));
}

#[test]
fn relays_may_speak_for_themselves() {
    assert_eq!(parse(&encoded(&Header::Local), LIMIT), Ok(Some((Header::Local, 16))));
    assert_eq!(parse(&encoded(&Header::Unspecified), LIMIT), Ok(Some((Header::Unspecified, 16))));
    // After LOCAL, all bytes are ignored.
    assert_eq!(parse(&binary(0x20, 0x31, b"??"), LIMIT), Ok(Some((Header::Local, 18))));
    let line = b"PROXY UNKNOWN ffff::1 whatever\r\n";
    assert_eq!(parse(line, LIMIT), Ok(Some((Header::Unspecified, line.len()))));
}

#[test]
fn mixed_families_go_as_ipv6() {
    let header = tcp("192.0.2.1:1", "[2001:db8::1]:2");
    let expected = tcp("[::ffff:192.0.2.1]:1", "[2001:db8::1]:2");
    assert_eq!(parse(&encoded(&header), LIMIT).unwrap().unwrap().0, expected);
}

#[test]
fn each_fault_has_its_error() {
    let mut garbage = SIGNATURE;
    garbage[11] = 0;
    let cases = [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), ProxyError::NotProxy),
        (b"\x16\x03\x01".to_vec(), ProxyError::NotProxy),
        (garbage.to_vec(), ProxyError::NotProxy),
        (binary(0x11, TCP4, &[0; 12]), ProxyError::Version(1)),
        (binary(0x22, TCP4, &[0; 12]), ProxyError::Command(2)),
        (binary(0x21, 0x12, &[0; 12]), ProxyError::Family(0x12)),
        (binary(0x21, 0x31, &[0; 216]), ProxyError::Family(0x31)),
        (binary(0x21, TCP4, &[0; 11]), ProxyError::Addresses),
        (binary(0x21, TCP6, &[0; 35]), ProxyError::Addresses),
        (binary(0x21, TCP4, &[0; 13]), ProxyError::Tlv),
        (binary(0x21, TCP4, &[[0; 12].as_slice(), &[1, 0, 2, 3]].concat()), ProxyError::Tlv),
    ];
    for (bytes, error) in cases {
        assert_eq!(parse(&bytes, LIMIT), Err(error), "{bytes:?}");
    }
}

#[test]
fn long_headers_are_refused_before_they_are_there() {
    let head = &binary(0x21, TCP4, &[0; 85])[..HEAD_LEN];
    assert_eq!(parse(head, 100), Err(ProxyError::TooLong { len: 101, limit: 100 }));
    assert_eq!(parse(head, 101), Ok(None));
    let line = [b"PROXY TCP4".as_slice(), &[b' '; 97]].concat();
    assert_eq!(parse(&line[..106], LIMIT), Ok(None));
    assert_eq!(parse(&line, LIMIT), Err(ProxyError::TooLong { len: 107, limit: 107 }));
}

#[test]
fn tlvs_that_do_not_fit_are_not_written() {
    let tlvs = vec![Tlv { kind: 0xe0, value: vec![0; 65_530] }];
    let header = Header::Tcp { client: "192.0.2.1:1".parse().unwrap(), server: "192.0.2.1:2".parse().unwrap(), tlvs };
    let mut out = Vec::new();
    assert!(matches!(header.encode(&mut out), Err(ProxyError::TooLong { .. })));
    assert!(out.is_empty());
}

#[test]
fn malformed_lines_are_refused() {
    for line in [
        "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
        "PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 +2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 02\r\n",
        "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
        "PROXY TCP4 ::1 ::1 1 2\r\n",
        "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY \r\n",
    ] {
        assert_eq!(parse(line.as_bytes(), LIMIT), Err(ProxyError::Text), "{line:?}");
    }
    assert_eq!(parse(b"PROXY TCP4 \xff\r\n", LIMIT), Err(ProxyError::Text));
}
