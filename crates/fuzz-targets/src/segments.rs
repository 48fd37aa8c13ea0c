//! Arbitrary segments, in any order. Nothing panics, each connection that opened ends once, and memory is bounded.

use std::net::SocketAddr;

use arbitrary::Arbitrary;
use watari_endings::{Connections, Event, Profile, Settings, States};
use watari_packets::{Flags, Segment, Timestamp};

const CONNECTIONS_MAX: u32 = 8;

#[derive(Arbitrary, Debug)]
pub(crate) struct Sent<'a> {
    /// The time since the previous segment, in units of about 1 ms. It is cubed, so that some waits take hours.
    wait: u8,
    /// One of few clients, so that their segments meet.
    client: u8,
    is_client: bool,
    flags: u8,
    /// Distance from the next sequence number.
    ahead: i16,
    acknowledged: i16,
    /// Octets of data that were not captured, in addition to `data`.
    unseen: u8,
    window: u16,
    data: &'a [u8],
}

pub(crate) fn run(sent: Vec<Sent<'_>>) {
    let settings =
        Settings { connections_max: CONNECTIONS_MAX, half_open_max: 4, over_max: 4, seed: 7, ..Settings::default() };
    let mut connections = Connections::new(settings);
    let mut states = States::new(Profile::lab(), 2);
    let (mut opened, mut ended, mut now) = (0_u32, 0_u32, 1_u64 << 40);
    let mut next = [[0_u32; 2]; 4];
    let mut count = |events: &mut Connections, states: &mut States| {
        while let Some(event) = events.poll_event() {
            match &event {
                Event::Opened(_) => opened += 1,
                Event::Closed(connection) => {
                    ended += 1;
                    assert!(connection.start <= connection.end.max(connection.last));
                    assert!(connection.history.as_str().is_ascii());
                }
                Event::Evicted(_) => ended += 1,
                Event::Request(_) | Event::Overdue(_) => {}
            }
            states.handle(&event);
        }
        (opened, ended)
    };
    for it in &sent {
        now += u64::from(it.wait).pow(3) << 20;
        let client = usize::from(it.client % 4);
        let (me, peer) = (usize::from(!it.is_client), usize::from(it.is_client));
        let (client_end, server) =
            (SocketAddr::from(([10, 0, 0, 1], 4000 + client as u16)), SocketAddr::from(([10, 0, 0, 2], 80)));
        let (source, destination) = if it.is_client { (client_end, server) } else { (server, client_end) };
        let sequence = next[client][me].wrapping_add_signed(it.ahead.into());
        let len = it.data.len() as u32 + u32::from(it.unseen);
        next[client][me] = sequence.wrapping_add(len);
        connections.observe(&Segment {
            time: Timestamp(now),
            source,
            destination,
            sequence,
            acknowledgment: next[client][peer].wrapping_add_signed(it.acknowledged.into()),
            flags: Flags(it.flags),
            window: it.window,
            len,
            data: it.data,
        });
        let (opened, ended) = count(&mut connections, &mut states);
        assert_eq!(opened - ended, connections.open());
        assert!(connections.open() <= CONNECTIONS_MAX);
        states.advance(Timestamp(now));
        while states.poll().is_some() {}
    }
    connections.finish();
    let (opened, ended) = count(&mut connections, &mut states);
    assert_eq!(opened, ended);
}
