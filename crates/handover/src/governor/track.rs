//! The history of a transfer between looks.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::governor::settings::{Damping, Settings};
use crate::governor::views::{OriginId, TransferView};

/// The origins and the progress of a transfer.
#[derive(Debug)]
pub(crate) struct Track {
    origin: OriginId,
    /// When the transfer came to its origin, or was last ordered away from it.
    pub(crate) since: Instant,
    /// When it came to its origin.
    came: Instant,
    /// When another origin was last asked for the rest. `None` if that has refused.
    asked: Option<Instant>,
    /// The previous origins, and when the transfer left each.
    left: HashMap<OriginId, Instant>,
    /// The number of optional moves that were ordered.
    pub(crate) moves: u32,
    /// The number of failures and stalls in a row.
    failures: u32,
    pub(crate) pace: Pace,
    progress: Progress,
    /// When it was last part of a look.
    pub(crate) seen: Instant,
}

impl Track {
    pub(crate) fn new(view: &TransferView, now: Instant) -> Self {
        Self {
            origin: view.origin,
            since: now,
            came: now,
            asked: None,
            left: HashMap::new(),
            moves: 0,
            failures: 0,
            pace: Pace::new(view, now),
            progress: Progress::new(view, now),
            seen: now,
        }
    }

    /// Updates the origin and the progress, and the pace if windows are measured.
    pub(crate) fn follow(&mut self, view: &TransferView, now: Instant, window: Option<Duration>, settings: &Settings) {
        self.seen = now;
        if view.origin != self.origin {
            self.left.insert(self.origin, now);
            (self.origin, self.since, self.pace) = (view.origin, now, Pace::new(view, now));
            (self.came, self.asked, self.progress) = (now, None, Progress::new(view, now));
        }
        if let Some(window) = window {
            self.pace.follow(view, now, window);
        }
        if let Some(stalled) = settings.stalled {
            self.progress.follow(view, now, stalled, settings.rate_min);
        }
    }

    /// Another origin is asked for the rest. It has as long to respond as the present one had to send bytes.
    pub(crate) fn asks(&mut self, view: &TransferView, now: Instant) {
        (self.since, self.asked, self.progress) = (now, Some(now), Progress::new(view, now));
    }

    /// The origin that was asked has refused. If the present one still sends nothing, the next one is asked without
    /// delay.
    pub(crate) fn was_refused(&mut self) {
        self.asked = None;
    }

    /// Whether the transfer got no bytes, or too few, for `stalled`, and no other origin was asked in that time.
    pub(crate) fn is_stalled(&self, view: &TransferView, now: Instant, stalled: Duration) -> bool {
        let silent_since = view.waiting_since.map(|since| since.max(self.asked.unwrap_or(self.came)));
        silent_since.is_some_and(|since| now.saturating_duration_since(since) >= stalled) || self.progress.too_slow
    }

    /// Whether the limits allow an optional move.
    pub(crate) fn is_settled(&self, view: &TransferView, now: Instant, damping: &Damping) -> bool {
        self.has_stayed(now, damping.stay_min)
            && self.moves < damping.moves_max
            && view.remaining >= damping.remaining_min
    }

    /// Whether the transfer left this origin less than `stay_min` ago.
    pub(crate) fn has_left(&self, origin: OriginId, now: Instant, stay_min: Duration) -> bool {
        self.left.get(&origin).is_some_and(|at| now.saturating_duration_since(*at) < stay_min)
    }

    /// Whether the transfer may continue once more after a failure.
    pub(crate) fn may_fail(&self, now: Instant, damping: &Damping) -> bool {
        self.failures < damping.failures_max || self.has_stayed(now, damping.stay_min)
    }

    /// Counts a failure.
    pub(crate) fn fail(&mut self, now: Instant, damping: &Damping) {
        let before = if self.has_stayed(now, damping.stay_min) { 0 } else { self.failures };
        self.failures = before.saturating_add(1);
    }

    fn has_stayed(&self, now: Instant, stay_min: Duration) -> bool {
        now.saturating_duration_since(self.since) >= stay_min
    }
}

/// Whether a transfer gets bytes fast enough, measured over consecutive periods of waiting for its origin.
#[derive(Debug)]
struct Progress {
    delivered: u64,
    waited: Duration,
    /// The last period brought too few bytes.
    too_slow: bool,
}

impl Progress {
    fn new(view: &TransferView, now: Instant) -> Self {
        Self { delivered: view.delivered, waited: view.waited_until(now), too_slow: false }
    }

    /// * `period`: of waiting. The time in which the client takes nothing does not count.
    /// * `rate_min`: in bytes per second.
    fn follow(&mut self, view: &TransferView, now: Instant, period: Duration, rate_min: u32) {
        let waited = view.waited_until(now).saturating_sub(self.waited);
        if waited < period {
            return;
        }
        let delivered = u128::from(view.delivered.saturating_sub(self.delivered));
        let too_slow = delivered * 1000 < u128::from(rate_min) * waited.as_millis();
        *self = Self { too_slow, ..Self::new(view, now) };
    }
}

/// The rate of a transfer at its origin, over consecutive windows.
#[derive(Debug)]
pub(crate) struct Pace {
    began: Instant,
    delivered: u64,
    waited: Duration,
    /// The last complete window.
    pub(crate) last: Option<Window>,
    /// Windows in a row in which the transfer was slow.
    pub(crate) slow: u32,
}

/// The measurements of one window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Window {
    pub(crate) ended: Instant,
    /// In bytes per second.
    pub(crate) rate: f64,
    /// The share of the window in which the transfer waited for the origin.
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
