//! What the servers get to do: exact amounts of work, by a few threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::{Client, Connection};
use crate::failure::Failure;
use crate::servers::Server;
use crate::site::{Item, Key, LARGE, SMALL};

/// Connections at the same time: of downloads, of short visits, of visitors that stay.
const DOWNLOADS: usize = 4;
const VISITS: usize = 8;
const REGULARS: usize = 16;
/// Enough for visits that take a while to keep nobody from coming.
const VISITS_AT_RATE: usize = 64;

/// CPU seconds per GiB of body, downloaded over a few connections.
pub(crate) fn download(client: &Client, server: &Server, bytes: u64) -> Result<Vec<f64>, Failure> {
    let gets = (bytes / LARGE.len) as usize;
    let gib = (gets as u64 * LARGE.len) as f64 / (1_u64 << 30) as f64;
    over_open_connections(client, server, LARGE, DOWNLOADS, gets, gib)
}

/// CPU seconds per request of 1 KiB on a connection that was there before.
pub(crate) fn request(client: &Client, server: &Server, requests: usize) -> Result<Vec<f64>, Failure> {
    over_open_connections(client, server, SMALL, REGULARS, requests, requests as f64)
}

/// CPU seconds per connection: a full handshake, one request of 1 KiB, and the end.
pub(crate) fn visit(client: &Client, server: &Server, key: Key, visits: usize) -> Result<Vec<f64>, Failure> {
    let begun = AtomicUsize::new(0);
    let visit = || -> Result<(), Failure> {
        while begun.fetch_add(1, Ordering::Relaxed) < visits {
            let mut connection = client.connect(server.service, key)?;
            connection.get(SMALL)?;
            connection.finish();
        }
        Ok(())
    };
    server.cost(visits as f64, || at_once((0..VISITS).map(|_| visit)))
}

/// Visits that begin at a fixed rate, `per_s`. Returns at which rate they really came, and how long each visitor waited from its
/// request to the first byte.
pub(crate) fn visit_at(
    client: &Client,
    server: &Server,
    key: Key,
    per_s: f64,
    visits: usize,
) -> Result<(f64, Vec<Duration>), Failure> {
    let (begun, start) = (AtomicUsize::new(0), Instant::now());
    let mut waited: Vec<Vec<Duration>> = (0..VISITS_AT_RATE).map(|_| Vec::new()).collect();
    at_once(waited.iter_mut().map(|waited| {
        || {
            loop {
                let number = begun.fetch_add(1, Ordering::Relaxed);
                if number >= visits {
                    return Ok(());
                }
                let due = start + Duration::from_secs_f64(number as f64 / per_s);
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let mut connection = client.connect(server.service, key)?;
                waited.push(connection.get(SMALL)?);
                connection.finish();
            }
        }
    }))?;
    Ok((visits as f64 / start.elapsed().as_secs_f64(), waited.into_iter().flatten().collect()))
}

fn over_open_connections(
    client: &Client,
    server: &Server,
    item: Item,
    connections: usize,
    gets: usize,
    units: f64,
) -> Result<Vec<f64>, Failure> {
    let open = |_| client.connect(server.service, Key::P256);
    let mut connections = (0..connections).map(open).collect::<Result<Vec<Connection>, Failure>>()?;
    // Whatever is done once for a connection or a file is done.
    connections.iter_mut().try_for_each(|connection| connection.get(item).map(drop))?;
    let begun = AtomicUsize::new(0);
    let costs = server.cost(units, || {
        at_once(connections.iter_mut().map(|connection| {
            || {
                while begun.fetch_add(1, Ordering::Relaxed) < gets {
                    connection.get(item)?;
                }
                Ok(())
            }
        }))
    });
    connections.into_iter().for_each(Connection::finish);
    costs
}

/// Runs each of `tasks` in a thread of its own.
pub(crate) fn at_once<T: FnOnce() -> Result<(), Failure> + Send>(
    tasks: impl Iterator<Item = T>,
) -> Result<(), Failure> {
    thread::scope(|scope| {
        let threads: Vec<_> = tasks.map(|task| scope.spawn(task)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a client does not panic"))
    })
}
