//! The state of a run: of all its threads, and of each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::causes::Causes;
use crate::connection_log::ConnectionLog;
use crate::plan::{Plan, Stop, Work};
use crate::portion::Portion;
use crate::progress::Counts;
use crate::sample::{ConnectionSample, HandshakeKind, RequestSample};
use crate::tally::Tally;
use crate::tls::{Observer, Tls};

/// A run from the view of one of its threads.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) plan: Arc<Plan>,
    pub(crate) shared: Arc<RunShared>,
    pub(crate) observer: Observer,
    /// Tasks of connections. They end soon after their clients.
    pub(crate) connections: TaskTracker,
    /// This thread locks it for each sample. Displays lock it rarely.
    tally: Mutex<Tally>,
}

/// The part of a run that all threads share.
#[derive(Debug)]
pub(crate) struct RunShared {
    pub(crate) tls: Tls,
    pub(crate) tickets: Tickets,
    /// Cancelled when all requests in progress are to be cut off.
    pub(crate) cut: CancellationToken,
    pub(crate) causes: Causes,
    pub(crate) portion: Portion,
    log: Option<Arc<dyn ConnectionLog>>,
    /// The zero of all times.
    start: Instant,
    handshakes: AtomicU64,
    connections: AtomicU64,
    requests_of_flows: AtomicU64,
    closed: AtomicU64,
    full: AtomicU64,
    resumed: AtomicU64,
}

impl RunShared {
    pub(crate) fn new(
        plan: &Plan,
        portion: Portion,
        tls: Tls,
        start: Instant,
        log: Option<Arc<dyn ConnectionLog>>,
    ) -> Self {
        Self {
            tls,
            log,
            tickets: Tickets::new(plan.stop, portion),
            cut: CancellationToken::new(),
            causes: Causes::default(),
            portion,
            start,
            handshakes: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            full: AtomicU64::new(0),
            resumed: AtomicU64::new(0),
            requests_of_flows: AtomicU64::new(0),
        }
    }

    /// Counts a request of a flow. Tickets count flows, not their requests.
    pub(crate) fn flow_asks(&self) {
        self.requests_of_flows.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of requests begun.
    pub(crate) fn requests_begun(&self, work: &Work) -> u64 {
        match work {
            Work::Requests(_) => self.tickets.taken(),
            Work::Flow { .. } => self.requests_of_flows.load(Ordering::Relaxed),
        }
    }

    /// Time since the run's start.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// The counts of connections and handshakes so far. Samples arrive only when connections end, which may be at the
    /// end of the run.
    pub(crate) fn counts(&self) -> Counts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            opened: count(&self.connections),
            closed: count(&self.closed),
            full: count(&self.full),
            resumed: count(&self.resumed),
        }
    }

    /// `at` on tokio's clock.
    pub(crate) fn instant(&self, at: Duration) -> tokio::time::Instant {
        (self.start + at).into()
    }
}

impl Run {
    pub(crate) fn new(plan: &Arc<Plan>, shared: &Arc<RunShared>) -> Self {
        Self {
            plan: Arc::clone(plan),
            shared: Arc::clone(shared),
            observer: Observer::default(),
            connections: TaskTracker::new(),
            tally: Mutex::new(Tally::new(plan.work.classes())),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.shared.now()
    }

    /// The deadline of a response that the client waits for from now on.
    pub(crate) fn response_deadline(&self) -> tokio::time::Instant {
        self.shared.instant(self.now() + self.plan.timeouts.response)
    }

    /// The number of the next TLS handshake of the run.
    pub(crate) fn next_handshake(&self) -> u64 {
        self.shared.portion.number(self.shared.handshakes.fetch_add(1, Ordering::Relaxed))
    }

    /// The number of the next connection of the run.
    pub(crate) fn next_connection(&self) -> u64 {
        self.shared.portion.number(self.shared.connections.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn request_ended(&self, sample: &RequestSample) {
        self.tally().request(sample);
    }

    /// Counts a finished TLS handshake.
    pub(crate) fn secured(&self, kind: HandshakeKind) {
        let counter = match kind {
            HandshakeKind::Full => &self.shared.full,
            HandshakeKind::Resumed => &self.shared.resumed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_ended(&self, sample: &ConnectionSample) {
        self.shared.closed.fetch_add(1, Ordering::Relaxed);
        self.tally().connection(sample);
        if let Some(log) = &self.shared.log {
            log.ended(sample);
        }
    }

    /// Whether there is a log of connections.
    pub(crate) fn is_logged(&self) -> bool {
        self.shared.log.is_some()
    }

    /// Returns the tally so far, and replaces it by an empty one.
    pub(crate) fn take_tally(&self) -> Tally {
        std::mem::replace(&mut self.tally(), Tally::new(self.plan.work.classes()))
    }

    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Permits for requests. Each has a number, which determines the request.
#[derive(Debug)]
pub(crate) struct Tickets {
    next: AtomicU64,
    limit: u64,
    until: Duration,
    portion: Portion,
}

impl Tickets {
    fn new(stop: Stop, portion: Portion) -> Self {
        Self {
            portion,
            next: AtomicU64::new(0),
            limit: stop.requests.unwrap_or(u64::MAX),
            until: stop.after.unwrap_or(Duration::MAX),
        }
    }

    /// The next number; `None` when the run is over.
    pub(crate) fn take(&self, now: Duration) -> Option<u64> {
        if self.are_over(now) {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.limit).then(|| self.portion.number(number))
    }

    /// Whether the time of the run is over, so that no request begins any more.
    pub(crate) fn are_over(&self, now: Duration) -> bool {
        now >= self.until
    }

    /// Number of permits given out.
    pub(crate) fn taken(&self) -> u64 {
        self.next.load(Ordering::Relaxed).min(self.limit)
    }
}
