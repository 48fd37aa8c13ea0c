//! The work that servers get.

use std::net::SocketAddr;

use watari_bench_engine::plan::Pace;
use watari_bench_engine::schedule::{Rate, Schedule, Spacing};

use crate::clients::{Clients, Work};
use crate::failure::{Failure, planning};
use crate::measure::Samples;
use crate::servers::Server;
use crate::site::{Item, Key, LARGE, SMALL};

/// Concurrent connections: of downloads, of visits, and of keep-alive requests.
const DOWNLOADS: usize = 4;
const VISITS: usize = 8;
const REGULARS: usize = 16;
/// Concurrent visits at a fixed rate. They are so many that slow visits do not delay the next ones.
const VISITS_AT_RATE: usize = 64;

/// CPU seconds per GiB of body, downloaded over a few connections.
pub(crate) fn download(clients: &Clients, server: &Server, bytes: u64) -> Result<Vec<f64>, Failure> {
    let gets = bytes / LARGE.len;
    let gib = (gets * LARGE.len) as f64 / (1_u64 << 30) as f64;
    over_kept_connections(clients, server, LARGE, DOWNLOADS, gets, gib)
}

/// Time in which one client gets a file, in seconds, with the handshake.
pub(crate) fn fetch(clients: &Clients, service: SocketAddr, item: Item) -> Result<f64, Failure> {
    let finished = clients.ask(service, &Work::of_regulars(item, 1, 1))?;
    Ok(finished.elapsed.as_secs_f64())
}

/// CPU seconds per request of 1 KiB on a keep-alive connection.
pub(crate) fn request(clients: &Clients, server: &Server, requests: u64) -> Result<Vec<f64>, Failure> {
    over_kept_connections(clients, server, SMALL, REGULARS, requests, requests as f64)
}

/// CPU seconds per connection: a full handshake, one request of 1 KiB, and the close.
pub(crate) fn visit(clients: &Clients, server: &Server, key: Key, visits: u64) -> Result<Vec<f64>, Failure> {
    let work = Work::of_visitors(key, Pace::Closed { connections: VISITS }, visits);
    server.cost(visits as f64, || clients.ask(server.service, &work).map(drop))
}

/// Visits one after the other. Returns the time from each request to its first byte, in seconds.
pub(crate) fn visit_singly(clients: &Clients, service: SocketAddr, key: Key, visits: u64) -> Result<Samples, Failure> {
    let work = Work::of_visitors(key, Pace::Closed { connections: 1 }, visits);
    Ok(clients.ask_timed(service, &work)?.1)
}

/// Visits that begin at a fixed rate, `per_s`. Returns the rate that was reached, and the time from each request to its
/// first byte, in seconds.
pub(crate) fn visit_at(
    clients: &Clients,
    service: SocketAddr,
    key: Key,
    per_s: f64,
    visits: u64,
) -> Result<(f64, Samples), Failure> {
    let schedule = Schedule::new(Rate::constant(per_s).map_err(planning)?, Spacing::Even);
    let work = Work::of_visitors(key, Pace::Open { schedule, connections_max: VISITS_AT_RATE }, visits);
    let (finished, waits) = clients.ask_timed(service, &work)?;
    Ok((visits as f64 / finished.elapsed.as_secs_f64(), waits))
}

fn over_kept_connections(
    clients: &Clients,
    server: &Server,
    item: Item,
    connections: usize,
    gets: u64,
    units: f64,
) -> Result<Vec<f64>, Failure> {
    // Servers have now done the work that they do once for a file. They still do the work for each connection, but so
    // few handshakes take less than the 10 ms in which CPU time is counted.
    clients.ask(server.service, &Work::of_regulars(item, connections, connections as u64))?;
    let work = Work::of_regulars(item, connections, gets);
    server.cost(units, || clients.ask(server.service, &work).map(drop))
}
