//! Counters of a writer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tracing::{error, info};

use crate::DatabaseError;

/// Counts since the start, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriterCounters {
    /// Entries put or taken that went to disk.
    pub written: u64,
    /// Puts and takes that were dropped, because too many were waiting.
    pub dropped: u64,
    /// Puts and takes that were dropped, and lookups that found nothing, because the file could not be read or written.
    pub failed: u64,
    /// Entries that were evicted, or were not stored because they alone are too large.
    pub evicted: u64,
    /// Lookups that were not made, because too many were in progress.
    pub refused: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    written: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
    evicted: AtomicU64,
    refused: AtomicU64,
    is_failing: AtomicBool,
}

impl Counters {
    pub(super) fn now(&self) -> WriterCounters {
        let [written, dropped, failed, evicted, refused] =
            [&self.written, &self.dropped, &self.failed, &self.evicted, &self.refused]
                .map(|counter| counter.load(Ordering::Relaxed));
        WriterCounters { written, dropped, failed, evicted, refused }
    }

    pub(super) fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn written(&self, entries: usize, evicted: usize) {
        self.written.fetch_add(entries as u64, Ordering::Relaxed);
        self.evicted.fetch_add(evicted as u64, Ordering::Relaxed);
        if self.is_failing.swap(false, Ordering::Relaxed) {
            info!("sessions are stored in the database again (agent.sessions.database)");
        }
    }

    /// Counts a failure, and logs the first one until writing works again: a full disk fails for every handshake.
    pub(super) fn failed(&self, entries: usize, cause: &DatabaseError) {
        self.failed.fetch_add(entries as u64, Ordering::Relaxed);
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            error!(
                %cause,
                "cannot use the database of sessions: sessions are only in memory until it can be written again \
                 (agent.sessions.database)"
            );
        }
    }
}
