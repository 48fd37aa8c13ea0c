//! Who waits for a place at the origins of a pool.
//!
//! [`watari_admission::Queue`] decides; here those who wait are told. A request keeps its [`Place`] until the body of its
//! response has ended, whichever origins that comes from, or the tunnel that follows it, and gives it back by dropping it: also
//! where its client goes while it still waits.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use watari_admission::{Entered, Load, Queue, QueueSettings, Request, RetryAfter, Ticket};

use crate::metrics::{QueueMetrics, RuleMetrics, Wait};

/// How many requests of a kind there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueStatus {
    /// What they ask for; `None`: all of the pool.
    pub pattern: Option<String>,
    /// Those at the origins.
    pub in_progress: usize,
    /// Those that wait for a place there.
    pub waiting: usize,
}

/// The queue of a pool.
#[derive(Debug)]
pub(crate) struct Admission {
    state: Mutex<State>,
    /// Somebody's time is over sooner than that of all before.
    sooner: Notify,
    /// How its requests are counted.
    metrics: QueueMetrics,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    waiting: HashMap<Ticket, oneshot::Sender<Verdict>>,
    /// A task looks after those who have waited too long.
    watched: bool,
    /// One for each rule, and then one for what no rule is about.
    rules: Vec<RuleMetrics>,
}

/// What one who waits is told.
type Verdict = Result<(), RetryAfter>;

/// A request that waits for its turn.
#[derive(Debug)]
struct Turn {
    told: oneshot::Receiver<Verdict>,
    wait: Wait,
}

/// A place at the origins, or one among those who wait for it, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    admission: Arc<Admission>,
    ticket: Ticket,
}

impl Admission {
    pub(crate) fn new(settings: QueueSettings, metrics: QueueMetrics) -> Arc<Self> {
        let queue = Queue::new(settings);
        let rules = metrics.of_rules(&queue);
        let state = State { queue, waiting: HashMap::new(), watched: false, rules };
        Arc::new(Self { state: Mutex::new(state), sooner: Notify::new(), metrics })
    }

    /// Other settings hold from now on, also for those who wait.
    pub(crate) fn reconfigure(&self, settings: QueueSettings) {
        let mut state = self.lock();
        let begin = state.queue.reconfigure(settings, Instant::now().into_std());
        state.rules.iter_mut().for_each(|rule| rule.show(Load::default()));
        state.rules = self.metrics.of_rules(&state.queue);
        state.show();
        for ticket in begin {
            state.tell(ticket, Ok(()));
        }
    }

    /// Waits until a request of `client` for `path` at `host` may begin; or says when it may come again.
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

    /// A place, and the turn to wait for where it is not one at the origins yet.
    fn begin(self: &Arc<Self>, request: Request<'_>) -> Result<(Place, Option<Turn>), RetryAfter> {
        let mut state = self.lock();
        let entered = state.queue.enter(request, Instant::now().into_std());
        state.show();
        let place = |ticket| Place { admission: Arc::clone(self), ticket };
        match entered {
            Entered::Now(ticket) => Ok((place(ticket), None)),
            Entered::Refused(retry_after) => {
                state.rule_of(request).waits.full.inc();
                Err(retry_after)
            }
            Entered::Waiting(ticket) => {
                let (tell, told) = oneshot::channel();
                state.waiting.insert(ticket, tell);
                self.watch(&mut state);
                Ok((place(ticket), Some(Turn { told, wait: state.rule_of(request).waits.begin() })))
            }
        }
    }

    /// Somebody waits from now on; a task is there as long as anybody does who may have to be told that it took too long.
    fn watch(self: &Arc<Self>, state: &mut State) {
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Waits for it, or for the end of patience.
    async fn comes(self) -> Verdict {
        // Whoever is forgotten without a verdict has given its place back itself, and asks for none.
        let verdict = self.told.await.unwrap_or(Ok(()));
        self.wait.end(verdict.is_ok());
        verdict
    }
}

impl State {
    fn rule_of(&self, request: Request<'_>) -> &RuleMetrics {
        &self.rules[self.queue.rule_of(request)]
    }

    /// How many there are of each rule.
    fn show(&mut self) {
        for (rule, (_, load)) in self.rules.iter_mut().zip(self.queue.loads()) {
            rule.show(load);
        }
    }

    fn tell(&mut self, ticket: Ticket, verdict: Verdict) {
        if let Some(tell) = self.waiting.remove(&ticket) {
            // Whose client has gone gives its place back when it is dropped.
            let _ = tell.send(verdict);
        }
    }

    fn leave(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
        if let Some(next) = self.queue.leave(ticket, Instant::now().into_std()) {
            self.tell(next, Ok(()));
        }
        self.show();
    }

    fn expire(&mut self) {
        for expired in self.queue.expire(Instant::now().into_std()) {
            self.tell(expired.ticket, Err(expired.retry_after));
        }
        self.show();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.admission.lock().leave(self.ticket);
    }
}

impl QueueStatus {
    fn of(pattern: Option<String>, load: Load) -> Self {
        Self { pattern, in_progress: load.in_progress, waiting: load.waiting }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::num::{NonZeroU32, NonZeroUsize};
    use std::time::Duration;

    use watari_admission::Limits;

    use super::*;
    use crate::Metrics;

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
    async fn who_goes_while_it_waits_is_forgotten() {
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
    async fn who_goes_just_as_it_is_told_passes_its_place_on() {
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
    async fn who_has_waited_too_long_is_told_to_come_again() {
        let admission = one_at_a_time(Some(Duration::from_secs(2)));
        let place = admission.enter("a", "/", CLIENT).await.unwrap();
        let begun = Instant::now();
        admission.enter("a", "/", CLIENT).await.unwrap_err();
        assert!((2..3).contains(&begun.elapsed().as_secs()));
        assert_eq!(loads(&admission), (1, 0));
        // The task that told it has ended, and another begins.
        admission.enter("a", "/", CLIENT).await.unwrap_err();
        drop(place);
        assert!(admission.enter("a", "/", CLIENT).await.is_ok());
    }
}
