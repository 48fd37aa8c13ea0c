//! Sensors, judges and reports.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use watari_endings::{Profile, Tally};
use watari_packets::Timestamp;
use watari_pki::{Authority, Identity};
use watari_values::{NodeName, Role};
use watari_watch::board::Board;
use watari_watch::link::{Backoff, Clock, Judge, Listening, Options, Reporter};
use watari_watch::report::{Health, Report};

/// A cluster with two sensors, a judge, and an agent.
pub(crate) fn cluster() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path(), "c").unwrap();
    for (name, role) in [("s1", Role::Sensor), ("s2", Role::Sensor), ("j1", Role::Judge), ("a1", Role::Agent)] {
        authority.issue(&NodeName::new(name).unwrap(), &[role], 1).unwrap();
    }
    dir
}

pub(crate) fn identity(dir: &Path, name: &str) -> Identity {
    Identity::load(dir, &NodeName::new(name).unwrap()).unwrap()
}

/// A unique address. No other socket listens there while a judge is away, or connects from there.
pub(crate) fn anywhere() -> SocketAddr {
    static COUNT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    ([127, high.max(1), low, COUNT.fetch_add(1, Ordering::Relaxed)], 0).into()
}

/// The time of the clocks, in seconds.
pub(crate) const NOW_S: u64 = 1_800_000_000;

pub(crate) fn clock_at(at_s: u64) -> Clock {
    Clock::new(move || Timestamp(at_s * 1_000_000_000))
}

pub(crate) fn new_judge() -> (Judge, Arc<Mutex<Board>>) {
    let board = Arc::new(Mutex::new(Board::new(Profile::site())));
    (Judge::new(Arc::clone(&board), clock_at(NOW_S)), board)
}

/// A judge that listens. It stops with the test.
pub(crate) struct Watching {
    pub(crate) address: SocketAddr,
    pub(crate) judge: Judge,
    pub(crate) board: Arc<Mutex<Board>>,
    serving: JoinHandle<()>,
}

impl Watching {
    pub(crate) fn start(dir: &Path) -> Self {
        Self::start_at(dir, anywhere(), new_judge())
    }

    pub(crate) fn start_at(dir: &Path, address: SocketAddr, judge: (Judge, Arc<Mutex<Board>>)) -> Self {
        let (judge, board) = judge;
        let listener = TcpListener::bind(address).unwrap();
        let listening = Listening::on(listener, identity(dir, "j1"), judge.clone()).unwrap();
        let address = listening.address().unwrap();
        Self { address, judge, board, serving: tokio::spawn(listening.run()) }
    }

    /// Closes the listener and all connections.
    pub(crate) async fn stop(&mut self) {
        self.serving.abort();
        let _ = (&mut self.serving).await;
    }

    pub(crate) fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap()
    }

    /// The opened connections of each second on the board, at the server of [`report`].
    pub(crate) fn opened(&self, sensor: &str) -> Vec<(u64, u64)> {
        let board = self.board();
        let Some(course) = board.course(sensor, &server()) else { return Vec::new() };
        let course = serde_json::to_value(course).unwrap();
        let rows = course["rows"].as_array().unwrap();
        rows.iter().map(|row| (row[0].as_u64().unwrap(), row[OPENED].as_u64().unwrap())).collect()
    }

    /// A sensor in the JSON of the board.
    pub(crate) fn sensor(&self, name: &str) -> Value {
        let view = serde_json::to_value(self.board().view()).unwrap();
        let sensors = view["sensors"].as_array().unwrap();
        sensors.iter().find(|sensor| sensor["name"] == name).cloned().unwrap_or_default()
    }

    /// Waits for a refusal whose reason contains `part`.
    pub(crate) async fn refusal(&self, part: &str) {
        let refusal = || self.judge.last_refusal().unwrap_or_default();
        wait_until(part, || refusal().contains(part)).await;
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The column in the rows of a board.
const OPENED: usize = 5;

pub(crate) fn server() -> SocketAddr {
    ([192, 0, 2, 1], 443).into()
}

/// A report of `opened` connections in this second.
pub(crate) fn report(at_s: u64, opened: u32) -> Report {
    report_of(at_s, Tally { opened, ..Tally::default() })
}

pub(crate) fn report_of(at_s: u64, tally: Tally) -> Report {
    let at = Timestamp((at_s + 1) * 1_000_000_000 - 1);
    Report { at, tallies: vec![(server(), at_s, tally)], health: Health::default() }
}

pub(crate) fn start(dir: &Path, name: &str, address: SocketAddr) -> Reporter {
    Reporter::start(address.to_string(), identity(dir, name), options()).unwrap()
}

pub(crate) fn options() -> Options {
    let backoff = Backoff { first: Duration::from_millis(5), max: Duration::from_millis(50) };
    Options { backoff, clock: clock_at(NOW_S), ..Options::default() }
}

/// Waits until the reporter's failure contains `part`.
pub(crate) async fn trouble(reporter: &Reporter, part: &str) {
    wait_until(part, || reporter.counts().trouble.is_some_and(|trouble| trouble.contains(part))).await;
}

pub(crate) async fn all_taken(reporter: &Reporter) {
    wait_until("all reports are taken", || !reporter.counts().is_untaken).await;
}

/// Waits for a condition, with a timeout far longer than it takes.
pub(crate) async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
