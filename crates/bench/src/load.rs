//! Runs a plan: threads, each with a runtime of its own, and on them clients that send requests one after the other.

mod arrivals;
mod flows;
mod pacer;
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

use crate::client::Client;
use crate::ending::{Ending, EndingKind, Phase, Side};
use crate::exchange::{Broken, Exchange};
use crate::flow::Walk;
use crate::load::arrivals::Arrivals;
use crate::plan::{Pace, Plan, PlanError, Protocol, Work};
use crate::portion::Portion;
use crate::progress::{Look, Progress};
use crate::run::{ConnectionLog, Run, Shared};
use crate::tally::{Series, Tally};
use crate::tls::{self, Tls, TlsError};
use crate::users::{self, Users};

/// A run that has begun.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    /// A thread is taken when it is waited for; it says when it was done.
    threads: Vec<(Arc<Run>, Option<JoinHandle<Duration>>)>,
    /// Requests whose end was taken out of the tallies.
    taken: u64,
}

/// A part of a run that can begin.
#[derive(Debug)]
pub(crate) struct Prepared {
    plan: Plan,
    portion: Portion,
    tls: Tls,
}

impl Prepared {
    /// Begins. `start` is the zero of all times; the first request begins `after` that.
    pub(crate) fn start(
        self,
        start: Instant,
        after: Duration,
        log: Option<Arc<dyn ConnectionLog>>,
    ) -> Result<Load, StartError> {
        let plan = Arc::new(self.plan);
        let shared = Arc::new(Shared::new(&plan, self.portion, self.tls, start, log));
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

/// A run that is over.
#[derive(Debug)]
pub struct Finished {
    /// What became of everything.
    pub tally: Tally,
    /// How long it took.
    pub elapsed: Duration,
    /// Why things failed, in sentences, and how often.
    pub causes: BTreeMap<String, u64>,
}

/// A run cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Nobody could follow the plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// TLS is not what it should be.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

impl Load {
    /// Begins. Every connection's sample goes to `log`, too, if there is one.
    pub fn start(plan: Plan, log: Option<Arc<dyn ConnectionLog>>) -> Result<Self, StartError> {
        Self::prepare(plan, Portion::WHOLE)?.start(Instant::now(), Duration::ZERO, log)
    }

    /// Makes a part of a run ready to begin.
    pub(crate) fn prepare(plan: Plan, portion: Portion) -> Result<Prepared, StartError> {
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

    /// What has become of what has ended so far.
    pub fn tally(&self) -> Tally {
        let (first, rest) = self.threads.split_first().expect("there is always a thread");
        let mut tally = first.0.tally().clone();
        for (run, _) in rest {
            tally.merge(&run.tally());
        }
        tally
    }

    /// Brings `progress` up to date. Costs each thread about as much as a few requests, however long the run is.
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

    /// What has become of what has ended since the start, or since this was last asked; counting begins anew.
    pub fn take(&mut self) -> Tally {
        let (first, rest) = self.threads.split_first().expect("there is always a thread");
        let mut tally = first.0.take_tally();
        for (run, _) in rest {
            tally.merge(&run.take_tally());
        }
        self.taken += tally.total().requests;
        tally
    }

    /// Whether nothing is in progress any more.
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(|(_, thread)| thread.as_ref().is_none_or(JoinHandle::is_finished))
    }

    /// Drops what is in progress.
    pub fn cut(&self) {
        self.shared.cut.cancel();
    }

    /// Waits for the end.
    pub fn finish(mut self) -> Finished {
        let mut elapsed = Duration::ZERO;
        for (_, thread) in &mut self.threads {
            // A panic was reported by the thread itself; what it had in progress counts as unfinished.
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
    /// Nobody could ask what becomes of what is in progress.
    fn drop(&mut self) {
        self.cut();
    }
}

/// No more threads than there are connections.
fn threads(plan: &Plan) -> usize {
    plan.threads.clamp(1, plan.connections().max(1))
}

/// The share of a thread.
fn share(all: usize, index: usize, of: usize) -> usize {
    all / of + usize::from(index < all % of)
}

/// What one thread does, until the time that is returned.
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
                    // Who waited for a number to be refused, would wait until it is due.
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

/// The users of one thread, of those that are this process's part of the run.
fn users(run: &Run, settings: users::Settings, index: u64, of: u64) -> Users {
    let (process, processes) = run.shared.portion.get();
    Users::share(settings, process + processes * index, processes * of)
}

/// Waits until it is time to begin. The runtime's timers count milliseconds: a run that begins at once does not wait for one.
async fn begin(run: &Run, after: Duration) {
    let begin = run.shared.instant(after);
    if begin > tokio::time::Instant::now() {
        sleep_until(begin).await;
    }
}

/// A closed loop: each slot sends its next request when the one before has ended.
async fn closed(run: &Arc<Run>, connections: usize) {
    let mut slots = JoinSet::new();
    for mut client in clients(run, connections) {
        let run = Arc::clone(run);
        slots.spawn(async move { while do_next(&run, &mut client).await {} });
    }
    while slots.join_next().await.is_some() {}
}

/// As many clients as so many connections serve, made when they are asked for.
fn clients(run: &Arc<Run>, connections: usize) -> impl Iterator<Item = Client> + use<> {
    let run = Arc::clone(run);
    (0..connections).flat_map(move |_| Client::of_one_connection(&run))
}

/// Does what is next; false when there is nothing any more.
async fn do_next(run: &Arc<Run>, client: &mut Client) -> bool {
    let now = run.now();
    let Some(number) = run.shared.tickets.take(now) else { return false };
    match (&run.plan.work, run.plan.protocol) {
        (Work::Requests(requests), Protocol::Http1 { pipeline: pipeline @ 2.., .. }) => {
            let more = iter::from_fn(|| run.shared.tickets.take(now)).take(pipeline.min(client.room()) - 1);
            let batch: Vec<_> = iter::once(number).chain(more).map(|number| requests.nth(number)).collect();
            // Only what goes the same way goes over one connection.
            for batch in batch.chunk_by(|(a, from_a), (b, from_b)| Arc::ptr_eq(&a.site, &b.site) && from_a == from_b) {
                let (requests, source): (Vec<_>, _) = (batch.iter().map(|(request, _)| *request).collect(), batch[0].1);
                client.send_pipelined(&requests, source, run.now()).await;
            }
        }
        _ => perform_anew(run, client, number, now).await,
    }
    true
}

/// Does once what is to be done; a flow as a user whom the server does not know.
async fn perform_anew(run: &Arc<Run>, client: &mut Client, number: u64, due: Duration) {
    if let Work::Flow { .. } = run.plan.work {
        *client = Client::new(run);
    }
    perform(run, client, number, due).await;
}

/// Does once what is to be done.
async fn perform(run: &Run, client: &mut Client, number: u64, due: Duration) {
    match &run.plan.work {
        Work::Requests(requests) => {
            let (request, source) = requests.nth(number);
            client.send(request, source, due).await;
        }
        Work::Flow { flow, site, seed } => {
            let walk = Walk::new(Arc::clone(flow), number, *seed);
            flows::perform(run, client, flow, site, walk, due).await;
        }
    }
}

/// An open loop: requests are due when they are due; clients that are free take them, and there are more as they are needed.
async fn open(run: &Arc<Run>, schedule: impl Iterator<Item = Duration>, connections_max: usize) {
    let arrivals = Arc::new(Arrivals::default());
    let mut slots = JoinSet::new();
    let mut clients = clients(run, connections_max);
    let pacer = pacer::Pacer::new(&run.shared);
    let end = run.plan.stop.after.unwrap_or(Duration::MAX);
    for due in schedule {
        pacer.wait(due.min(end)).await;
        // Where the schedule is behind, nothing above ever waits.
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
    // A connection lasts as long as somebody may come to share it.
    drop(clients);
    while slots.join_next().await.is_some() {}
}

async fn take_arrivals(mut client: Client, run: Arc<Run>, arrivals: Arc<Arrivals>) {
    while let Some((due, number)) = arrivals.next().await {
        if run.now().saturating_sub(due) > run.plan.timeouts.connect {
            give_up(&run, number, due);
        } else {
            perform_anew(&run, &mut client, number, due).await;
        }
    }
}

/// Counts what found no connection free for as long as one may take to be established: its user has gone. Without this, what
/// waits for a server that cannot keep up would fill the memory, and the run would not end.
fn give_up(run: &Run, number: u64, due: Duration) {
    match &run.plan.work {
        Work::Requests(requests) => {
            let (request, source) = requests.nth(number);
            Exchange::new(&[request], source, due).fail(run, &Broken::before_response(NO_CONNECTION_FREE));
        }
        Work::Flow { site, .. } => flows::not_begun(run, site, due, NO_CONNECTION_FREE),
    }
}

const NO_CONNECTION_FREE: Ending = Ending { kind: EndingKind::Timeout, phase: Phase::Connect, side: Side::Client };
