//! What a reporter's handle, its link and its metrics share.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use watari_packets::Timestamp;

use super::backlog::{Backlog, Limits};
use super::clock::Clock;

/// Counts of a reporter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReporterCounts {
    /// Tallies reported.
    pub reported: u64,
    /// Tallies that were dropped before a judge got them.
    pub lost: u64,
    /// Bytes in the backlog.
    pub held_len: usize,
    /// Whether the backlog has reports that no judge has taken.
    pub is_untaken: bool,
    /// Whether a judge is connected.
    pub is_connected: bool,
    /// Number of connections to judges.
    pub connections: u64,
    /// Number of new judges, to which the whole backlog was sent.
    pub judges: u64,
    /// The reason of the last failed connection.
    pub trouble: Option<String>,
}

/// State that capture threads and the link share.
#[derive(Debug)]
pub(super) struct ReporterShared {
    /// A random number, by which judges distinguish the runs of this sensor.
    run: u64,
    clock: Clock,
    backlog: Mutex<Backlog>,
    pub(super) changed: Notify,
    pub(super) is_ending: watch::Sender<bool>,
    state: Mutex<LinkState>,
}

#[derive(Debug, Default)]
struct LinkState {
    is_connected: bool,
    connections: u64,
    judge: Option<u64>,
    judges: u64,
    trouble: Option<String>,
}

impl ReporterShared {
    pub(super) fn new(limits: Limits, clock: Clock) -> Self {
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

    /// Waits for new reports, or for the end.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Whether it is ending, and all reports are taken.
    pub(super) fn is_done(&self) -> bool {
        *self.is_ending.borrow() && !self.backlog().is_untaken()
    }

    /// Connected to the judge of this run.
    pub(super) fn welcomed(&self, judge: u64) {
        let mut state = self.state();
        state.is_connected = true;
        state.connections += 1;
        if state.judge.replace(judge) != Some(judge) {
            state.judges += 1;
        }
    }

    /// Not connected. Returns whether the reason is new.
    pub(super) fn left(&self, why: String) -> bool {
        let mut state = self.state();
        let was_connected = std::mem::take(&mut state.is_connected);
        let is_other = state.trouble.as_ref() != Some(&why);
        state.trouble = Some(why);
        was_connected || is_other
    }

    pub(super) fn end(&self) {
        self.is_ending.send_replace(true);
        self.changed.notify_one();
    }

    pub(super) fn counts(&self) -> ReporterCounts {
        let state = self.state();
        let backlog = self.backlog();
        ReporterCounts {
            reported: backlog.reported(),
            lost: backlog.lost(),
            held_len: backlog.held_len(),
            is_untaken: backlog.is_untaken(),
            is_connected: state.is_connected,
            connections: state.connections,
            judges: state.judges,
            trouble: state.trouble.clone(),
        }
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
