//! Moves in the middle of a response.
//!
//! One client downloads a large file. Its connection moves from one agent to the other and back, by orders of an
//! operator. A download without moves gets the same number of orders, which the dispatcher refuses, so that the orders
//! cost the same.

use std::cell::Cell;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Scale;
use crate::clients::Clients;
use crate::connection::Opener;
use crate::failure::{Failure, doing};
use crate::load;
use crate::measure::{Samples, interleaved};
use crate::moves::addresses_selecting;
use crate::report::{Report, Row, Unit};
use crate::servers::{MOVED_FROM, MOVED_TO, Watari};
use crate::site::{EMPTY, Item, Key, Site};

/// Target: the CPU time of a move, as a share of that of a whole connection.
const COST_TARGET: f64 = 0.25;
/// Targets: the longest time without a byte at a move, in seconds: the median and the 99th percentile.
const PAUSE_TARGET: f64 = 0.001;
const P99_TARGET: f64 = 0.005;
/// Target: the time of a download that moves every [`PERIOD`], as a multiple of that of one that stays: 95 % of the
/// throughput.
const TIME_TARGET: f64 = 1.0 / 0.95;

/// The time between two orders where pauses are measured.
const PERIOD: Duration = Duration::from_millis(50);
/// The time in which the connection of the previous download ends.
const END_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
/// The bytes between two orders where CPU time is measured. A move is over before the next order: an order that comes
/// during a move costs CPU time, and moves nothing.
const STEP: u64 = 4 << 20;
/// Downloads of one sample of CPU time.
const DOWNLOADS: u32 = 2;

/// Whether the connection moves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Orders {
    Refused,
    Followed,
}

/// The cluster, and its only client.
struct Downloads {
    watari: Watari,
    opener: Opener,
    item: Item,
}

/// When the next order is due.
#[derive(Clone, Copy)]
enum Due {
    After(Duration),
    Every(u64),
}

/// One download.
struct Downloaded {
    took: Duration,
    /// The longest times without a byte, each within a [`PERIOD`] after an order.
    pauses: Vec<f64>,
}

/// Measures the CPU time of such moves, and what clients notice of them.
pub(crate) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let clients = Clients::new(site)?;
    let item = EMPTY.into_iter().rfind(|item| item.len <= scale.bulk_bytes).unwrap_or(EMPTY[0]);
    let watari = Watari::moving(site, &clients)?;
    let opener = Opener::coming_from(addresses_selecting(MOVED_FROM)?, site)?;
    let downloads = Downloads { watari, opener, item };
    cost(&downloads, &clients, scale, report)?;
    pauses(&downloads, scale, report)
}

fn cost(downloads: &Downloads, clients: &Clients, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    eprintln!("moves in mid-response ..");
    // The first download reads the file from the disk.
    downloads.get(Orders::Refused, Due::Every(STEP))?;
    let server = &downloads.watari.server;
    let figures = interleaved(scale.rounds, &[None, Some(Orders::Refused), Some(Orders::Followed)], |candidate| {
        let before = downloads.watari.moves()?;
        let costs = match *candidate {
            None => load::visit(clients, server, Key::Rsa2048, scale.connections)?,
            Some(orders) => server
                .cost(1.0, || (0..DOWNLOADS).try_for_each(|_| downloads.get(orders, Due::Every(STEP)).map(drop)))?,
        };
        Ok(vec![costs.iter().sum(), (downloads.watari.moves()? - before) as f64])
    })?;
    let [whole, stayed, moved] = &figures[..] else { unreachable!("a result for each candidate") };
    let of_moves = stayed.iter().zip(moved).map(|(stayed, moved)| (moved[0] - stayed[0]) / moved[1]).collect();
    report.add(Row::against(
        "one move in mid-response: additional CPU of dispatcher and agents".to_owned(),
        Unit::Microseconds,
        Samples::new(of_moves),
        "a connection, RSA-2048",
        Samples::of(whole, |figures| figures[0]),
        Some(COST_TARGET),
    ));
    Ok(())
}

fn pauses(downloads: &Downloads, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let figures = interleaved(scale.rounds, &[Orders::Refused, Orders::Followed], |orders| {
        let (mut pauses, mut took) = (Vec::new(), Vec::new());
        while pauses.len() < scale.pauses as usize {
            let downloaded = downloads.get(*orders, Due::After(PERIOD))?;
            took.push(downloaded.took.as_secs_f64());
            pauses.extend(downloaded.pauses);
        }
        let pauses = Samples::new(pauses);
        Ok(vec![pauses.median(), pauses.quantile(0.99), Samples::new(took).median()])
    })?;
    let of = |orders: usize, figure: usize| Samples::of(&figures[orders], |figures| figures[figure]);
    let peer = "a download without moves";
    for (what, figure, limit) in [("median", 0, PAUSE_TARGET), ("99th percentile", 1, P99_TARGET)] {
        let what = format!("longest pause at a move in mid-response: {what}");
        report.add(Row::limited(what, Unit::Microseconds, of(1, figure), peer, of(0, figure), limit));
    }
    let what = format!("time to download {} MiB that move every {} ms", downloads.item.len >> 20, PERIOD.as_millis());
    report.add(Row::against(what, Unit::Microseconds, of(1, 2), peer, of(0, 2), Some(TIME_TARGET)));
    Ok(())
}

impl Downloads {
    /// Downloads the file over a new connection, which the first agent serves in the beginning.
    fn get(&self, orders: Orders, due: Due) -> Result<Downloaded, Failure> {
        let mut connection = self.opener.open(self.watari.server.service)?;
        connection.get()?;
        let id = self.watari.only_connection()?;
        let turn = Cell::new(0);
        let order = || -> io::Result<()> {
            turn.set(turn.get() + 1);
            let moves = orders == Orders::Followed && turn.get() % 2 == 1;
            // The dispatcher refuses an order if the agent has the connection already.
            self.watari.order_move(&id, if moves { MOVED_TO } else { MOVED_FROM })
        };
        let begun = Instant::now();
        let mut clock =
            Clock { last: begun, ordered: begun, ordered_at: 0, longest: Duration::ZERO, pauses: Vec::new() };
        connection.download(self.item.path, self.item.len, |offset, _| {
            clock.on_piece(Instant::now());
            let is_due = match due {
                Due::After(period) => clock.ordered.elapsed() >= period,
                Due::Every(step) => offset >= clock.ordered_at + step,
            };
            if is_due {
                order()?;
                clock.on_order(offset);
            }
            Ok(())
        })?;
        let took = begun.elapsed();
        // The time before the first order.
        let pauses = clock.pauses.into_iter().skip(1).collect();
        Ok(Downloaded { took, pauses })
    }
}

/// The times at which bytes arrived.
struct Clock {
    last: Instant,
    ordered: Instant,
    ordered_at: u64,
    /// The longest time without a byte since the last order.
    longest: Duration,
    pauses: Vec<f64>,
}

impl Clock {
    fn on_piece(&mut self, now: Instant) {
        self.longest = self.longest.max(now - self.last);
        self.last = now;
    }

    fn on_order(&mut self, offset: u64) {
        self.pauses.push(self.longest.as_secs_f64());
        (self.ordered, self.ordered_at, self.longest) = (Instant::now(), offset, Duration::ZERO);
        // The time that the order took is not the server's.
        self.last = self.ordered;
    }
}

impl Watari {
    /// The id of the only connection of the dispatcher, once all earlier ones have ended.
    fn only_connection(&self) -> Result<String, Failure> {
        let deadline = Instant::now() + END_MAX;
        let mut connections = self.connections()?;
        while connections.len() > 1 && Instant::now() < deadline {
            sleep(POLL);
            connections = self.connections()?;
        }
        match &connections[..] {
            [only] => Ok(only["id"].as_str().unwrap_or_default().to_owned()),
            _ => Err(doing("looking for the only connection")(io::Error::other(format!(
                "{} are open",
                connections.len()
            )))),
        }
    }
}
