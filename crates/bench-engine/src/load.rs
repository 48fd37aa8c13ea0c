//! Runs a plan: threads, each with its own runtime, and on them clients that send requests one after the other.
//!
//! Imports: `plan` and `portion` for what to do; `client` and `exchange` to do it; `flow` and `users` for users; `run`,
//! `progress` and `tally` for the results.

mod arrivals;
mod flows;
mod pacer;
mod task;
mod visits;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, iter};

use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::task::coop::consume_budget;
use tokio::time::sleep_until;

use self::arrivals::Arrivals;
use self::task::{give_up, perform_anew};
use crate::client::Client;
use crate::connection_log::ConnectionLog;
use crate::plan::{Pace, Plan, PlanError, Protocol, Work};
use crate::portion::Portion;
use crate::progress::{Look, Progress};
use crate::run::{Run, RunShared};
use crate::tally::{Series, Tally};
use crate::tls::{self, Tls, TlsError};
use crate::users::{self, Users};

/// A run in progress.
#[derive(Debug)]
pub struct Load {
    shared: Arc<RunShared>,
    /// The threads. A handle is taken when the thread is joined, and returns the time at which the thread finished.
    threads: Vec<(Arc<Run>, Option<JoinHandle<Duration>>)>,
    /// Number of requests that [`Load::take`] removed from the tallies.
    taken: u64,
}

/// A part of a run that is ready to begin.
#[derive(Debug)]
pub struct Prepared {
    plan: Plan,
    portion: Portion,
    tls: Tls,
}

impl Prepared {
    /// Starts the threads. `start` is the zero of all times. The first request begins `after` that.
    pub fn start(
        self,
        start: Instant,
        after: Duration,
        log: Option<Arc<dyn ConnectionLog>>,
    ) -> Result<Load, StartError> {
        let plan = Arc::new(self.plan);
        let shared = Arc::new(RunShared::new(&plan, self.portion, self.tls, start, log));
        let mut load = Load { shared, threads: Vec::new(), taken: 0 };
        for index in 0..threads(&plan) {
            let run = Arc::new(Run::new(&plan, &load.shared));
            let on_thread = Arc::clone(&run);
            let name = format!("load-{index}");
            let thread = thread::Builder::new().name(name).spawn(move || drive(&on_thread, index, after));
            load.threads.push((run, Some(thread.map_err(StartError::Thread)?)));
        }
        Ok(load)
    }
}

#[derive(Debug)]
pub struct Finished {
    pub tally: Tally,
    /// The duration of the run.
    pub elapsed: Duration,
    /// Causes of failures, as sentences, with the number of occurrences.
    pub causes: BTreeMap<String, u64>,
}

/// The run cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The plan contradicts itself.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The TLS options are invalid.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The kernel refuses a thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

impl Load {
    /// Starts the run. `log` gets the sample of every connection.
    pub fn start(plan: Plan, log: Option<Arc<dyn ConnectionLog>>) -> Result<Self, StartError> {
        Self::prepare(plan, Portion::WHOLE)?.start(Instant::now(), Duration::ZERO, log)
    }

    /// Prepares a part of a run.
    pub fn prepare(plan: Plan, portion: Portion) -> Result<Prepared, StartError> {
        plan.check()?;
        let tls = Tls::prepare(&plan.tls, plan.protocol.alpn())?;
        if plan.work.needs_tls() {
            tls::gather_entropy()?;
        }
        Ok(Prepared { plan: portion.of_plan(plan), portion, tls })
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.shared.now()
    }

    /// The results so far.
    pub fn tally(&self) -> Tally {
        let (first, rest) = self.threads.split_first().expect("there is always a thread");
        let mut tally = first.0.tally().clone();
        for (run, _) in rest {
            tally.merge(&run.tally());
        }
        tally
    }

    /// Updates `progress`. It costs each thread about as much as a few requests, regardless of the length of the run.
    pub fn follow(&self, progress: &mut Progress) {
        let (elapsed, counts) = (self.elapsed(), Some(self.shared.counts()));
        progress.update(Look { elapsed, counts, behind: Duration::ZERO }, |from| {
            let mut course = Series::default();
            for (run, _) in &self.threads {
                course.merge_since(run.tally().series(), from);
            }
            course
        });
    }

    /// The results since the start or since the last call. Resets the counts.
    pub fn take(&mut self) -> Tally {
        let (first, rest) = self.threads.split_first().expect("there is always a thread");
        let mut tally = first.0.take_tally();
        for (run, _) in rest {
            tally.merge(&run.take_tally());
        }
        self.taken += tally.total().requests;
        tally
    }

    /// Whether all requests have ended.
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(|(_, thread)| thread.as_ref().is_none_or(JoinHandle::is_finished))
    }

    /// Cuts off all requests in progress.
    pub fn cut(&self) {
        self.shared.cut.cancel();
    }

    /// Waits for the end.
    pub fn finish(mut self) -> Finished {
        let mut elapsed = Duration::ZERO;
        for (_, thread) in &mut self.threads {
            // The thread has reported its own panic. Its requests in progress count as unfinished.
            let ended = thread.take().map(JoinHandle::join).and_then(Result::ok);
            elapsed = elapsed.max(ended.unwrap_or_else(|| self.shared.now()));
        }
        let mut tally = self.tally();
        let begun = self.threads.first().map_or(0, |(run, _)| self.shared.requests_begun(&run.plan.work));
        tally.unfinished(begun.saturating_sub(self.taken + tally.total().requests));
        Finished { tally, elapsed, causes: self.shared.causes.take() }
    }
}

impl Drop for Load {
    /// After this, no caller can read the results, so the run is cut off.
    fn drop(&mut self) {
        self.cut();
    }
}

/// Number of threads: not more than connections.
fn threads(plan: &Plan) -> usize {
    plan.threads.clamp(1, plan.connections().max(1))
}

/// The share of thread `index` of `of`.
fn share(all: usize, index: usize, of: usize) -> usize {
    all / of + usize::from(index < all % of)
}

/// The body of a load thread. Returns the time at which it finished.
fn drive(run: &Arc<Run>, index: usize, after: Duration) -> Duration {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime needs a few files");
    let of = threads(&run.plan);
    runtime.block_on(async {
        let work = async {
            begin(run, after).await;
            match &run.plan.pace {
                Pace::Closed { connections } => closed(run, share(*connections, index, of)).await,
                Pace::Open { schedule, connections_max } => {
                    let times = schedule.share(index as u64, of as u64).times().skip_while(|due| *due < after);
                    // Limits the schedule itself. Otherwise the thread would wait for the due time of a request only to
                    // find that the plan's number of requests is used up.
                    let count = run.plan.stop.requests.map_or(usize::MAX, |all| share(all as usize, index, of));
                    open(run, times.take(count), share(*connections_max, index, of)).await;
                }
                Pace::Users { settings, connections_max } => {
                    let users = users(run, settings.clone(), index as u64, of as u64);
                    visits::visits(run, users, share(*connections_max, index, of)).await;
                }
            }
            run.connections.close();
            run.connections.wait().await;
        };
        tokio::select! {
            () = work => {}
            () = run.shared.cut.cancelled() => {}
        }
    });
    run.now()
}

/// The users of one thread, among those of this process's part of the run.
fn users(run: &Run, settings: users::Settings, index: u64, of: u64) -> Users {
    let (process, processes) = run.shared.portion.get();
    Users::share(settings, process + processes * index, processes * of)
}

/// Waits for the start time. The runtime's timers have a resolution of a millisecond, so a run that begins at once does
/// not use them.
async fn begin(run: &Run, after: Duration) {
    let begin = run.shared.instant(after);
    if begin > tokio::time::Instant::now() {
        sleep_until(begin).await;
    }
}

/// A closed loop: each slot sends its next request when the previous one has ended.
async fn closed(run: &Arc<Run>, connections: usize) {
    let mut slots = JoinSet::new();
    for mut client in clients(run, connections) {
        let run = Arc::clone(run);
        slots.spawn(async move { while do_next(&run, &mut client).await {} });
    }
    while slots.join_next().await.is_some() {}
}

/// As many clients as `connections` connections serve. Made on demand.
fn clients(run: &Arc<Run>, connections: usize) -> impl Iterator<Item = Client> + use<> {
    let run = Arc::clone(run);
    (0..connections).flat_map(move |_| Client::of_one_connection(&run))
}

/// Performs the next task; false when the run is over.
async fn do_next(run: &Arc<Run>, client: &mut Client) -> bool {
    let now = run.now();
    let Some(number) = run.shared.tickets.take(now) else { return false };
    match (&run.plan.work, run.plan.protocol) {
        (Work::Requests(requests), Protocol::Http1 { pipeline: pipeline @ 2.., .. }) => {
            let more = iter::from_fn(|| run.shared.tickets.take(now)).take(pipeline.min(client.room()) - 1);
            let batch: Vec<_> = iter::once(number).chain(more).map(|number| requests.nth(number)).collect();
            // Only requests with the same site and source address share a connection.
            for batch in batch.chunk_by(|(a, from_a), (b, from_b)| Arc::ptr_eq(&a.site, &b.site) && from_a == from_b) {
                let (requests, source): (Vec<_>, _) = (batch.iter().map(|(request, _)| *request).collect(), batch[0].1);
                client.send_pipelined(&requests, source, run.now()).await;
            }
        }
        _ => perform_anew(run, client, number, now, now).await,
    }
    true
}

/// An open loop: requests are due by a schedule. Idle clients take them, and new clients are made on demand.
async fn open(run: &Arc<Run>, schedule: impl Iterator<Item = Duration>, connections_max: usize) {
    let arrivals = Arc::new(Arrivals::default());
    let mut slots = JoinSet::new();
    let mut clients = clients(run, connections_max);
    let pacer = pacer::Pacer::new(&run.shared);
    let end = run.plan.stop.after.unwrap_or(Duration::MAX);
    for due in schedule {
        pacer.wait(due.min(end)).await;
        // If the schedule is behind, nothing above ever yields.
        consume_budget().await;
        let Some(number) = run.shared.tickets.take(due) else { break };
        let now = run.now();
        run.tally().lag(now.saturating_sub(due));
        if arrivals.push(due, number)
            && let Some(client) = clients.next()
        {
            slots.spawn(take_arrivals(client, Arc::clone(run), Arc::clone(&arrivals)));
        }
        for (due, number) in arrivals.due_before(now.saturating_sub(run.plan.timeouts.connect)) {
            give_up(run, number, due);
        }
    }
    arrivals.close();
    // A shared connection closes only after its last client is dropped.
    drop(clients);
    while slots.join_next().await.is_some() {}
}

async fn take_arrivals(mut client: Client, run: Arc<Run>, arrivals: Arc<Arrivals>) {
    while let Some((due, number)) = arrivals.next().await {
        let now = run.now();
        if now.saturating_sub(due) > run.plan.timeouts.connect {
            give_up(&run, number, due);
        } else {
            perform_anew(&run, &mut client, number, due, now).await;
        }
    }
}
