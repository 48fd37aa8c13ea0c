//! The clock for expiry times that agents share.

use std::time::{Instant, SystemTime};

use watari_session::Now;

/// Unix time without jumps: the system clock at the start, plus the monotonic time since then.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    started_s: u64,
    started: Instant,
}

impl Clock {
    pub(super) fn start() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self { started_s: since.unwrap_or_default().as_secs(), started: Instant::now() }
    }

    /// Unix time in seconds.
    pub(super) fn unix_s(&self) -> u64 {
        self.now().unix_s
    }

    pub(super) fn now(&self) -> Now {
        let passed = self.started.elapsed();
        let ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        Now { ms, unix_s: self.started_s + passed.as_secs() }
    }

    /// Converts [`Now::ms`].
    pub(super) fn at(&self, ms: u64) -> tokio::time::Instant {
        (self.started + std::time::Duration::from_millis(ms)).into()
    }
}
