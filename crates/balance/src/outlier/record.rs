//! The state of one origin.

use std::time::{Duration, Instant};

use super::limits::OutlierLimits;
use super::verdict::{Cause, Verdict};
use crate::window::{Counts, Window};

#[derive(Debug)]
pub(super) struct Record {
    pub(super) state: OutlierState,
    /// `all` counts requests, `marked` counts failures.
    pub(super) window: Window,
    /// Consecutive failures up to now.
    pub(super) in_a_row: u32,
    /// Ejections that are not forgiven yet.
    ejections: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum OutlierState {
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
            state: OutlierState::Admitted { since: None },
            window: Window::new(window, now),
            in_a_row: 0,
            ejections: 0,
        }
    }

    pub(super) fn is_out(&self) -> bool {
        matches!(self.state, OutlierState::Out { .. })
    }

    /// A trial that has not ended after `trial_timeout` counts as lost.
    pub(super) fn may_have_request(&self, now: Instant, trial_timeout: Duration) -> bool {
        match self.state {
            OutlierState::Admitted { .. } => true,
            OutlierState::Out { until, trial, .. } => {
                until <= now && trial.is_none_or(|began| began + trial_timeout <= now)
            }
        }
    }

    pub(super) fn began(&mut self, now: Instant) {
        if let OutlierState::Out { until, trial, .. } = &mut self.state
            && *until <= now
        {
            *trial = Some(now);
        }
    }

    /// The request that began at `began` was abandoned. If it was the trial, another trial may follow.
    pub(super) fn abandoned(&mut self, began: Instant) {
        if let OutlierState::Out { trial, .. } = &mut self.state {
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
        self.state = OutlierState::Out { since: now, until, trial: None };
        Verdict::Ejected { until, cause }
    }

    /// Ejections that are forgiven for the time since the last readmission.
    fn forgiven(&self, limits: &OutlierLimits, now: Instant) -> u32 {
        let OutlierState::Admitted { since: Some(since) } = self.state else { return 0 };
        let times = now.saturating_duration_since(since).as_nanos() / limits.forgive_after.as_nanos().max(1);
        u32::try_from(times).unwrap_or(u32::MAX)
    }

    /// Starts with empty counts, except for the number of ejections.
    pub(super) fn readmit(&mut self, window: Duration, now: Instant) {
        *self = Self {
            state: OutlierState::Admitted { since: Some(now) },
            ejections: self.ejections,
            ..Self::new(window, now)
        };
    }
}
