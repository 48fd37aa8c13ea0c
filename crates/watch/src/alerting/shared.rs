//! What the notifier's handle, its task and its metrics share.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;
use watari_packets::Timestamp;

use super::alerts::{Alerts, Counts};
use crate::clock;

/// Counts for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotifierCounts {
    /// The counts of each receiver, with its name.
    pub receivers: Vec<(String, Counts)>,
    /// Alerts that are active.
    pub firing: usize,
    /// Alerts that were dropped because there were too many.
    pub given_up: u64,
    /// Failed writes of the journal.
    pub journal_failures: u64,
}

#[derive(Debug)]
pub(super) struct NotifierShared {
    pub(super) alerts: Mutex<Alerts>,
    pub(super) clock: Clock,
    /// The task has something to do.
    pub(super) wake: Notify,
    pub(super) stop: Notify,
    pub(super) journal_failures: Mutex<u64>,
}

impl NotifierShared {
    pub(super) fn counts(&self) -> NotifierCounts {
        let alerts = self.lock();
        NotifierCounts {
            receivers: alerts.counts().map(|(policy, counts)| (policy.name.clone(), counts)).collect(),
            firing: alerts.firing(),
            given_up: alerts.given_up(),
            journal_failures: *self.journal_failures.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Alerts> {
        self.alerts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time of day at the start, plus the elapsed time. It does not go back when the system's clock is set.
#[derive(Debug)]
pub(super) struct Clock {
    began: Timestamp,
    at: Instant,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self { began: clock::now(), at: Instant::now() }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.began + self.at.elapsed()
    }

    pub(super) fn instant(&self, at: Timestamp) -> Instant {
        self.at + at.since(self.began)
    }
}
