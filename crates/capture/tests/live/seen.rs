//! Reads and checks captured segments.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use watari_capture::{Options, Ring, open};
use watari_packets::{Decoded, Decoder, Flags, Frame, Timestamp};

/// A segment, and the ring that it came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) ring: usize,
    pub(crate) time: Timestamp,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) flags: Flags,
    pub(crate) len: u32,
}

/// Longer than any test takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Captures on an interface.
pub(crate) fn on(interface: &str, filter: &str) -> Vec<Ring> {
    open(&Options { filter: Some(filter.to_owned()), ..Options::new(interface) }).unwrap()
}

/// Reads until `enough` returns true.
pub(crate) fn read(rings: &mut [Ring], enough: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
    let (mut seen, begun) = (Vec::new(), Instant::now());
    while !enough(&seen) {
        assert!(begun.elapsed() < DEADLINE, "{seen:#?}");
        for (number, ring) in rings.iter_mut().enumerate() {
            while let Some(frame) = ring.next().unwrap() {
                seen.extend(segment(number, &frame));
            }
        }
    }
    seen
}

fn segment(ring: usize, frame: &Frame<'_>) -> Option<Seen> {
    let (Decoded::Segment(segment) | Decoded::FirstFragment(segment)) = decoder().decode(frame) else { return None };
    let (source, destination, flags, len) = (segment.source, segment.destination, segment.flags, segment.len);
    Some(Seen { ring, time: segment.time, source, destination, flags, len })
}

fn decoder() -> Decoder {
    Decoder { vxlan_ports: vec![4789], ..Decoder::default() }
}

/// Segments by the client's address.
pub(crate) fn by_client(seen: &[Seen], server: SocketAddr) -> BTreeMap<SocketAddr, Vec<Seen>> {
    let mut clients: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for it in seen {
        if it.source == server {
            clients.entry(it.destination).or_default().push(*it);
        } else if it.destination == server {
            clients.entry(it.source).or_default().push(*it);
        }
    }
    clients
}

/// Whether this is a whole connection of [`visit`](crate::network::visit): each of its segments once.
pub(crate) fn is_whole(connection: &[Seen], server: SocketAddr) -> bool {
    let count = |from_server: bool, is: &dyn Fn(&Seen) -> bool| {
        connection.iter().filter(|it| (it.source == server) == from_server && is(it)).count()
    };
    [false, true].into_iter().all(|from| {
        let once = |is: &dyn Fn(&Seen) -> bool| count(from, is) == 1;
        once(&|it| it.flags.contains(Flags::SYN))
            && once(&|it| it.flags.contains(Flags::FIN))
            && once(&|it| it.len == 5)
    })
}

/// Reads until all connections of `clients` are complete. Fails if the server has others.
pub(crate) fn read_whole(rings: &mut [Ring], server: SocketAddr, clients: &[SocketAddr]) -> Vec<Seen> {
    let seen = read(rings, |seen| {
        let found = by_client(seen, server);
        clients.iter().all(|client| found.get(client).is_some_and(|it| is_whole(it, server)))
    });
    assert_eq!(by_client(&seen, server).len(), clients.len());
    seen
}

/// The frames that the kernel has counted for a new ring before the test sends any. A frame that arrives before the
/// ring's filter is in force, such as a multicast report of the kernel, is counted and not delivered.
pub(crate) fn counted_before(ring: &mut Ring) -> u64 {
    ring.counts().unwrap().received
}

/// Checks that `ring`, which has delivered `delivered` frames, counts each of them `copies` times, apart from those of
/// [`counted_before`]. More may arrive after a connection is complete, such as its last acknowledgement.
pub(crate) fn check_counts(ring: &mut Ring, before: u64, mut delivered: u64, copies: u64) {
    let begun = Instant::now();
    loop {
        let counts = ring.counts().unwrap();
        if (counts.received, counts.dropped) == (before + delivered * copies, 0) {
            return;
        }
        assert!(begun.elapsed() < DEADLINE, "{counts:?} of {delivered}, after {before}");
        while ring.next().unwrap().is_some() {
            delivered += 1;
        }
    }
}
