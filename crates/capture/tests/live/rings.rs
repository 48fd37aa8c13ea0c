//! Several rings.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use pcap::Capture;
use watari_capture::{Options, open};
use watari_packets::build::Builder;
use watari_packets::{Flags, Segment, Timestamp};

use crate::network::{Peer, alone, serve, skip, visit};
use crate::seen::{Seen, by_client, read_whole};

const CONNECTIONS: usize = 200;

/// Both directions of each connection come to one ring, without gaps or duplicates.
fn share(interface: &str, server: SocketAddr, threads: usize) {
    let filter = Some("tcp or proto gre or ip proto 4".to_owned());
    let mut rings = open(&Options { threads, filter, ..Options::new(interface) }).unwrap();
    assert_eq!(rings.len(), threads);
    let clients: Vec<_> = (0..CONNECTIONS).map(|_| visit(server)).collect();
    let seen = read_whole(&mut rings, server, &clients);
    let mut used = BTreeSet::new();
    for (client, segments) in by_client(&seen, server) {
        let rings: BTreeSet<_> = segments.iter().map(|it| it.ring).collect();
        assert_eq!(rings.len(), 1, "{client}: {segments:#?}");
        used.extend(rings);
    }
    assert_eq!(used.len(), threads, "of 200 connections, one ring had none");
    let counts: Vec<_> = rings.iter_mut().map(|ring| ring.counts().unwrap()).collect();
    assert!(counts.iter().all(|it| it.received > 0 && it.dropped == 0), "{counts:?}");
    let copies = if interface == "any" { 2 } else { 1 };
    assert_eq!(counts.iter().map(|it| it.received).sum::<u64>(), seen.len() as u64 * copies);
}

#[test]
fn a_connection_stays_at_one_ring() {
    alone("rings::a_connection_stays_at_one_ring", || {
        let peer = Peer::connect();
        for threads in [2, 4] {
            for ip in ["10.9.0.2", "fd09::2"] {
                share("a0", peer.serve(ip), threads);
            }
            share("lo", serve("127.0.0.1"), threads);
            // The kernel receives frames of loopback interfaces twice there, and the ring returns them once.
            share("any", serve("::1"), threads);
        }
    });
}

#[test]
fn a_connection_in_gre_or_ip_in_ip_stays_at_one_ring() {
    alone("rings::a_connection_in_gre_or_ip_in_ip_stays_at_one_ring", || {
        let peer = Peer::connect();
        for (name, kind, network) in
            [("gre7", "type gre local {near} remote {far}", 3), ("ipip7", "type ipip local {near} remote {far}", 5)]
        {
            if peer.add(name, kind, network) {
                share("a0", peer.serve(&format!("10.9.{network}.2")), 2);
            } else {
                skip(&format!("this kernel has no `{kind}`"));
            }
        }
    });
}

/// Puts headers around a packet.
type Around = fn(Builder) -> Builder;

/// The kernel parses connections behind `PPPoE` headers, but not behind MPLS labels: all of those come to one ring.
#[test]
fn a_connection_in_pppoe_or_mpls_stays_at_one_ring() {
    alone("rings::a_connection_in_pppoe_or_mpls_stays_at_one_ring", || {
        let peer = Peer::connect();
        let server: SocketAddr = "192.0.2.2:443".parse().unwrap();
        let clients = (1..=CONNECTIONS as u16).map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let ways: Vec<_> = clients.flat_map(|client| [(client, server), (server, client)]).collect();
        let arounds: [(Around, usize); 2] = [(Builder::pppoe, 2), (|it| it.mpls(&[16, 17]), 1)];
        for (around, used) in arounds {
            let mut rings = open(&Options { threads: 2, ..Options::new("a0") }).unwrap();
            let frames: Vec<_> = ways.iter().map(|way| around(packet(*way)).ethernet().finish()).collect();
            peer.run(move || {
                let mut wire = Capture::from_device("b0").unwrap().open().unwrap();
                for frame in frames {
                    wire.sendpacket(frame).unwrap();
                }
            });
            let seen = crate::seen::read(&mut rings, |seen| seen.len() == ways.len());
            let of = |segments: &[Seen]| segments.iter().map(|it| it.ring).collect::<BTreeSet<_>>();
            let connections = by_client(&seen, server);
            assert_eq!(connections.len(), CONNECTIONS);
            assert!(connections.values().all(|it| of(it).len() == 1), "{seen:#?}");
            assert_eq!(of(&seen).len(), used);
        }
    });
}

fn packet((source, destination): (SocketAddr, SocketAddr)) -> Builder {
    let (time, sequence, acknowledgment, window) = (Timestamp(0), 1, 1, 500);
    let segment =
        Segment { time, source, destination, sequence, acknowledgment, flags: Flags::ACK, window, len: 0, data: &[] };
    Builder::tcp(&segment, &[]).ip(source.ip(), destination.ip())
}

/// Frames that come before all rings have joined come to no ring twice.
#[test]
fn what_comes_at_the_beginning_comes_once() {
    alone("rings::what_comes_at_the_beginning_comes_once", || {
        let server = serve("127.0.0.1");
        let visitors = std::thread::spawn(move || {
            for _ in 0..300 {
                visit(server);
            }
        });
        while !visitors.is_finished() {
            let mut rings = open(&Options { threads: 3, ..Options::new("lo") }).unwrap();
            let client = visit(server);
            let seen = crate::seen::read(&mut rings, |seen| {
                by_client(seen, server).get(&client).is_some_and(|it| crate::seen::is_whole(it, server))
            });
            for (at, one) in seen.iter().enumerate() {
                let copy = |other: &crate::seen::Seen| crate::seen::Seen { ring: one.ring, ..*other } == *one;
                assert!(!seen[at + 1..].iter().any(copy), "{one:?}");
            }
        }
        visitors.join().unwrap();
    });
}
