//! Each kind of link and tunnel, with connections of the kernel and with crafted frames.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pcap::Capture;
use watari_capture::{Options, open};
use watari_packets::build::{Builder, Gre};
use watari_packets::{Flags, LinkType, Segment, Timestamp};

use crate::network::{Peer, alone, serve, skip, visit};
use crate::seen::{by_client, check_counts, counted_before, is_whole, on, read, read_whole};

#[test]
fn ethernet() {
    alone("wires::ethernet", || {
        let peer = Peer::connect();
        for ip in ["10.9.0.2", "fd09::2"] {
            let server = peer.serve(ip);
            let mut rings = on("a0", &format!("tcp port {}", server.port()));
            assert_eq!((rings.len(), rings[0].link()), (1, LinkType::ETHERNET));
            let before = counted_before(&mut rings[0]);
            let began = now();
            let clients: Vec<_> = (0..10).map(|_| visit(server)).collect();
            let ended = now();
            let seen = read_whole(&mut rings, server, &clients);
            assert!(seen.iter().all(|it| it.time > began && it.time < ended), "{began:?} {ended:?} {seen:#?}");
            assert!(seen.iter().any(|it| it.time.0 % 1000 != 0), "microseconds");
            check_counts(&mut rings[0], before, seen.len() as u64, 1);
        }
    });
}

fn now() -> Timestamp {
    Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64)
}

#[test]
fn the_filter_keeps_out_what_it_should() {
    alone("wires::the_filter_keeps_out_what_it_should", || {
        let peer = Peer::connect();
        let (wanted, other) = (peer.serve("10.9.0.2"), peer.serve("10.9.0.2"));
        let mut rings = on("a0", &format!("tcp port {}", wanted.port()));
        let before = counted_before(&mut rings[0]);
        visit(other);
        let clients = [visit(wanted), visit(wanted)];
        let seen = read_whole(&mut rings, wanted, &clients);
        assert!(seen.iter().all(|it| it.source == wanted || it.destination == wanted), "{seen:#?}");
        check_counts(&mut rings[0], before, seen.len() as u64, 1);
    });
}

/// The kernel shows each frame there twice.
#[test]
fn loopback_frames_are_seen_once() {
    alone("wires::loopback_frames_are_seen_once", || {
        for (interface, link, copies) in [("lo", LinkType::ETHERNET, 1), ("any", LinkType::LINUX_SLL, 2)] {
            for ip in ["127.0.0.1", "::1"] {
                let server = serve(ip);
                let mut rings = on(interface, &format!("tcp port {}", server.port()));
                assert_eq!(rings[0].link(), link);
                let before = counted_before(&mut rings[0]);
                let clients = [visit(server), visit(server)];
                let seen = read_whole(&mut rings, server, &clients);
                check_counts(&mut rings[0], before, seen.len() as u64, copies);
            }
        }
    });
}

#[test]
fn any_has_all_interfaces() {
    alone("wires::any_has_all_interfaces", || {
        let peer = Peer::connect();
        let servers = [serve("127.0.0.1"), peer.serve("10.9.0.2"), peer.serve("fd09::2")];
        let mut rings = open(&Options { promiscuous: true, ..Options::new("any") }).unwrap();
        let clients = servers.map(visit);
        read(&mut rings, |seen| {
            let of = |(server, client)| by_client(seen, server).get(client).is_some_and(|it| is_whole(it, server));
            servers.into_iter().zip(&clients).all(of)
        });
    });
}

/// The kernel's own devices.
#[test]
fn tunnels_that_the_kernel_makes() {
    alone("wires::tunnels_that_the_kernel_makes", || {
        let peer = Peer::connect();
        for (name, kind, network) in [
            ("vlan7", "link {cable} type vlan id 7", 1),
            ("vxlan7", "type vxlan id 7 local {near} remote {far} dstport 4789", 2),
            ("gre7", "type gre local {near} remote {far}", 3),
            ("tap7", "type gretap local {near} remote {far}", 4),
            ("ipip7", "type ipip local {near} remote {far}", 5),
            ("sit7", "type sit local {near} remote {far}", 6),
        ] {
            if !peer.add(name, kind, network) {
                skip(&format!("this kernel has no `{kind}`; frames of that kind are put on the wire by another test"));
                continue;
            }
            let server = match name {
                "sit7" => peer.serve(&format!("fd09:{network}::2")),
                _ => peer.serve(&format!("10.9.{network}.2")),
            };
            // On the cable, frames have the tunnel headers around them.
            let mut rings = open(&Options::new("a0")).unwrap();
            let clients = [visit(server), visit(server)];
            read_whole(&mut rings, server, &clients);
        }
    });
}

/// Frames as other hosts send them, which arrive at the interface.
#[test]
fn frames_of_every_kind() {
    alone("wires::frames_of_every_kind", || {
        let peer = Peer::connect();
        let outer: [IpAddr; 2] = ["10.9.0.2", "10.9.0.1"].map(|ip| ip.parse().unwrap());
        let outer6: [IpAddr; 2] = ["fd09::2", "fd09::1"].map(|ip| ip.parse().unwrap());
        let within = |[from, to]: [IpAddr; 2], around: Builder| around.ip(from, to).ethernet().finish();
        for ips in [["192.0.2.1", "192.0.2.2"], ["2001:db8::1", "2001:db8::2"]] {
            let tcp = |port| tcp(ips, port);
            let frames = [
                tcp(1).ethernet().finish(),
                tcp(2).vlan(0x8100).ethernet().finish(),
                tcp(3).vlan(0x8100).vlan(0x88a8).ethernet().finish(),
                within(outer, tcp(4).ethernet().vxlan(4789)),
                within(outer, tcp(5).gre(Gre::default())),
                within(outer, tcp(6).gre(Gre { key: Some(7), ..Gre::default() })),
                within(outer, tcp(7)),
                within(outer6, tcp(8)),
                within(outer6, tcp(9).gre(Gre::default())),
                within(outer6, tcp(10).ethernet().vxlan(4789)),
                outer_vlan(outer, tcp(11).ethernet().vxlan(4789)),
                tcp(12).mpls(&[16, 17]).ethernet().finish(),
                tcp(13).pppoe().ethernet().finish(),
                within(outer, tcp(14).ethernet().erspan(true)),
                within(outer, tcp(15).ethernet().geneve(8)),
            ];
            let count = frames.len();
            let mut rings = open(&Options::new("a0")).unwrap();
            peer.run(move || {
                let mut wire = Capture::from_device("b0").unwrap().open().unwrap();
                for frame in frames {
                    wire.sendpacket(frame).unwrap();
                }
            });
            let server = SocketAddr::new(ips[1].parse().unwrap(), 443);
            let seen = read(&mut rings, |seen| by_client(seen, server).len() == count);
            let clients: Vec<_> = by_client(&seen, server).into_iter().collect();
            for (port, (client, segments)) in (1..).zip(clients) {
                assert_eq!(client, SocketAddr::new(ips[0].parse().unwrap(), port));
                let [segment] = segments[..] else { panic!("{segments:#?}") };
                assert_eq!((segment.flags, segment.len), (Flags::SYN, 0));
            }
        }
    });
}

fn outer_vlan([from, to]: [IpAddr; 2], around: Builder) -> Vec<u8> {
    around.ip(from, to).vlan(0x8100).ethernet().finish()
}

fn tcp([from, to]: [&str; 2], port: u16) -> Builder {
    let address = |ip: &str, port| SocketAddr::new(ip.parse().unwrap(), port);
    let segment = Segment {
        time: Timestamp(0),
        source: address(from, port),
        destination: address(to, 443),
        sequence: 1,
        acknowledgment: 0,
        flags: Flags::SYN,
        window: 65_535,
        len: 0,
        data: &[],
    };
    Builder::tcp(&segment, &[]).ip(segment.source.ip(), segment.destination.ip())
}

/// The kernel removes the tag before it shows the frame, and libpcap restores it after the filter.
#[test]
fn filters_see_through_one_vlan_tag() {
    alone("wires::filters_see_through_one_vlan_tag", || {
        let peer = Peer::connect();
        let ips = ["192.0.2.1", "192.0.2.2"];
        let mut rings = on("a0", "tcp port 443");
        peer.run(move || {
            let mut wire = Capture::from_device("b0").unwrap().open().unwrap();
            for tags in 0..3 {
                let tagged = (0..tags).fold(tcp(ips, 1 + tags), |frame, _| frame.vlan(0x8100));
                wire.sendpacket(tagged.ethernet().finish()).unwrap();
            }
            wire.sendpacket(tcp(ips, 9).ethernet().finish()).unwrap();
        });
        let seen = read(&mut rings, |seen| seen.iter().any(|it| it.source.port() == 9));
        assert_eq!(seen.iter().map(|it| it.source.port()).collect::<Vec<_>>(), [1, 2, 9]);
    });
}

#[test]
fn frames_are_cut_and_keep_their_length() {
    alone("wires::frames_are_cut_and_keep_their_length", || {
        let server = serve("127.0.0.1");
        let mut rings = open(&Options { snap_len: 60, ..Options::new("lo") }).unwrap();
        visit(server);
        let mut longest = 0;
        // A SYN, with its options, has 74 octets.
        while longest < 74 {
            if let Some(frame) = rings[0].next().unwrap() {
                assert!(frame.data.len() <= 60 && frame.len as usize >= frame.data.len());
                longest = longest.max(frame.len);
            }
        }
    });
}

#[test]
fn nothing_comes_where_nothing_happens() {
    alone("wires::nothing_comes_where_nothing_happens", || {
        let mut rings = on("lo", "tcp port 1");
        let begun = std::time::Instant::now();
        for _ in 0..3 {
            assert_eq!(rings[0].next().unwrap(), None);
        }
        // The first call finds no frame. Two more calls wait.
        assert!(begun.elapsed() >= Duration::from_millis(190));
    });
}
