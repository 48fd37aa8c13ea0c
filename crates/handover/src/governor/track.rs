//! What is remembered of a transfer from look to look.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::governor::settings::Damping;
use crate::governor::views::{OriginId, TransferView};

/// Where a transfer was, and how it fared.
#[derive(Debug)]
pub(crate) struct Track {
    origin: OriginId,
    /// Since when it has been there; or since it was last ordered away, if it is still there.
    pub(crate) since: Instant,
    /// The origins before, and when it left each.
    left: HashMap<OriginId, Instant>,
    /// How often it was ordered elsewhere because it was slow or origins were unequal.
    pub(crate) moves: u32,
    /// How often it has failed or stalled in a row.
    failures: u32,
    pub(crate) pace: Pace,
    /// When it was last shown.
    pub(crate) seen: Instant,
}

impl Track {
    pub(crate) fn new(view: &TransferView, now: Instant) -> Self {
        let pace = Pace::new(view, now);
        Self { origin: view.origin, since: now, left: HashMap::new(), moves: 0, failures: 0, pace, seen: now }
    }

    /// Takes note of where the transfer is now, and of its pace if windows are measured.
    pub(crate) fn follow(&mut self, view: &TransferView, now: Instant, window: Option<Duration>) {
        self.seen = now;
        if view.origin != self.origin {
            self.left.insert(self.origin, now);
            (self.origin, self.since, self.pace) = (view.origin, now, Pace::new(view, now));
        }
        if let Some(window) = window {
            self.pace.follow(view, now, window);
        }
    }

    /// Whether it may move for a reason that can wait.
    pub(crate) fn is_settled(&self, view: &TransferView, now: Instant, damping: &Damping) -> bool {
        self.has_stayed(now, damping.stay_min)
            && self.moves < damping.moves_max
            && view.remaining >= damping.remaining_min
    }

    /// Whether it has only just left this origin.
    pub(crate) fn has_left(&self, origin: OriginId, now: Instant, stay_min: Duration) -> bool {
        self.left.get(&origin).is_some_and(|at| now.saturating_duration_since(*at) < stay_min)
    }

    /// Whether it may go on once more after a failure.
    pub(crate) fn may_fail(&self, now: Instant, damping: &Damping) -> bool {
        self.failures < damping.failures_max || self.has_stayed(now, damping.stay_min)
    }

    /// It goes on after a failure.
    pub(crate) fn fail(&mut self, now: Instant, damping: &Damping) {
        let before = if self.has_stayed(now, damping.stay_min) { 0 } else { self.failures };
        self.failures = before.saturating_add(1);
        self.since = now;
    }

    fn has_stayed(&self, now: Instant, stay_min: Duration) -> bool {
        now.saturating_duration_since(self.since) >= stay_min
    }
}

/// How fast a transfer is at its origin, over one window after the other.
#[derive(Debug)]
pub(crate) struct Pace {
    began: Instant,
    delivered: u64,
    waited: Duration,
    /// What the last window showed.
    pub(crate) last: Option<Window>,
    /// Windows in a row in which it was slow.
    pub(crate) slow: u32,
}

/// What a window showed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Window {
    pub(crate) ended: Instant,
    /// In bytes per second.
    pub(crate) rate: f64,
    /// The share of the time in which the origin was waited for.
    pub(crate) waiting: f64,
}

impl Pace {
    fn new(view: &TransferView, now: Instant) -> Self {
        Self { began: now, delivered: view.delivered, waited: view.waited_until(now), last: None, slow: 0 }
    }

    #[allow(clippy::cast_precision_loss, reason = "under 2^53")]
    fn follow(&mut self, view: &TransferView, now: Instant, window: Duration) {
        let took = now.saturating_duration_since(self.began);
        if took < window || took.is_zero() {
            return;
        }
        let waited = view.waited_until(now).saturating_sub(self.waited);
        let rate = view.delivered.saturating_sub(self.delivered) as f64 / took.as_secs_f64();
        let last = Window { ended: now, rate, waiting: waited.div_duration_f64(took) };
        *self = Self { last: Some(last), slow: self.slow, ..Self::new(view, now) };
    }
}
