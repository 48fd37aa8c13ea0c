//! A run that workers make: they get their parts, begin together, and report their results.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use watari_bench_engine::causes::Causes;
use watari_bench_engine::connection_log::ConnectionLog;
use watari_bench_engine::load;
use watari_bench_engine::plan::Plan;
use watari_bench_engine::portion::Portion;
use watari_bench_engine::progress::{Look, Progress};
use watari_bench_engine::tally::{Series, Tally};
use watari_link::SILENCE_MAX;

use super::attend::attend_all;
use super::crew::{Ask, FleetState, Member};
use super::definition::{Fleet, Way};
use super::logging::Logging;
use super::results::{Finished, LostError, StartError, Taken};
use crate::worker::{HEARTBEAT, Job, Link, LinkError};

/// A run that workers make.
#[derive(Debug)]
pub(super) struct Away {
    shared: Arc<FleetState>,
    /// The thread that serves the links.
    thread: Option<JoinHandle<()>>,
    start: Instant,
}

impl Away {
    /// Prepares the workers and starts the run.
    pub(super) fn start(fleet: Fleet, plan: Plan, log: Option<Arc<dyn ConnectionLog>>) -> Result<Self, StartError> {
        let classes = plan.work.classes();
        let logging = log.map(Logging::new).transpose().map_err(load::StartError::Thread)?.map(Arc::new);
        let shared = Arc::new(FleetState::new(classes));
        let (started, begun) = mpsc::channel();
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new().name("fleet".to_owned()).spawn(move || {
            drive(&theirs, &fleet, &plan, logging, &started);
        });
        let thread = Some(thread.map_err(load::StartError::Thread)?);
        let start = begun.recv().unwrap_or_else(|_| Err(gone()))?;
        Ok(Self { shared, thread, start })
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub(super) fn tally(&self) -> Tally {
        let mut tally = Tally::new(Arc::clone(&self.shared.classes));
        for member in self.shared.crew().iter() {
            tally.merge(&member.tally);
        }
        tally
    }

    pub(super) fn follow(&self, progress: &mut Progress) {
        progress.update(Look { elapsed: self.elapsed(), behind: 2 * HEARTBEAT, counts: None }, |from| {
            let mut course = Series::default();
            for member in self.shared.crew().iter() {
                course.merge_since(member.tally.series(), from);
            }
            course
        });
    }

    /// Asks all workers at once, and waits for all answers.
    pub(super) fn take(&mut self) -> Result<Taken, LostError> {
        let asked: Vec<_> = self.shared.crew().iter().map(Member::ask).collect();
        let mut all = Taken { tally: Tally::new(Arc::clone(&self.shared.classes)), at: Duration::ZERO };
        for (index, answer) in asked.iter().enumerate() {
            let taken = answer.recv_timeout(SILENCE_MAX).map_err(|_| self.shared.crew()[index].lost())?;
            all.tally.merge(&taken.tally);
            // Each worker counts up to its own instant. The result carries the mean.
            all.at += taken.at / asked.len() as u32;
        }
        Ok(all)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub(super) fn cut(&self) {
        self.shared.cut.cancel();
    }

    pub(super) fn finish(mut self) -> Finished {
        // The thread has reported its own panic. Workers that had not ended count as lost.
        let _ = self.thread.take().map(JoinHandle::join);
        let tally = self.tally();
        let crew = self.shared.crew();
        let causes = Causes::default();
        for (cause, count) in crew.iter().flat_map(|member| &member.causes) {
            causes.add(cause.clone(), *count);
        }
        let elapsed = crew.iter().map(|member| member.elapsed).max().flatten().unwrap_or_else(|| self.start.elapsed());
        let workers = crew.iter().map(Member::worked).collect();
        Finished { load: load::Finished { tally, elapsed, causes: causes.take() }, workers }
    }
}

impl Drop for Away {
    /// After this, no caller can read the results, so the run is cut off.
    fn drop(&mut self) {
        self.cut();
    }
}

type Started = mpsc::Sender<Result<Instant, StartError>>;

fn gone() -> StartError {
    StartError::Worker { who: "the fleet".to_owned(), why: "its thread ended".to_owned() }
}

/// The body of the thread that serves the links.
fn drive(shared: &Arc<FleetState>, fleet: &Fleet, plan: &Plan, logging: Option<Arc<Logging>>, started: &Started) {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = started.send(Err(load::StartError::Thread(error).into()));
            return;
        }
    };
    runtime.block_on(async {
        match begin(shared, fleet, plan, logging.is_some()).await {
            Ok((links, start)) => {
                let _ = started.send(Ok(start));
                attend_all(shared, links, logging).await;
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        }
    });
}

/// Prepares all workers, and starts them at one instant, which it returns.
async fn begin(
    shared: &FleetState,
    fleet: &Fleet,
    plan: &Plan,
    logged: bool,
) -> Result<(Vec<(Link, UnboundedReceiver<Ask>)>, Instant), StartError> {
    let stagger = fleet.stagger();
    let mut links = gather(fleet.ways(), plan, stagger, logged).await?;
    let mut round_trips = Vec::new();
    for link in &mut links {
        let round_trip = link.round_trip().await;
        round_trips.push(round_trip.map_err(|error| worker_error(link.name.clone(), &error))?);
    }
    let start = Instant::now() + LEAD + round_trips.iter().copied().max().unwrap_or_default();
    let mut begun = Vec::new();
    for (index, (mut link, round_trip)) in links.into_iter().zip(round_trips).enumerate() {
        let one_way = round_trip / 2;
        let after = start.saturating_duration_since(Instant::now()).saturating_sub(one_way);
        link.start(after).await.map_err(|error| worker_error(link.name.clone(), &error))?;
        let (asks, asked) = unbounded_channel();
        shared.crew().push(Member {
            name: link.name.clone(),
            after: stagger * index as u32,
            start_error: one_way,
            tally: Tally::new(Arc::clone(&shared.classes)),
            causes: BTreeMap::new(),
            elapsed: None,
            lost: None,
            asks,
        });
        begun.push((link, asked));
    }
    Ok((begun, start))
}

/// Gives all workers their parts at the same time, so that early ones do not wait long.
async fn gather(ways: Vec<Way>, plan: &Plan, stagger: Duration, logged: bool) -> Result<Vec<Link>, StartError> {
    let of = ways.len() as u64;
    let mut gathering = JoinSet::new();
    for (index, way) in ways.into_iter().enumerate() {
        let portion = Portion::new(index as u64, of).ok_or(StartError::TooMany)?;
        let job = Job::of(plan, portion, stagger * index as u32, logged);
        gathering.spawn(async move {
            let mut link = way.open().await.map_err(|error| worker_error(way.name(), &error))?;
            link.give(job).await.map_err(|error| worker_error(link.name.clone(), &error))?;
            Ok((index, link))
        });
    }
    let mut links = Vec::new();
    while let Some(gathered) = gathering.join_next().await {
        links.push(gathered.unwrap_or_else(|_| Err(gone()))?);
    }
    links.sort_by_key(|(index, _)| *index);
    Ok(links.into_iter().map(|(_, link)| link).collect())
}

fn worker_error(who: String, error: &LinkError) -> StartError {
    StartError::Worker { who, why: error.to_string() }
}

/// Time for the start order to reach all workers.
const LEAD: Duration = Duration::from_millis(100);
