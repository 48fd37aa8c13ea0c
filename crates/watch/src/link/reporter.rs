//! A sensor tells a judge on another machine.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};
use watari_packets::Timestamp;
use watari_pki::Identity;
use watari_wire::{NodeName, Role};

use super::backlog::{Backlog, Limits};
use super::clock::Clock;
use super::metrics::ReporterMetrics;
use super::session::{LinkError, Session};
use crate::report::Report;

/// Tells a judge what capture threads report, from [`Reporter::start`] on; while the judge is away it is held. Ends when it is
/// dropped; [`Reporter::finish`] tells the rest before.
#[derive(Debug)]
pub struct Reporter {
    shared: Arc<Shared>,
    telling: JoinHandle<()>,
}

/// How a sensor tells.
#[derive(Debug, Clone)]
pub struct Options {
    /// What is held.
    pub limits: Limits,
    /// How long to wait for a judge that is away.
    pub backoff: Backoff,
    /// The clock that is compared with the judge's: that of reports.
    pub clock: Clock,
}

/// How long to wait before another attempt: twice as long after each, and up to half less, so that not all sensors come at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first.
    pub first: Duration,
    /// At most.
    pub max: Duration,
}

/// A sensor cannot tell.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The certificate is not that of a sensor.
    #[error("the certificate of {0} does not allow the role {role}", role = Role::Sensor)]
    Role(NodeName),
}

/// How telling goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReporterCounts {
    /// Tallies that were told.
    pub told: u64,
    /// Tallies that were dropped before a judge had them.
    pub lost: u64,
    /// Bytes that are held.
    pub held_len: usize,
    /// Whether there is something that no judge has taken.
    pub is_untaken: bool,
    /// Whether a judge is there.
    pub is_connected: bool,
    /// How often one was.
    pub connections: u64,
    /// How often one was that had not been before: it has been told all that was held.
    pub judges: u64,
    /// Why none is there, the last time that none was.
    pub trouble: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { limits: Limits::default(), backoff: Backoff::default(), clock: Clock::system() }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(200), max: Duration::from_secs(10) }
    }
}

impl Reporter {
    /// Tells the judge at `address` (a host and a port), which is looked up for each attempt. Runs on the runtime that it is
    /// called in.
    pub fn start(address: String, identity: Identity, options: Options) -> Result<Self, StartError> {
        if !identity.roles().contains(&Role::Sensor) {
            return Err(StartError::Role(identity.node().clone()));
        }
        let Options { limits, backoff, clock } = options;
        let shared = Arc::new(Shared::new(limits, clock));
        let telling = Telling { shared: Arc::clone(&shared), address, identity, backoff };
        Ok(Self { shared, telling: tokio::spawn(telling.run()) })
    }

    /// A part of the sensor reports, once a second, even that nothing happened: that alone says that it listens. Never waits.
    pub fn tell(&self, part: u8, report: &Report) {
        self.shared.backlog().tell(part, report);
        self.shared.changed.notify_one();
    }

    /// How it goes.
    pub fn counts(&self) -> ReporterCounts {
        self.shared.counts()
    }

    /// The same, for Prometheus.
    pub fn metrics(&self) -> ReporterMetrics {
        ReporterMetrics(Arc::clone(&self.shared))
    }

    /// Tells what no judge has taken, for `limit` at most, and ends. Returns how it went: whether something is left.
    pub async fn finish(mut self, limit: Duration) -> ReporterCounts {
        self.shared.end();
        // Whether it was in time is told by what is left.
        let _ = timeout(limit, &mut self.telling).await;
        self.counts()
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.telling.abort();
    }
}

/// What capture threads and the link share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Whatever judge there is knows by it which reports it has had.
    run: u64,
    clock: Clock,
    backlog: Mutex<Backlog>,
    changed: Notify,
    is_ending: watch::Sender<bool>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_connected: bool,
    connections: u64,
    judge: Option<u64>,
    judges: u64,
    trouble: Option<String>,
}

impl Shared {
    fn new(limits: Limits, clock: Clock) -> Self {
        Self {
            run: rand::random(),
            clock,
            backlog: Mutex::new(Backlog::new(limits)),
            changed: Notify::new(),
            is_ending: watch::Sender::new(false),
            state: Mutex::default(),
        }
    }

    pub(super) const fn run(&self) -> u64 {
        self.run
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is something new.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Whether it ends, and has nothing more to tell.
    pub(super) fn is_done(&self) -> bool {
        *self.is_ending.borrow() && !self.backlog().is_untaken()
    }

    /// The judge of this run is there.
    pub(super) fn welcomed(&self, judge: u64) {
        let mut state = self.state();
        state.is_connected = true;
        state.connections += 1;
        if state.judge.replace(judge) != Some(judge) {
            state.judges += 1;
        }
    }

    /// There is no judge. Returns whether that is news.
    fn left(&self, why: String) -> bool {
        let mut state = self.state();
        let was_connected = std::mem::take(&mut state.is_connected);
        let is_other = state.trouble.as_ref() != Some(&why);
        state.trouble = Some(why);
        was_connected || is_other
    }

    fn end(&self) {
        self.is_ending.send_replace(true);
        self.changed.notify_one();
    }

    pub(super) fn counts(&self) -> ReporterCounts {
        let state = self.state();
        let backlog = self.backlog();
        ReporterCounts {
            told: backlog.told(),
            lost: backlog.lost(),
            held_len: backlog.held_len(),
            is_untaken: backlog.is_untaken(),
            is_connected: state.is_connected,
            connections: state.connections,
            judges: state.judges,
            trouble: state.trouble.clone(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells, and connects again.
struct Telling {
    shared: Arc<Shared>,
    address: String,
    identity: Identity,
    backoff: Backoff,
}

impl Telling {
    async fn run(self) {
        let mut wait = self.backoff.first;
        while !self.shared.is_done() {
            let was_welcome = match self.session().await {
                Ok(()) => return,
                Err((error, was_welcome)) => {
                    self.complain(&error);
                    was_welcome && !matches!(error, LinkError::Refused(_))
                }
            };
            if was_welcome {
                wait = self.backoff.first;
            }
            self.rest(wait).await;
            wait = (wait * 2).min(self.backoff.max);
        }
    }

    /// One connection; if it fails, whether the judge was there.
    async fn session(&self) -> Result<(), (LinkError, bool)> {
        let connected = Session::connect(&self.shared, &self.address, &self.identity).await;
        let session = connected.map_err(|error| (error, false))?;
        info!(address = self.address, judge = %session.judge(), "connected to the judge");
        session.tell().await.map_err(|error| (error, true))
    }

    fn complain(&self, error: &LinkError) {
        let address = &self.address;
        if self.shared.left(error.to_string()) {
            warn!(address, %error, "no judge, reports are held");
        } else {
            debug!(address, %error, "no judge still");
        }
    }

    /// Waits, but not longer than the first time when the sensor ends.
    async fn rest(&self, wait: Duration) {
        let wait = wait.mul_f64(1.0 - rand::random::<f64>() / 2.0);
        let mut ending = self.shared.is_ending.subscribe();
        sleep(wait.min(self.backoff.first)).await;
        // The sender lives as long as this.
        let _ = timeout(wait.saturating_sub(self.backoff.first), ending.wait_for(|is_ending| *is_ending)).await;
    }
}
