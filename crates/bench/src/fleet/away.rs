//! A run that others make: they are made ready, begin together, and tell what becomes of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::io::AsyncWrite;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use watari_pki::Identity;

use super::{Finished, Fleet, StartError, Worked};
use crate::load;
use crate::plan::Plan;
use crate::portion::Portion;
use crate::progress::{Look, Progress};
use crate::tally::{Series, Tally};
use crate::worker::{self, HEARTBEAT, Inbox, Job, Link, LinkError, Order, Report, SILENCE_MAX, TalkError};

/// A run that others make.
#[derive(Debug)]
pub(super) struct Away {
    shared: Arc<Shared>,
    /// Its links are served by this one.
    thread: Option<JoinHandle<()>>,
    start: Instant,
}

#[derive(Debug)]
struct Shared {
    crew: Mutex<Vec<Member>>,
    classes: Arc<[String]>,
    cut: CancellationToken,
}

/// One of those who make it.
#[derive(Debug)]
struct Member {
    name: String,
    after: Duration,
    start_error: Duration,
    /// As it last told.
    tally: Tally,
    notes: BTreeMap<String, u64>,
    /// How long it took, once it is over.
    elapsed: Option<Duration>,
    lost: Option<String>,
}

impl Away {
    /// Begins.
    pub(super) fn start(fleet: Fleet, plan: Plan) -> Result<Self, StartError> {
        let classes = plan.work.classes();
        let shared = Arc::new(Shared { crew: Mutex::default(), classes, cut: CancellationToken::new() });
        let (started, begun) = mpsc::channel();
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new().name("fleet".to_owned()).spawn(move || {
            drive(&theirs, &fleet, &plan, &started);
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

    pub(super) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub(super) fn cut(&self) {
        self.shared.cut.cancel();
    }

    pub(super) fn finish(mut self) -> Finished {
        // A panic was reported by the thread itself; whoever had not ended then counts as lost.
        let _ = self.thread.take().map(JoinHandle::join);
        let tally = self.tally();
        let crew = self.shared.crew();
        let mut notes = BTreeMap::new();
        for (note, count) in crew.iter().flat_map(|member| &member.notes) {
            *notes.entry(note.clone()).or_default() += count;
        }
        let elapsed = crew.iter().map(|member| member.elapsed).max().flatten().unwrap_or_else(|| self.start.elapsed());
        let workers = crew.iter().map(Member::worked).collect();
        Finished { load: load::Finished { tally, elapsed, notes }, workers }
    }
}

impl Drop for Away {
    /// Nobody could ask what becomes of what is in progress.
    fn drop(&mut self) {
        self.cut();
    }
}

impl Shared {
    fn crew(&self) -> MutexGuard<'_, Vec<Member>> {
        self.crew.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    fn worked(&self) -> Worked {
        let lost = || self.elapsed.is_none().then(|| "it did not say what became of its part".to_owned());
        Worked {
            name: self.name.clone(),
            requests: self.tally.total().requests,
            after: self.after,
            start_error: self.start_error,
            lost: self.lost.clone().or_else(lost),
        }
    }
}

type Started = mpsc::Sender<Result<Instant, StartError>>;

fn gone() -> StartError {
    StartError::Worker { who: "the fleet".to_owned(), why: "its thread ended".to_owned() }
}

/// What the thread of the links does.
fn drive(shared: &Arc<Shared>, fleet: &Fleet, plan: &Plan, started: &Started) {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = started.send(Err(load::StartError::Thread(error).into()));
            return;
        }
    };
    runtime.block_on(async {
        match begin(shared, fleet, plan).await {
            Ok((links, start)) => {
                let _ = started.send(Ok(start));
                attend_all(shared, links).await;
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        }
    });
}

/// Makes everybody ready, and has them begin at one instant, which is returned.
async fn begin(shared: &Shared, fleet: &Fleet, plan: &Plan) -> Result<(Vec<Link>, Instant), StartError> {
    let stagger = fleet.stagger();
    let mut links = gather(fleet.ways(), plan, stagger).await?;
    let mut round_trips = Vec::new();
    for link in &mut links {
        let round_trip = link.round_trip().await;
        round_trips.push(round_trip.map_err(|error| worker_error(link.name.clone(), &error))?);
    }
    let start = Instant::now() + LEAD + round_trips.iter().copied().max().unwrap_or_default();
    for (index, (link, round_trip)) in links.iter_mut().zip(&round_trips).enumerate() {
        let one_way = *round_trip / 2;
        let after = start.saturating_duration_since(Instant::now()).saturating_sub(one_way);
        link.start(after).await.map_err(|error| worker_error(link.name.clone(), &error))?;
        shared.crew().push(Member {
            name: link.name.clone(),
            after: stagger * index as u32,
            start_error: one_way,
            tally: Tally::new(Arc::clone(&shared.classes)),
            notes: BTreeMap::new(),
            elapsed: None,
            lost: None,
        });
    }
    Ok((links, start))
}

/// Gives everybody a part, at the same time: who is ready early does not wait long.
async fn gather(ways: Vec<Way>, plan: &Plan, stagger: Duration) -> Result<Vec<Link>, StartError> {
    let of = ways.len() as u64;
    let mut gathering = JoinSet::new();
    for (index, way) in ways.into_iter().enumerate() {
        let portion = Portion::new(index as u64, of).ok_or(StartError::TooMany)?;
        let job = Job::of(plan, portion, stagger * index as u32);
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

/// How to come to one of those who make a load.
enum Way {
    /// By starting a process of this program, which gets this number.
    Process(PathBuf, usize),
    /// By connecting to this address.
    Worker(String, Box<Identity>),
}

impl Way {
    fn name(&self) -> String {
        match self {
            Self::Process(_, number) => format!("process {number}"),
            Self::Worker(address, _) => address.clone(),
        }
    }

    async fn open(&self) -> Result<Link, LinkError> {
        match self {
            Self::Process(program, number) => Link::spawn(program, *number).await,
            Self::Worker(address, identity) => Link::connect(address, identity).await,
        }
    }
}

impl Fleet {
    fn ways(&self) -> Vec<Way> {
        match self {
            Self::Here => Vec::new(),
            Self::Processes { program, count } => {
                (1..=*count).map(|number| Way::Process(program.clone(), number)).collect()
            }
            Self::Workers { addresses, identity, .. } => {
                addresses.iter().map(|address| Way::Worker(address.clone(), identity.clone())).collect()
            }
        }
    }
}

fn worker_error(who: String, error: &LinkError) -> StartError {
    StartError::Worker { who, why: error.to_string() }
}

async fn attend_all(shared: &Arc<Shared>, links: Vec<Link>) {
    let mut attended = JoinSet::new();
    for (index, link) in links.into_iter().enumerate() {
        let shared = Arc::clone(shared);
        attended.spawn(async move {
            if let Err(error) = attend(&shared, index, link).await {
                shared.crew()[index].lost = Some(error.to_string());
            }
        });
    }
    while attended.join_next().await.is_some() {}
}

/// Hears what becomes of a worker's part, until it is over.
async fn attend(shared: &Shared, index: usize, link: Link) -> Result<(), TalkError> {
    let (from, mut to, hold) = link.split();
    let mut reports = Inbox::read(from);
    let mut beats = interval(HEARTBEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut cut = false;
    loop {
        tokio::select! {
            report = reports.next() => match report? {
                Report::Progress(tally) => {
                    let tally = tally.into_tally(Arc::clone(&shared.classes))?;
                    shared.crew()[index].tally = tally;
                }
                Report::Done(done) => {
                    let tally = done.tally.into_tally(Arc::clone(&shared.classes))?;
                    let member = &mut shared.crew()[index];
                    member.tally = tally;
                    member.notes = done.notes;
                    member.elapsed = Some(Duration::from_nanos(done.elapsed_ns));
                    break;
                }
                other => return Err(other.out_of_turn()),
            },
            () = shared.cut.cancelled(), if !cut => {
                cut = true;
                tell(&mut to, &Order::Cut).await?;
            }
            _ = beats.tick() => tell(&mut to, &Order::Ping).await?,
        }
    }
    drop((reports, to));
    hold.end().await;
    Ok(())
}

/// Says something to a worker that may be done: it does not listen any more then, while its last word is still on the way. So it is
/// only an error that it takes nothing; whether it is gone, its silence says.
async fn tell(to: &mut (impl AsyncWrite + Unpin), order: &Order) -> Result<(), TalkError> {
    let _ = timeout(SILENCE_MAX, worker::send(to, order)).await.map_err(|_| TalkError::Silent)?;
    Ok(())
}

/// Time for everybody to hear when to begin.
const LEAD: Duration = Duration::from_millis(100);
