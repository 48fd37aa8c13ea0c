//! Queues requests that wait for a slot at the origins of a pool.
//!
//! [`watari_admission::Queue`] decides; this module notifies the requests that wait. A request holds its [`Place`]
//! until the body of its response has ended, even if that comes from several origins, or until its tunnel has ended.
//! Dropping the `Place` frees the slot, also if the client leaves while the request waits.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use watari_admission::{AdmissionId, Entered, Load, Queue, QueueSettings, Request, RetryAfter};

use crate::observe::queue_metrics::{QueueMetrics, RuleMetrics, Wait};
use crate::observe::status::QueueStatus;

/// The queue of a pool.
#[derive(Debug)]
pub(crate) struct Admission {
    state: Mutex<QueueState>,
    /// Notified if a request has a deadline that may be earlier than all others.
    sooner: Notify,
    metrics: QueueMetrics,
}

#[derive(Debug)]
struct QueueState {
    queue: Queue,
    waiting: HashMap<AdmissionId, oneshot::Sender<Verdict>>,
    /// Whether a task runs that expires requests.
    watched: bool,
    /// One for each rule, and a last one for requests that match no rule.
    rules: Vec<RuleMetrics>,
}

/// The result of a wait.
type Verdict = Result<(), RetryAfter>;

/// A request that waits for its turn.
#[derive(Debug)]
struct Turn {
    verdict: oneshot::Receiver<Verdict>,
    wait: Wait,
}

/// A slot at the origins, or a queue slot. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct Place {
    admission: Arc<Admission>,
    id: AdmissionId,
}

impl Admission {
    pub(crate) fn new(settings: QueueSettings, metrics: QueueMetrics) -> Arc<Self> {
        let queue = Queue::new(settings);
        let rules = metrics.of_rules(&queue);
        let state = QueueState { queue, waiting: HashMap::new(), watched: false, rules };
        Arc::new(Self { state: Mutex::new(state), sooner: Notify::new(), metrics })
    }

    /// Replaces the settings, also for requests that wait.
    pub(crate) fn reconfigure(&self, settings: QueueSettings) {
        let mut state = self.lock();
        let begin = state.queue.reconfigure(settings, Instant::now().into_std());
        state.rules.iter_mut().for_each(|rule| rule.show(Load::default()));
        state.rules = self.metrics.of_rules(&state.queue);
        state.show();
        for id in begin {
            state.notify(id, Ok(()));
        }
    }

    /// Waits until a request of `client` for `path` at `host` may begin, or returns when the client may try again.
    pub(crate) async fn enter(self: &Arc<Self>, host: &str, path: &str, client: IpAddr) -> Result<Place, RetryAfter> {
        let (place, turn) = self.begin(Request { host, path, client })?;
        if let Some(turn) = turn {
            turn.comes().await?;
        }
        Ok(place)
    }

    /// The requests of the whole pool, and then those of each rule.
    pub(crate) fn status(&self) -> Vec<QueueStatus> {
        let state = self.lock();
        let all = [QueueStatus::of(None, state.queue.load())];
        let rules = state.queue.loads().filter_map(|(pattern, load)| Some((pattern?.to_string(), load)));
        all.into_iter().chain(rules.map(|(pattern, load)| QueueStatus::of(Some(pattern), load))).collect()
    }

    /// Returns a place. If it is a queue slot, also returns the turn to wait for.
    fn begin(self: &Arc<Self>, request: Request<'_>) -> Result<(Place, Option<Turn>), RetryAfter> {
        let mut state = self.lock();
        let entered = state.queue.enter(request, Instant::now().into_std());
        state.show();
        let place = |id| Place { admission: Arc::clone(self), id };
        match entered {
            Entered::Now(id) => Ok((place(id), None)),
            Entered::Refused(retry_after) => {
                state.rule_of(request).waits.full.inc();
                Err(retry_after)
            }
            Entered::Waiting(id) => {
                let (tell, verdict) = oneshot::channel();
                state.waiting.insert(id, tell);
                self.watch(&mut state);
                Ok((place(id), Some(Turn { verdict, wait: state.rule_of(request).waits.begin() })))
            }
        }
    }

    /// Starts the task that expires requests, unless it runs. It ends when no request has a deadline.
    fn watch(self: &Arc<Self>, state: &mut QueueState) {
        if state.queue.next_deadline().is_none() {
            return;
        }
        if state.watched {
            self.sooner.notify_one();
        } else {
            state.watched = true;
            tokio::spawn(Arc::clone(self).expire());
        }
    }

    async fn expire(self: Arc<Self>) {
        while let Some(deadline) = self.next_deadline() {
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => {}
                () = self.sooner.notified() => {}
            }
            self.lock().expire();
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let mut state = self.lock();
        let deadline = state.queue.next_deadline();
        state.watched = deadline.is_some();
        deadline.map(Instant::from_std)
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Waits until the request may begin or reaches its deadline.
    async fn comes(self) -> Verdict {
        // If the sender was dropped without a verdict, the request has left the queue itself, and needs none.
        let verdict = self.verdict.await.unwrap_or(Ok(()));
        self.wait.end(verdict.is_ok());
        verdict
    }
}

impl QueueState {
    fn rule_of(&self, request: Request<'_>) -> &RuleMetrics {
        &self.rules[self.queue.rule_of(request)]
    }

    /// Updates the metrics of each rule.
    fn show(&mut self) {
        for (rule, (_, load)) in self.rules.iter_mut().zip(self.queue.loads()) {
            rule.show(load);
        }
    }

    fn notify(&mut self, id: AdmissionId, verdict: Verdict) {
        if let Some(tell) = self.waiting.remove(&id) {
            // The receiver may have been dropped with its client. Then dropping the `Place` frees the slot.
            let _ = tell.send(verdict);
        }
    }

    fn leave(&mut self, id: AdmissionId) {
        self.waiting.remove(&id);
        if let Some(next) = self.queue.leave(id, Instant::now().into_std()) {
            self.notify(next, Ok(()));
        }
        self.show();
    }

    fn expire(&mut self) {
        for expired in self.queue.expire(Instant::now().into_std()) {
            self.notify(expired.id, Err(expired.retry_after));
        }
        self.show();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.admission.lock().leave(self.id);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::num::{NonZeroU32, NonZeroUsize};
    use std::time::Duration;

    use watari_admission::Limits;

    use super::*;
    use crate::observe::metrics::Metrics;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn one_at_a_time(wait_max: Option<Duration>) -> Arc<Admission> {
        let all = Limits { in_progress_max: NonZeroUsize::new(1), wait_max, ..Limits::default() };
        let settings = QueueSettings { rules: Vec::new(), all, priority: 0, one_in: NonZeroU32::MIN };
        Admission::new(settings, Metrics::default().of_queue("pool"))
    }

    fn loads(admission: &Admission) -> (usize, usize) {
        let all = &admission.status()[0];
        (all.in_progress, all.waiting)
    }

    #[tokio::test]
    async fn a_request_cancelled_in_the_queue_is_removed() {
        let admission = one_at_a_time(None);
        let place = admission.enter("a", "/", CLIENT).await.unwrap();
        let waiting = admission.begin(Request { host: "a", path: "/", client: CLIENT }).unwrap();
        let other = admission.begin(Request { host: "a", path: "/", client: CLIENT }).unwrap();
        assert_eq!(loads(&admission), (1, 2));
        drop(waiting);
        assert_eq!(loads(&admission), (1, 1));
        drop(place);
        other.1.unwrap().comes().await.unwrap();
        assert_eq!(loads(&admission), (1, 0));
        drop(other.0);
        assert_eq!(loads(&admission), (0, 0));
        assert!(admission.lock().waiting.is_empty());
    }

    #[tokio::test]
    async fn a_request_cancelled_as_it_is_called_passes_its_slot_on() {
        let admission = one_at_a_time(None);
        let place = admission.enter("a", "/", CLIENT).await.unwrap();
        let gone = admission.begin(Request { host: "a", path: "/", client: CLIENT }).unwrap();
        let next = admission.begin(Request { host: "a", path: "/", client: CLIENT }).unwrap();
        drop(place);
        drop(gone);
        next.1.unwrap().comes().await.unwrap();
        assert_eq!(loads(&admission), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_expires_gets_retry_after() {
        let admission = one_at_a_time(Some(Duration::from_secs(2)));
        let place = admission.enter("a", "/", CLIENT).await.unwrap();
        let begun = Instant::now();
        admission.enter("a", "/", CLIENT).await.unwrap_err();
        assert!((2..3).contains(&begun.elapsed().as_secs()));
        assert_eq!(loads(&admission), (1, 0));
        // The previous task has ended, and another begins.
        admission.enter("a", "/", CLIENT).await.unwrap_err();
        drop(place);
        assert!(admission.enter("a", "/", CLIENT).await.is_ok());
    }
}
