//! Time for what agents share.

use std::time::{Instant, SystemTime};

use watari_session::Now;

/// Unix time that does not jump: what the system's clock said at the start, and what has passed since.
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

    /// Seconds of Unix time.
    pub(super) fn unix_s(&self) -> u64 {
        self.now().unix_s
    }

    pub(super) fn now(&self) -> Now {
        let passed = self.started.elapsed();
        let ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        Now { ms, unix_s: self.started_s + passed.as_secs() }
    }

    /// The point of time that [`Now::ms`] means.
    pub(super) fn at(&self, ms: u64) -> tokio::time::Instant {
        (self.started + std::time::Duration::from_millis(ms)).into()
    }
}
