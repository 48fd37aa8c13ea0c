//! A crowd of clients that requests one content which no cache has yet.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::Scale;
use crate::cache::origin::{HELD_LEN, HELD_PATH, Origin};
use crate::cache::{AGENTS, SHARED, proxy};
use crate::clients::Clients;
use crate::connection::{Connection, Opener};
use crate::failure::{Failure, doing};
use crate::measure::{Samples, interleaved};
use crate::report::{Report, Row, Unit};
use crate::servers::{Server, Watari, haproxy_varnish};
use crate::site::Site;

/// Targets: requests at the origin, and the longest time until the last client has a byte, in seconds.
const REQUESTS_TARGET: f64 = 1.0;
const LAST_TARGET: f64 = 0.050;

/// More than the content takes.
const MEMORY_MIB: u64 = 256;
/// Number of client addresses. One address may not have so many connections.
const ADDRESSES: u8 = 64;
/// Threads that open connections.
const THREADS: usize = 4;
/// Clients that get all of the content. The others leave after its first byte.
const READERS: usize = 4;
/// Time for all requests to arrive, after the last of them was sent.
const ARRIVAL: Duration = Duration::from_millis(500);
/// The longest time without a byte. Only a defect reaches it.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Compares agents with Varnish.
pub(super) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let addresses = (1..=ADDRESSES).map(|last| IpAddr::from(Ipv4Addr::new(127, 204, 0, last)));
    let (clients, opener) = (Clients::new(site)?, Opener::coming_from(addresses.collect(), site)?);
    eprintln!("{} clients of {AGENTS} agents and one cold content ..", scale.crowd);
    let of_watari = |origin| {
        let proxy = proxy(origin, SHARED, MEMORY_MIB);
        Ok(Watari::forwarding_in_turn(site, &clients, proxy, AGENTS)?.server)
    };
    let of_varnish = |origin| haproxy_varnish(site, &clients, origin, MEMORY_MIB);
    let candidates: [&dyn Fn(SocketAddr) -> Result<Server, Failure>; 2] = [&of_watari, &of_varnish];
    let outcomes = interleaved(scale.rounds, &candidates, |start| {
        let origin = Origin::start(site, |_| None)?;
        one_round(&opener, &start(origin.address)?, &origin, scale.crowd)
    })?;
    let what = format!("{} clients of {AGENTS} agents, one cold content", scale.crowd);
    let figures = [
        ("requests at the origin", Unit::Count, REQUESTS_TARGET),
        ("time until the last has a byte", Unit::Microseconds, LAST_TARGET),
    ];
    for (at, (figure, unit, limit)) in figures.into_iter().enumerate() {
        let of = |candidate: usize| Samples::of(&outcomes[candidate], |figures| figures[at]);
        report.add(Row::limited(format!("{what}: {figure}"), unit, of(0), "HAProxy + Varnish", of(1), limit));
    }
    Ok(())
}

/// The requests at the origin, and the time from its first byte until the last client can read one, in seconds.
fn one_round(opener: &Opener, server: &Server, origin: &Origin, crowd: usize) -> Result<Vec<f64>, Failure> {
    let mut connections = connect(opener, server, crowd)?;
    connections.iter_mut().try_for_each(|connection| connection.request(HELD_PATH))?;
    sleep(ARRIVAL);
    let first_byte = origin.release();
    let last = wait_for_all(&connections)?;
    connections.truncate(READERS);
    scope(|scope| {
        let readers: Vec<_> =
            connections.iter_mut().map(|connection| scope.spawn(|| connection.response(HELD_LEN))).collect();
        readers.into_iter().try_for_each(|reader| reader.join().expect("a client does not panic"))
    })?;
    Ok(vec![origin.requests() as f64, (last - first_byte).as_secs_f64()])
}

/// Opens connections. Each of them gets the small file, so that no TLS ticket is on its way.
fn connect(opener: &Opener, server: &Server, crowd: usize) -> Result<Vec<Connection>, Failure> {
    let open = || -> Result<Vec<Connection>, Failure> {
        let open = |_| {
            let mut connection = opener.open(server.service)?;
            connection.get()?;
            Ok(connection)
        };
        (0..crowd / THREADS).map(open).collect()
    };
    scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(open)).collect();
        let connections: Result<Vec<_>, Failure> =
            threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect();
        Ok(connections?.into_iter().flatten().collect())
    })
}

/// Waits until each connection has something to read. Returns when the last one had.
fn wait_for_all(connections: &[Connection]) -> Result<Instant, Failure> {
    let mut waiting: Vec<PollFd<'_>> =
        connections.iter().map(|connection| PollFd::new(connection.socket(), PollFlags::IN)).collect();
    let mut last = Instant::now();
    while !waiting.is_empty() {
        let timeout = WAIT_MAX.try_into().ok();
        let ready = poll(&mut waiting, timeout.as_ref()).map_err(|error| doing("waiting for a byte")(error.into()))?;
        if ready == 0 {
            return Err(doing("waiting for a byte")(std::io::ErrorKind::TimedOut.into()));
        }
        last = Instant::now();
        waiting.retain(|connection| connection.revents().is_empty());
    }
    Ok(last)
}
