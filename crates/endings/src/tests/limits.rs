//! Memory limits and evictions.

use std::net::SocketAddr;

use proptest::collection::vec;
use proptest::prelude::*;
use watari_packets::{Flags, Segment, Timestamp};

use super::ledger::Ledger;
use crate::tracked::TrackedConnection;
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
    for client in 0..480 {
        establish(&mut connections, 1, client);
    }
    // Most are over, and still in the table: a flood takes their slots, but at most `half_open_max` of them.
    for client in 50..480 {
        observe(&mut connections, 2, client, true, Flags::RST.with(Flags::ACK), 0);
    }
    connections.advance(Timestamp(2_000_000_000));
    drain(&mut connections);
    assert_eq!(connections.open(), 50);
    let mut evicted = Vec::new();
    for client in 1_000..21_000 {
        observe(&mut connections, 2_000_000_000 + u64::from(client), client, true, Flags::SYN, 0);
        assert!(connections.open() <= 150, "{} of 150 after {client}", connections.open());
        let given_up = |event: &Event| matches!(event, Event::Evicted(evicted) if !evicted.is_answered);
        evicted.extend(drain(&mut connections).into_iter().filter(given_up));
    }
    assert_eq!((connections.counts().evicted, evicted.len()), (19_900, 19_900));
    // All earlier connections are still in the table.
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
    // A connection that is over makes room.
    observe(&mut connections, 200, 7, true, Flags::RST.with(Flags::ACK), 0);
    connections.advance(Timestamp(2_000_000_000));
    assert_eq!(connections.open(), 59);
    establish(&mut connections, 2_000_000_001, 1_000);
    assert_eq!(connections.open(), 60);
}

/// A SYN and the ACK behind it, from an address that no server has answered.
fn pretend(connections: &mut Connections, time: u64, client: u32) {
    observe(connections, time, client, true, Flags::SYN, 0);
    observe(connections, time + 2_000_000, client, true, Flags::ACK, 0);
}

#[test]
fn connections_without_an_answer_are_evicted_first() {
    let settings = Settings { connections_max: 100, ..Settings::default() };
    let mut connections = Connections::new(settings);
    for client in 0..30 {
        establish(&mut connections, 1, client);
    }
    for client in 1_000..1_500 {
        pretend(&mut connections, u64::from(client) * 4_000_000, client);
        // The same for a connection that begins with data: the server has not answered it.
        observe(&mut connections, u64::from(client) * 4_000_000 + 1, client + 1_000, true, Flags::ACK, 5);
    }
    assert_eq!((connections.open(), connections.counts().untracked), (100, 0));
    // SYNs that a server may still answer are not evicted for forged connections either.
    for client in 30..60 {
        observe(&mut connections, 6_900_000_000, client, true, Flags::SYN, 0);
    }
    for client in 1_500..2_000 {
        pretend(&mut connections, 1_000_000_000 + u64::from(client) * 4_000_000, client);
    }
    for client in 30..100 {
        establish(&mut connections, 9_100_000_000, client);
    }
    assert_eq!((connections.open(), connections.counts().untracked), (100, 0));
    let events = drain(&mut connections);
    let evicted: Vec<_> = events.iter().filter(|event| matches!(event, Event::Evicted(_))).collect();
    assert_eq!(evicted.len(), 1_500);
}

#[test]
fn one_direction_is_followed_while_there_is_room() {
    for is_client in [true, false] {
        let settings = Settings { connections_max: 100, half_open_max: 10, ..Settings::default() };
        let mut connections = Connections::new(settings);
        let syn = if is_client { Flags::SYN } else { Flags::SYN.with(Flags::ACK) };
        for client in 0..100 {
            let time = u64::from(client) * 2_000_000;
            observe(&mut connections, time, client, is_client, syn, 0);
            observe(&mut connections, time, client, is_client, Flags::ACK, 5);
        }
        connections.advance(Timestamp(900_000_000));
        assert_eq!((connections.open(), connections.counts().evicted), (100, 0));
        // Segments of the other side count, whenever they come.
        for client in 0..20 {
            observe(&mut connections, 900_000_000, client, !is_client, Flags::ACK, 0);
        }
        for client in 100..180 {
            establish(&mut connections, 900_000_000, client);
        }
        assert_eq!((connections.open(), connections.counts().evicted, connections.counts().untracked), (100, 80, 0));
        let answered = |event: &Event| matches!(event, Event::Evicted(evicted) if evicted.is_answered);
        assert_eq!(drain(&mut connections).iter().filter(|event| answered(event)).count(), 80);
        establish(&mut connections, 900_000_000, 180);
        assert_eq!(connections.counts().evicted, 80, "the rest is established");
        connections.finish();
        let open = |event: &Event| matches!(event, Event::Closed(it) if it.ending == Ending::Open);
        assert_eq!(drain(&mut connections).iter().filter(|event| open(event)).count(), 100);
    }
}

#[test]
fn what_opened_ends() {
    let settings = Settings { connections_max: 64, half_open_max: 16, over_max: 8, ..Settings::default() };
    let mut connections = Connections::new(settings);
    let mut ledger = Ledger::default();
    for step in 0..40_000_u32 {
        // Arbitrary segments in an arbitrary order.
        let random = step.wrapping_mul(2_654_435_761) >> 8;
        let flags = [Flags::SYN, Flags::ACK, Flags::FIN.with(Flags::ACK), Flags::RST, Flags::SYN.with(Flags::ACK)];
        let flags = flags[random as usize % flags.len()];
        observe(&mut connections, u64::from(step) * 10_000_000, random / 7 % 200, random % 2 == 0, flags, random % 3);
        ledger.take(&drain(&mut connections));
        assert_eq!(ledger.open(), connections.open());
    }
    connections.finish();
    ledger.take(&drain(&mut connections));
    ledger.assert_balanced();
    assert!(ledger.opened > 1_000);
}

proptest! {
    /// Arbitrary segments of few connections, which wait for each other, and are evicted meanwhile.
    #[test]
    fn what_waits_is_forgotten_with_its_connection(
        sent in vec((0..700_000_u64, 0..6_u32, any::<bool>(), 0..32_u8, 0..300_u32, 0..300_u32, 0..90_u32), 0..200),
    ) {
        let settings = Settings { connections_max: 4, half_open_max: 2, over_max: 1, ..Settings::default() };
        let mut connections = Connections::new(settings);
        let (mut now, mut ledger) = (1, Ledger::default());
        for (wait, client, is_client, flags, sequence, acknowledgment, len) in sent {
            now += wait;
            let client = SocketAddr::from(([10, 0, 0, 1], 4_000 + client as u16));
            let server = SocketAddr::from(([10, 0, 0, 2], 80));
            let (source, destination) = if is_client { (client, server) } else { (server, client) };
            let (time, flags, data) = (Timestamp(now), Flags(flags), &[22; 90][..len as usize]);
            connections.observe(&Segment { time, source, destination, sequence, acknowledgment, flags, window: 9, len, data });
            ledger.take(&drain(&mut connections));
            prop_assert_eq!(ledger.open(), connections.open());
        }
        connections.finish();
        ledger.take(&drain(&mut connections));
        ledger.assert_balanced();
        prop_assert_eq!(ledger.open(), 0);
    }
}

/// With its entries in the table, in two lists and the wheel: at most 520 bytes, of the budget of 1,000. A TLS
/// handshake or an HTTP/1 parser has the rest.
#[test]
fn a_connection_is_small() {
    assert!(size_of::<Option<TrackedConnection>>() <= 480, "{}", size_of::<Option<TrackedConnection>>());
    assert!(size_of::<crate::tls::Handshake>() <= 400, "{}", size_of::<crate::tls::Handshake>());
    assert!(size_of::<crate::http::Dialogue>() <= 400, "{}", size_of::<crate::http::Dialogue>());
}
