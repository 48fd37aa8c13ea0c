//! Whether a node can serve clients.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock;

/// How long a node may be unable to serve before that counts. An agent that is upgraded in place is without a link for
/// some tens of milliseconds, and its clients wait.
const BREAK_MAX: Duration = Duration::from_millis(500);

/// Asks whether the node can serve clients at this moment.
pub type CanServe = Box<dyn Fn() -> bool + Send + Sync>;

/// Whether a node can serve clients, apart from short breaks.
pub(crate) struct Serving {
    can_serve: CanServe,
    /// When it could last.
    last: Mutex<Option<Instant>>,
}

impl Serving {
    /// `was_able`: whether the previous process of the node could.
    pub(crate) fn new(can_serve: CanServe, was_able: bool) -> Self {
        Self { can_serve, last: Mutex::new(was_able.then(Instant::now)) }
    }

    /// To be asked several times in half a second.
    pub(crate) fn is_able(&self) -> bool {
        let mut last = lock(&self.last);
        if (self.can_serve)() {
            *last = Some(Instant::now());
        }
        last.is_some_and(|last| last.elapsed() < BREAK_MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_short_break_does_not_count() {
        let is_able = Arc::new(AtomicBool::new(false));
        let asked = is_able.clone();
        let serving = Serving::new(Box::new(move || asked.load(Ordering::Relaxed)), false);
        assert!(!serving.is_able(), "it never could");
        is_able.store(true, Ordering::Relaxed);
        assert!(serving.is_able());
        is_able.store(false, Ordering::Relaxed);
        let since = Instant::now();
        while serving.is_able() {
            assert!(since.elapsed() < Duration::from_secs(40), "it counts at last");
        }
        assert!(since.elapsed() > BREAK_MAX / 2);
    }
}
