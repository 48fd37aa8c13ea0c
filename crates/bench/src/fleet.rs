//! Where a load is generated: by threads of this process, by several processes of this machine, or by workers on other
//! machines.

mod attend;
mod away;
mod logging;
mod way;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use watari_pki::Identity;

use crate::load::{self, Load};
use crate::plan::{Pace, Plan};
use crate::progress::Progress;
use crate::run::ConnectionLog;
use crate::tally::Tally;
use away::Away;

/// Where a load is generated.
#[derive(Clone)]
pub enum Fleet {
    /// By threads of this process.
    Here,
    /// By `count` processes of this machine, each with the plan's number of threads.
    Processes {
        /// The `watari` executable. Its arguments make it a worker.
        program: PathBuf,
        /// Number of processes.
        count: usize,
    },
    /// By workers that listen, each with the plan's number of threads.
    Workers {
        /// Their addresses: `host:port`.
        addresses: Vec<String>,
        /// The certificate and key with which this process connects to them.
        identity: Box<Identity>,
        /// How much later each worker begins than the one before it.
        stagger: Duration,
    },
}

/// A run in progress, here or elsewhere.
#[derive(Debug)]
pub struct Running(Made);

#[derive(Debug)]
enum Made {
    Here(Load),
    Away(Away),
}

#[derive(Debug)]
pub struct Finished {
    pub load: load::Finished,
    /// The workers, if the load was not generated in this process.
    pub workers: Vec<Worked>,
}

/// The requests and connections that ended between two instants.
#[derive(Debug)]
pub struct Taken {
    pub tally: Tally,
    /// The later instant, counted from the start.
    pub at: Duration,
}

/// A worker was lost, or finished before the others. From then on the counts do not cover the whole load.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{who} was lost: {why}")]
pub struct LostError {
    /// Its name, and its address if it has one.
    pub who: String,
    /// The cause, as a sentence.
    pub why: String,
}

/// The part of one worker in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Worked {
    /// Its name, and its address if it has one.
    pub name: String,
    /// Number of its requests that ended.
    pub requests: u64,
    /// How long after the first worker it was to begin.
    pub after: Duration,
    /// The largest error of its start time, in either direction: half of the round-trip time.
    pub start_error: Duration,
    /// The cause, if it was lost before its end. Requests that ended after its last report are not counted.
    pub lost: Option<String>,
}

/// The run cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// This process cannot generate the load.
    #[error(transparent)]
    Here(#[from] load::StartError),
    /// A worker cannot do its part.
    #[error("{who}: {why}")]
    Worker {
        /// Its name or address.
        who: String,
        /// The cause, as a sentence.
        why: String,
    },
    /// There are fewer connections than workers.
    #[error("{connections} connections cannot be shared out among {workers} workers or processes")]
    TooFew {
        /// Connections of the plan.
        connections: usize,
        /// Number of workers or processes.
        workers: usize,
    },
    /// The last worker would begin after the end of the run.
    #[error("the last of {workers} workers would begin {} s after the first, when the run is over", .after.as_secs_f64())]
    TooLate {
        /// Number of workers.
        workers: usize,
        /// When the last worker would begin, counted from the first.
        after: Duration,
    },
    /// There are more workers than [`Portion`](crate::portion::Portion) permits.
    #[error("there are too many workers or processes")]
    TooMany,
    /// The plan has users, and their own settings decide when they begin.
    #[error("users cannot be staggered: their settings decide when they begin")]
    StaggeredUsers,
}

impl Fleet {
    /// Starts the run. Returns when all workers have begun, or will begin at the agreed instant. `log` gets the sample
    /// of every connection.
    pub fn start(&self, plan: Plan, log: Option<Arc<dyn ConnectionLog>>) -> Result<Running, StartError> {
        let workers = match self {
            Self::Here => return Ok(Running(Made::Here(Load::start(plan, log)?))),
            Self::Processes { count, .. } => *count,
            Self::Workers { addresses, .. } => addresses.len(),
        };
        check(&plan, workers, self.stagger())?;
        Ok(Running(Made::Away(Away::start(self.clone(), plan, log)?)))
    }

    fn stagger(&self) -> Duration {
        match self {
            Self::Here | Self::Processes { .. } => Duration::ZERO,
            Self::Workers { stagger, .. } => *stagger,
        }
    }
}

fn check(plan: &Plan, workers: usize, stagger: Duration) -> Result<(), StartError> {
    let connections = plan.connections();
    if connections < workers {
        return Err(StartError::TooFew { connections, workers });
    }
    if !stagger.is_zero() && matches!(plan.pace, Pace::Users { .. }) {
        return Err(StartError::StaggeredUsers);
    }
    let after = stagger.saturating_mul(workers.saturating_sub(1) as u32);
    match plan.stop.after {
        Some(end) if after >= end => Err(StartError::TooLate { workers, after }),
        _ => Ok(()),
    }
}

impl Running {
    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        match &self.0 {
            Made::Here(load) => load.elapsed(),
            Made::Away(load) => load.elapsed(),
        }
    }

    /// The results so far. The results of workers are those of their last reports, which are about a second old.
    pub fn tally(&self) -> Tally {
        match &self.0 {
            Made::Here(load) => load.tally(),
            Made::Away(load) => load.tally(),
        }
    }

    /// Updates `progress` without disturbing the load.
    pub fn follow(&self, progress: &mut Progress) {
        match &self.0 {
            Made::Here(load) => load.follow(progress),
            Made::Away(load) => load.follow(progress),
        }
    }

    /// The results since the start or since the last call. Resets the counts. Waits for the answers of workers.
    pub fn take(&mut self) -> Result<Taken, LostError> {
        match &mut self.0 {
            Made::Here(load) => Ok(Taken { at: load.elapsed(), tally: load.take() }),
            Made::Away(load) => load.take(),
        }
    }

    /// Whether all requests have ended.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Made::Here(load) => load.is_finished(),
            Made::Away(load) => load.is_finished(),
        }
    }

    /// Cuts off all requests in progress.
    pub fn cut(&self) {
        match &self.0 {
            Made::Here(load) => load.cut(),
            Made::Away(load) => load.cut(),
        }
    }

    /// Waits for the end.
    pub fn finish(self) -> Finished {
        match self.0 {
            Made::Here(load) => Finished { load: load.finish(), workers: Vec::new() },
            Made::Away(load) => load.finish(),
        }
    }
}
