//! Memory, and who is given up for it.

use std::net::SocketAddr;

use proptest::collection::vec;
use proptest::prelude::*;
use watari_packets::{Flags, Segment, Timestamp};

use crate::flow::Flow;
use crate::{Connections, Ending, Event, Settings};

fn observe(connections: &mut Connections, time: u64, client: u32, is_client: bool, flags: Flags, len: u32) {
    let port = (client % 60_000) as u16 + 1024;
    let client = SocketAddr::from(((client / 60_000 + 0x0a01_0000).to_be_bytes(), port));
    let server = SocketAddr::from(([10, 0, 0, 2], 80));
    let (source, destination) = if is_client { (client, server) } else { (server, client) };
    let sequence = u32::from(!flags.contains(Flags::SYN));
    let time = Timestamp(time);
    let acknowledgment = u32::from(flags.contains(Flags::ACK));
    connections.observe(&Segment {
        time,
        source,
        destination,
        sequence,
        acknowledgment,
        flags,
        window: 9,
        len,
        data: &[],
    });
}

fn establish(connections: &mut Connections, time: u64, client: u32) {
    observe(connections, time, client, true, Flags::SYN, 0);
    observe(connections, time, client, false, Flags::SYN.with(Flags::ACK), 0);
    observe(connections, time, client, true, Flags::ACK, 0);
}

fn drain(connections: &mut Connections) -> Vec<Event> {
    std::iter::from_fn(|| connections.poll_event()).collect()
}

#[test]
fn a_flood_takes_its_part_and_no_more() {
    let settings = Settings { connections_max: 500, half_open_max: 100, ..Settings::default() };
    let mut connections = Connections::new(settings);
    for client in 0..50 {
        establish(&mut connections, 1, client);
    }
    let mut evicted = Vec::new();
    for client in 1_000..21_000 {
        observe(&mut connections, 2 + u64::from(client), client, true, Flags::SYN, 0);
        assert!(connections.open() <= 150);
        let given_up = |event: &Event| matches!(event, Event::Evicted(evicted) if !evicted.is_answered);
        evicted.extend(drain(&mut connections).into_iter().filter(given_up));
    }
    assert_eq!((connections.counts().evicted, evicted.len()), (19_900, 19_900));
    // Whoever was there is there still.
    connections.finish();
    let open =
        |event: &Event| matches!(event, Event::Closed(it) if it.ending == Ending::Open && it.handshake.is_some());
    assert_eq!(drain(&mut connections).iter().filter(|event| open(event)).count(), 50);
}

#[test]
fn established_connections_are_never_given_up() {
    let settings = Settings { connections_max: 60, half_open_max: 20, ..Settings::default() };
    let mut connections = Connections::new(settings);
    for client in 0..100 {
        establish(&mut connections, u64::from(client), client);
    }
    assert_eq!((connections.open(), connections.counts().untracked > 0), (60, true));
    // One that is over makes room.
    observe(&mut connections, 200, 7, true, Flags::RST.with(Flags::ACK), 0);
    connections.advance(Timestamp(2_000_000_000));
    assert_eq!(connections.open(), 59);
    establish(&mut connections, 2_000_000_001, 1_000);
    assert_eq!(connections.open(), 60);
}

#[test]
fn what_opened_ends() {
    let settings = Settings { connections_max: 64, half_open_max: 16, over_max: 8, ..Settings::default() };
    let mut connections = Connections::new(settings);
    let (mut opened, mut ended) = (0, 0);
    for step in 0..40_000_u32 {
        // Any order of anything.
        let random = step.wrapping_mul(2_654_435_761) >> 8;
        let flags = [Flags::SYN, Flags::ACK, Flags::FIN.with(Flags::ACK), Flags::RST, Flags::SYN.with(Flags::ACK)];
        let flags = flags[random as usize % flags.len()];
        observe(&mut connections, u64::from(step) * 10_000_000, random / 7 % 200, random % 2 == 0, flags, random % 3);
        for event in drain(&mut connections) {
            opened += u32::from(matches!(event, Event::Opened(_)));
            ended += u32::from(matches!(event, Event::Closed(_) | Event::Evicted(_)));
        }
        assert_eq!(opened - ended, connections.open());
    }
    connections.finish();
    ended += drain(&mut connections).iter().filter(|event| matches!(event, Event::Closed(_))).count() as u32;
    assert_eq!(opened, ended);
    assert!(opened > 1_000);
}

proptest! {
    /// Any segments of few connections, which wait for each other, and are given up meanwhile.
    #[test]
    fn what_waits_is_forgotten_with_its_connection(
        sent in vec((0..700_000_u64, 0..6_u32, any::<bool>(), 0..32_u8, 0..300_u32, 0..300_u32, 0..90_u32), 0..200),
    ) {
        let settings = Settings { connections_max: 4, half_open_max: 2, over_max: 1, ..Settings::default() };
        let mut connections = Connections::new(settings);
        let (mut now, mut opened, mut ended) = (1, 0, 0);
        let mut count = |connections: &mut Connections| {
            for event in drain(connections) {
                opened += u32::from(matches!(event, Event::Opened(_)));
                ended += u32::from(matches!(event, Event::Closed(_) | Event::Evicted(_)));
            }
            opened - ended
        };
        for (wait, client, is_client, flags, sequence, acknowledgment, len) in sent {
            now += wait;
            let client = SocketAddr::from(([10, 0, 0, 1], 4_000 + client as u16));
            let server = SocketAddr::from(([10, 0, 0, 2], 80));
            let (source, destination) = if is_client { (client, server) } else { (server, client) };
            let (time, flags, data) = (Timestamp(now), Flags(flags), &[22; 90][..len as usize]);
            connections.observe(&Segment { time, source, destination, sequence, acknowledgment, flags, window: 9, len, data });
            prop_assert_eq!(count(&mut connections), connections.open());
        }
        connections.finish();
        prop_assert_eq!(count(&mut connections), 0);
    }
}

/// With its places in the table, in two lists and the wheel: 500 bytes at most, of the 1,000 it may take; a handshake of TLS
/// or a dialogue of HTTP/1 has the rest.
#[test]
fn a_connection_is_small() {
    assert!(size_of::<Option<Flow>>() <= 464, "{}", size_of::<Option<Flow>>());
    assert!(size_of::<crate::tls::Handshake>() <= 400, "{}", size_of::<crate::tls::Handshake>());
    assert!(size_of::<crate::http::Dialogue>() <= 400, "{}", size_of::<crate::http::Dialogue>());
}
