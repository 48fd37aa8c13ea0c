//! The state of one origin.

use std::time::{Duration, Instant};

use super::{Cause, OutlierLimits, Verdict};
use crate::window::{Counts, Window};

#[derive(Debug)]
pub(super) struct Record {
    pub(super) standing: Standing,
    /// `all` counts requests, `marked` counts failures.
    pub(super) window: Window,
    /// Consecutive failures up to now.
    pub(super) in_a_row: u32,
    /// Ejections that are not forgiven yet.
    ejections: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Standing {
    /// The origin gets requests.
    Admitted {
        /// The time of the last readmission. `None`: never ejected.
        since: Option<Instant>,
    },
    /// The origin is ejected or on trial.
    Out {
        since: Instant,
        /// From this time on it is on trial.
        until: Instant,
        /// When the trial request began.
        trial: Option<Instant>,
    },
}

impl Record {
    pub(super) fn new(window: Duration, now: Instant) -> Self {
        Self {
            standing: Standing::Admitted { since: None },
            window: Window::new(window, now),
            in_a_row: 0,
            ejections: 0,
        }
    }

    pub(super) fn is_out(&self) -> bool {
        matches!(self.standing, Standing::Out { .. })
    }

    /// A trial that has not ended after `patience` counts as lost.
    pub(super) fn may_have_request(&self, now: Instant, patience: Duration) -> bool {
        match self.standing {
            Standing::Admitted { .. } => true,
            Standing::Out { until, trial, .. } => until <= now && trial.is_none_or(|began| began + patience <= now),
        }
    }

    pub(super) fn began(&mut self, now: Instant) {
        if let Standing::Out { until, trial, .. } = &mut self.standing
            && *until <= now
        {
            *trial = Some(now);
        }
    }

    /// The request that began at `began` was abandoned. If it was the trial, another trial may follow.
    pub(super) fn abandoned(&mut self, began: Instant) {
        if let Standing::Out { trial, .. } = &mut self.standing {
            *trial = trial.filter(|trial| *trial != began);
        }
    }

    pub(super) fn count(&mut self, failed: bool, now: Instant) {
        self.window.count(Counts::one(failed), now);
        self.in_a_row = if failed { self.in_a_row.saturating_add(1) } else { 0 };
    }

    pub(super) fn eject(&mut self, limits: &OutlierLimits, cause: Cause, now: Instant) -> Verdict {
        self.ejections = self.ejections.saturating_sub(self.forgiven(limits, now)).saturating_add(1);
        let until = now + limits.ejection.saturating_mul(self.ejections).min(limits.ejection_max);
        self.standing = Standing::Out { since: now, until, trial: None };
        Verdict::Ejected { until, cause }
    }

    /// Ejections that are forgiven for the time since the last readmission.
    fn forgiven(&self, limits: &OutlierLimits, now: Instant) -> u32 {
        let Standing::Admitted { since: Some(since) } = self.standing else { return 0 };
        let times = now.saturating_duration_since(since).as_nanos() / limits.forgive_after.as_nanos().max(1);
        u32::try_from(times).unwrap_or(u32::MAX)
    }

    /// Starts with empty counts, except for the number of ejections.
    pub(super) fn readmit(&mut self, window: Duration, now: Instant) {
        *self = Self {
            standing: Standing::Admitted { since: Some(now) },
            ejections: self.ejections,
            ..Self::new(window, now)
        };
    }
}
