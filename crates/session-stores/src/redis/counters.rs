//! Counters of a Redis server.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::RedisError;

/// Counts since the start, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RedisCounters {
    /// Connections made.
    pub connections: u64,
    /// Failed attempts to connect.
    pub failed_attempts: u64,
    /// Calls that failed at once, because there was no connection.
    pub away: u64,
    /// Calls without a response in time.
    pub timed_out: u64,
    /// Calls during which the connection ended.
    pub lost: u64,
    /// Calls that the server refused.
    pub refused: u64,
    /// Calls with a response of an unexpected type.
    pub garbage: u64,
    /// Values in valid responses that no node has stored.
    pub foreign: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<RedisCounters>);

impl Counters {
    pub(super) fn now(&self) -> RedisCounters {
        *self.lock()
    }

    pub(super) fn connected(&self) {
        self.lock().connections += 1;
    }

    pub(super) fn not_connected(&self) {
        self.lock().failed_attempts += 1;
    }

    pub(super) fn found_foreign(&self) {
        self.lock().foreign += 1;
    }

    pub(super) fn failed(&self, error: &RedisError) {
        let mut counters = self.lock();
        let counter = match error {
            RedisError::Away => &mut counters.away,
            RedisError::TimedOut(_) => &mut counters.timed_out,
            RedisError::Lost(_) => &mut counters.lost,
            RedisError::Refused(_) => &mut counters.refused,
            RedisError::Garbage { .. } => &mut counters.garbage,
        };
        *counter += 1;
    }

    fn lock(&self) -> MutexGuard<'_, RedisCounters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
