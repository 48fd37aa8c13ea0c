//! The program on packets, against the kernel.
#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use watari_sys::bpf::TestRun;

use super::*;
use crate::program::{DOUBTFUL_TTL, DROP, HERE, PASSED_ON};
use crate::table::{Entry, Slot};

const OWN: Mac = [2, 0, 0, 0, 0, 1];
const ROUTER: Mac = [2, 0, 0, 0, 0, 9];
const A: Mac = [2, 0, 0, 0, 0, 0xa];
const B: Mac = [2, 0xff, 0, 0xee, 0, 0xb];
const NONE: Entry = Entry { first: None, next: None, after_next: None, fallback: None };
const D: Mac = [2, 0, 0, 0, 0, 0xd];
const C: Mac = [0xfe, 0, 0, 0, 0, 0xc];
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

fn v4(last: u8, port: u16) -> SocketAddr {
    (Ipv4Addr::new(127, 0, 0, last), port).into()
}

fn v6(port: u16) -> SocketAddr {
    (Ipv6Addr::LOCALHOST, port).into()
}

/// A program for the addresses of the tests, or `None` without the permission.
fn load(entry: Entry) -> Option<Steering> {
    let addresses = [v4(1, 0).ip(), v6(0).ip()].into();
    let mut steering = match Steering::load(&addresses, OWN) {
        Ok(steering) => steering,
        Err(SteeringError::Map(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            println!("SKIPPED: BPF programs need CAP_BPF");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    steering.set_table(&Table(vec![entry; usize::from(SLOTS)])).unwrap();
    steering.renew(Duration::MAX, true).unwrap();
    Some(steering)
}

/// An Ethernet frame with a TCP segment.
fn segment(from: Mac, client: SocketAddr, server: SocketAddr, flags: u8) -> Vec<u8> {
    let mut frame = [OWN, from].concat();
    ip(&mut frame, client.ip(), server.ip(), 6, 20);
    frame.extend([client.port().to_be_bytes(), server.port().to_be_bytes()].concat());
    frame.extend([0; 8]);
    frame.extend([0x50, flags, 0, 0, 0, 0, 0, 0]);
    frame
}

/// The type of Ethernet and an IP header, for a content of this length.
fn ip(frame: &mut Vec<u8>, source: IpAddr, destination: IpAddr, protocol: u8, len: u16) {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame.extend([0x08, 0x00]);
            let mut header = [0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, protocol, 0, 0].to_vec();
            header[2..4].copy_from_slice(&(20 + len).to_be_bytes());
            header.extend([source.octets(), destination.octets()].concat());
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend(header);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(len.to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend([source.octets(), destination.octets()].concat());
        }
        _ => panic!("of two versions"),
    }
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let sum: u32 = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    !(((sum & 0xffff) + (sum >> 16)) as u16)
}

fn verdict(steering: &Steering, packet: &[u8]) -> i32 {
    steering.program.test(packet).unwrap().verdict.cast_signed()
}

/// Where a packet goes. `None`: it stays here.
fn passed_on(steering: &Steering, packet: &[u8]) -> Option<Mac> {
    let TestRun { verdict, packet: changed } = steering.program.test(packet).unwrap();
    match verdict.cast_signed() {
        HERE => None,
        PASSED_ON => {
            assert_eq!(changed[6..12], OWN);
            let (ttl, old) = if changed[12] == 8 { (22, packet[22]) } else { (21, packet[21]) };
            assert!([old - 1, DOUBTFUL_TTL - 1].contains(&changed[ttl]));
            if changed[12] == 8 {
                assert_eq!(checksum(&changed[14..34]), 0, "the checksum of the header is right");
            }
            Some(changed[..6].try_into().unwrap())
        }
        other => panic!("verdict {other}"),
    }
}

#[test]
fn a_packet_goes_to_the_primary_or_gets_a_second_chance() {
    let [first, next, after_next, fallback] = [A, B, D, C].map(Some);
    for (client, server) in [(v4(2, 1000), v4(1, 443)), (SocketAddr::from(([0x2001, 0, 0, 0, 0, 0, 0, 7], 9)), v6(443))]
    {
        let cases = [
            // The entry; from whom a packet comes; where a SYN and another packet go.
            (Entry { first, next, ..NONE }, ROUTER, first, first),
            (Entry { first, next, ..NONE }, A, None, next),
            (Entry { first, ..NONE }, A, None, None),
            (Entry { first, next: first, ..NONE }, A, None, None),
            (Entry { next, after_next, fallback, ..NONE }, ROUTER, None, next),
            (Entry { next, after_next, fallback, ..NONE }, B, None, after_next),
            (Entry { next, fallback, ..NONE }, B, None, None),
            (Entry { fallback, ..NONE }, ROUTER, None, None),
            (NONE, ROUTER, None, None),
        ];
        for (entry, from, syn, other) in cases {
            let Some(steering) = load(entry) else { return };
            assert_eq!(passed_on(&steering, &segment(from, client, server, SYN)), syn, "{entry:?} {from:?}");
            for flags in [ACK, SYN | ACK, 0x04] {
                assert_eq!(passed_on(&steering, &segment(from, client, server, flags)), other, "{entry:?} {from:?}");
            }
        }
    }
}

#[test]
fn after_its_time_limit_a_machine_accepts_nothing() {
    let Some(mut steering) = load(Entry { next: Some(B), fallback: Some(C), ..NONE }) else { return };
    steering.renew(Duration::from_nanos(1), true).unwrap();
    for flags in [SYN, ACK] {
        let packet = segment(ROUTER, v4(2, 1000), v4(1, 443), flags);
        assert_eq!(passed_on(&steering, &packet), Some(C));
    }
    assert_eq!(verdict(&steering, &segment(C, v4(2, 1000), v4(1, 443), SYN)), DROP);
    assert_eq!(passed_on(&steering, &segment(C, v4(2, 1000), v4(1, 443), ACK)), Some(B));
    assert_eq!(steering.counts().unwrap(), Counts { to_primary: 2, second_chance: 1 });
}

#[test]
fn in_doubt_an_unknown_connection_gets_no_answer() {
    let ack = |from| segment(from, v4(2, 1000), v4(1, 443), ACK);
    for (entry, from) in [(NONE, ROUTER), (Entry { first: Some(A), ..NONE }, A), (Entry { next: Some(B), ..NONE }, B)] {
        let Some(mut steering) = load(entry) else { return };
        assert_eq!(verdict(&steering, &ack(from)), HERE);
        steering.renew(Duration::MAX, false).unwrap();
        assert_eq!(verdict(&steering, &ack(from)), DROP);
        assert_eq!(verdict(&steering, &segment(from, v4(2, 1000), v4(1, 443), SYN)), HERE);
        steering.renew(Duration::from_nanos(1), true).unwrap();
        assert_eq!(verdict(&steering, &ack(from)), DROP);
    }
    // The last one learns it by the TTL.
    let Some(mut steering) = load(Entry { next: Some(B), ..NONE }) else { return };
    let ttl = |steering: &Steering| steering.program.test(&ack(ROUTER)).unwrap().packet[22];
    assert_eq!(ttl(&steering), 63);
    steering.renew(Duration::MAX, false).unwrap();
    assert_eq!(ttl(&steering), DOUBTFUL_TTL - 1);
    steering.renew(Duration::MAX, true).unwrap();
    let mut doubtful = ack(B);
    doubtful[22] = DOUBTFUL_TTL;
    assert_eq!(verdict(&steering, &doubtful), HERE);
    doubtful[22] = DOUBTFUL_TTL - 1;
    assert_eq!(verdict(&steering, &doubtful), DROP);
}

#[test]
fn a_connection_with_a_socket_stays_and_a_listener_is_none() {
    let Some(steering) = load(Entry { first: Some(A), ..NONE }) else { return };
    for local in [v4(1, 0), v6(0)] {
        let listener = TcpListener::bind(local).unwrap();
        let server = listener.local_addr().unwrap();
        let client = TcpStream::connect(server).unwrap();
        let accepted = listener.accept().unwrap().0;
        let known = client.local_addr().unwrap();
        assert_eq!(passed_on(&steering, &segment(ROUTER, known, server, ACK)), None);
        let other = SocketAddr::new(known.ip(), known.port() ^ 1);
        assert_eq!(passed_on(&steering, &segment(ROUTER, other, server, ACK)), Some(A));
        // The accepted side ends first, and is in TIME-WAIT then.
        drop(accepted);
        drop(client);
        assert_eq!(passed_on(&steering, &segment(ROUTER, known, server, ACK)), None);
    }
}

/// Errors name the packet that they are about. A connection learns of a smaller MTU that way.
#[test]
fn an_icmp_error_goes_where_its_connection_is() {
    let Some(steering) = load(Entry { first: Some(A), ..NONE }) else { return };
    let listener = TcpListener::bind(v4(1, 0)).unwrap();
    let server = listener.local_addr().unwrap();
    let client = TcpStream::connect(server).unwrap();
    let known = client.local_addr().unwrap();
    let router = IpAddr::from([10, 0, 0, 1]);
    let error = |kind: u8, client: SocketAddr| {
        let mut frame = [OWN, ROUTER].concat();
        ip(&mut frame, router, server.ip(), 1, 36);
        frame.extend([kind, 4, 0, 0, 0, 0, 5, 0]);
        frame.extend_from_slice(&segment(OWN, server, client, ACK)[14..42]);
        frame
    };
    assert_eq!(passed_on(&steering, &error(3, known)), None);
    let other = SocketAddr::new(known.ip(), known.port() ^ 1);
    assert_eq!(passed_on(&steering, &error(3, other)), Some(A));
    assert_eq!(verdict(&steering, &error(0, other)), HERE, "an echo reply");

    let mut frame = [OWN, ROUTER].concat();
    ip(&mut frame, Ipv6Addr::from_bits(7).into(), v6(0).ip(), 58, 68);
    frame.extend([2, 0, 0, 0, 0, 0, 5, 0]);
    let about = SocketAddr::from(([0x2001, 0, 0, 0, 0, 0, 0, 7], 9));
    frame.extend_from_slice(&segment(OWN, v6(443), about, ACK)[14..74]);
    assert_eq!(passed_on(&steering, &frame), Some(A));
}

#[test]
fn other_packets_stay_and_old_ones_are_dropped() {
    let Some(steering) = load(Entry { first: Some(A), ..NONE }) else { return };
    let packet = segment(ROUTER, v4(2, 1000), v4(1, 443), ACK);
    let with = |at: usize, byte: u8| {
        let mut packet = packet.clone();
        packet[at] = byte;
        packet
    };
    assert_eq!(verdict(&steering, &packet), PASSED_ON);
    assert_eq!(verdict(&steering, &with(22, 1)), DROP, "the TTL is over");
    let cases = [
        (13, 0x06, "ARP"),
        (14, 0x46, "options"),
        (20, 0x20, "a fragment"),
        (23, 17, "UDP"),
        (33, 9, "another address"),
    ];
    for (at, byte, what) in cases {
        assert_eq!(verdict(&steering, &with(at, byte)), HERE, "{what}");
    }
    // The kernel tests no packet without a header.
    for len in 34..packet.len() {
        assert_eq!(verdict(&steering, &packet[..len]), HERE, "{len} bytes");
    }
}

/// The program and [`Slot::of`] compute the same.
#[test]
fn the_kernel_finds_the_slot() {
    let Some(mut steering) = load(Entry::default()) else { return };
    let entries = (0..SLOTS).map(|slot| {
        let [high, low] = slot.to_be_bytes();
        Entry { first: Some([2, 1, 2, 3, high, low]), ..Entry::default() }
    });
    steering.set_table(&Table(entries.collect())).unwrap();
    for number in 0..2000_u16 {
        let client = if number % 2 == 0 {
            SocketAddr::new(Ipv4Addr::from_bits(u32::from(number) * 77_777).into(), number.wrapping_mul(31))
        } else {
            SocketAddr::new(Ipv6Addr::from_bits(u128::from(number) << 101 | u128::from(number)).into(), number ^ 0xabcd)
        };
        let server = if client.is_ipv4() { v4(1, 443) } else { v6(443) };
        let [high, low] = Slot::of(client).number().to_be_bytes();
        assert_eq!(
            passed_on(&steering, &segment(ROUTER, client, server, SYN)),
            Some([2, 1, 2, 3, high, low]),
            "{client}"
        );
    }
}

#[test]
fn packets_follow_a_connection_that_changes_machines() {
    let Some(steering) = load(Entry { first: Some(A), next: Some(C), ..NONE }) else { return };
    let clients = [v4(2, 1000), SocketAddr::from(([0x2001, 0, 0, 0, 0, 0, 0, 7], 9))];
    for (client, server) in clients.into_iter().zip([v4(1, 443), v6(443)]) {
        let goes = |from, client, flags| {
            let TestRun { verdict, packet } = steering.program.test(&segment(from, client, server, flags)).unwrap();
            (verdict.cast_signed(), packet[..6].to_vec())
        };
        for flags in [SYN, ACK] {
            steering.move_flow(client, server, B).unwrap();
            assert_eq!(goes(ROUTER, client, flags), (PASSED_ON, B.to_vec()));
            assert_eq!(goes(A, client, flags), (PASSED_ON, B.to_vec()));
            assert_eq!(goes(B, client, flags).0, DROP);
            let other = SocketAddr::new(client.ip(), 7);
            assert_eq!(goes(ROUTER, other, flags), (PASSED_ON, A.to_vec()));
            steering.keep_flow(client, server).unwrap();
            steering.keep_flow(client, server).unwrap();
            assert_eq!(goes(ROUTER, client, flags), (PASSED_ON, A.to_vec()));
        }
    }
    // Also one that has a socket here.
    let listener = TcpListener::bind(v4(1, 0)).unwrap();
    let server = listener.local_addr().unwrap();
    let client = TcpStream::connect(server).unwrap();
    let known = client.local_addr().unwrap();
    steering.move_flow(known, server, B).unwrap();
    assert_eq!(passed_on(&steering, &segment(ROUTER, known, server, ACK)), Some(B));
    steering.keep_flow(known, server).unwrap();
    assert_eq!(passed_on(&steering, &segment(ROUTER, known, server, ACK)), None);
}
