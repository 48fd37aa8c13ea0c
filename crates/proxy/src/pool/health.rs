//! Health of an origin, from its requests and its checks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use watari_balance::{Change, Health, HealthThresholds, Outcome, Outliers, Verdict};

use crate::observe::metrics::OriginHealthMetrics;

/// The name of an origin in its pool. The index is needed because an address may occur twice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) address: Arc<str>,
    /// The index in the pool.
    pub(crate) index: usize,
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.address
    }
}

/// The outlier state of all origins of a pool, from their requests.
type SharedOutliers = Arc<Mutex<Outliers<Name>>>;

/// The health of an origin.
#[derive(Debug)]
pub(super) struct OriginHealth {
    pub(crate) name: Name,
    outliers: SharedOutliers,
    slow_start: Option<Duration>,
    state: Mutex<HealthState>,
    metrics: OriginHealthMetrics,
}

#[derive(Debug, Default)]
struct HealthState {
    health: Health,
    ejected: bool,
    /// When it recovered, or was added.
    returned: Option<Instant>,
}

impl OriginHealth {
    pub(crate) fn new(
        name: Name,
        outliers: SharedOutliers,
        slow_start: Option<Duration>,
        metrics: OriginHealthMetrics,
    ) -> Arc<Self> {
        metrics.healthy.set(1);
        Arc::new(Self { name, outliers, slow_start, state: Mutex::default(), metrics })
    }

    /// Whether it may get a request.
    pub(super) fn is_up(&self, now: Instant) -> bool {
        let (healthy, ejected) = {
            let state = lock(&self.state);
            (state.health.is_healthy(), state.ejected)
        };
        healthy && (!ejected || lock(&self.outliers).may_have_request(&self.name, now))
    }

    /// The time since it recovered, and the time until it gets its full share; see
    /// [`watari_balance::Candidate::slow_start`].
    pub(crate) fn slow_start(&self, now: Instant) -> Option<(Duration, Duration)> {
        let returned = lock(&self.state).returned?;
        self.slow_start.map(|whole_after| (now.saturating_duration_since(returned), whole_after))
    }

    /// The origin was added to a pool.
    pub(super) fn appeared(&self, now: Instant) {
        lock(&self.state).returned = Some(now);
    }

    /// Copies the health of the same origin in a former pool. Checks may change it later.
    pub(super) fn follows(&self, former: &Self) {
        let (health, returned) = {
            let state = lock(&former.state);
            (state.health, state.returned)
        };
        let mut state = lock(&self.state);
        (state.health, state.returned) = (health, returned);
        self.show(&state);
    }

    /// A request is about to be sent.
    pub(crate) fn watch(self: &Arc<Self>, now: Instant) -> Watch {
        lock(&self.outliers).began(&self.name, now);
        Watch(Some((Arc::clone(self), now)))
    }

    /// A check has ended.
    pub(super) fn checked(&self, succeeded: bool, thresholds: HealthThresholds, now: Instant) {
        let mut state = lock(&self.state);
        let Some(change) = state.health.checked(succeeded, thresholds) else { return };
        let origin = self.name.as_ref();
        match change {
            Change::Fell => tracing::warn!(origin, "origin unhealthy"),
            Change::Rose => {
                state.returned = Some(now);
                tracing::info!(origin, "origin healthy");
            }
        }
        self.show(&state);
    }

    fn ended(&self, began: Instant, outcome: Outcome, now: Instant) {
        let verdict = lock(&self.outliers).ended(&self.name, began, outcome, now);
        let Some(verdict) = verdict else { return };
        let mut state = lock(&self.state);
        let origin = self.name.as_ref();
        match verdict {
            Verdict::Ejected { until, cause } => {
                state.ejected = true;
                self.metrics.count_ejection(cause);
                let seconds = until.saturating_duration_since(now).as_secs();
                tracing::warn!(origin, cause = cause.as_str(), seconds, "origin ejected");
            }
            Verdict::Readmitted => {
                (state.ejected, state.returned) = (false, Some(now));
                tracing::info!(origin, "origin readmitted");
            }
        }
        self.show(&state);
    }

    fn show(&self, state: &HealthState) {
        self.metrics.healthy.set(i64::from(state.health.is_healthy() && !state.ejected));
    }
}

/// A request to an origin, until its outcome is reported. If it is dropped before, it has no influence on the origin's
/// health.
#[derive(Debug)]
pub(super) struct Watch(Option<(Arc<OriginHealth>, Instant)>);

impl Watch {
    pub(crate) fn ended(mut self, outcome: Outcome) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: Outcome) {
        if let Some((health_of, began)) = self.0.take() {
            health_of.ended(began, outcome, tokio::time::Instant::now().into_std());
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end(Outcome::Abandoned);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
