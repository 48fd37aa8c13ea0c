//! Where a load is made: by threads of this process, by several processes of this machine, or by workers on other machines.

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

/// Who makes a load.
#[derive(Clone)]
pub enum Fleet {
    /// Threads of this process.
    Here,
    /// So many processes of this machine, with the plan's threads each.
    Processes {
        /// The program; it is `watari`, and becomes a worker by its arguments.
        program: PathBuf,
        /// How many.
        count: usize,
    },
    /// Workers that listen, with the plan's threads each.
    Workers {
        /// Where they do: `host:port`.
        addresses: Vec<String>,
        /// Who this process is to them.
        identity: Box<Identity>,
        /// How much later than the one before each of them begins.
        stagger: Duration,
    },
}

/// A run that has begun, wherever it is made.
#[derive(Debug)]
pub struct Running(Made);

#[derive(Debug)]
enum Made {
    Here(Load),
    Away(Away),
}

/// A run that is over.
#[derive(Debug)]
pub struct Finished {
    /// What came of it.
    pub load: load::Finished,
    /// Who made it, if others did.
    pub workers: Vec<Worked>,
}

/// What ended between two instants.
#[derive(Debug)]
pub struct Taken {
    /// What became of it.
    pub tally: Tally,
    /// The later instant, counted from the start.
    pub at: Duration,
}

/// One of those who make a load is lost, or done before the others: whatever they count is not the whole load any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{who} was lost: {why}")]
pub struct LostError {
    /// Its name, and its address if it has one.
    pub who: String,
    /// Why, in a sentence.
    pub why: String,
}

/// What one of several processes did.
#[derive(Clone, Debug, PartialEq)]
pub struct Worked {
    /// Its name, and its address if it has one.
    pub name: String,
    /// How many of its requests ended.
    pub requests: u64,
    /// How long after the first it was to begin.
    pub after: Duration,
    /// By how much earlier or later it may have begun: half of what a message takes there and back.
    pub start_error: Duration,
    /// Why it was lost before its end, if it was. What it did after it had last told is not known, and not counted.
    pub lost: Option<String>,
}

/// A run cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Not here.
    #[error(transparent)]
    Here(#[from] load::StartError),
    /// A worker cannot do its part.
    #[error("{who}: {why}")]
    Worker {
        /// Its name or address.
        who: String,
        /// What is in the way, in a sentence.
        why: String,
    },
    /// There is less to share out than there are to share it.
    #[error("{connections} connections cannot be shared out among {workers} workers or processes")]
    TooFew {
        /// Connections of the plan.
        connections: usize,
        /// Among whom.
        workers: usize,
    },
    /// Somebody would not begin before the end.
    #[error("the last of {workers} workers would begin {} s after the first, when the run is over", .after.as_secs_f64())]
    TooLate {
        /// How many there are.
        workers: usize,
        /// When the last would begin.
        after: Duration,
    },
    /// There are too many workers.
    #[error("a load is not shared out among so many")]
    TooMany,
    /// Users come as their own rule says.
    #[error("users cannot be staggered: their own rule says when they begin")]
    StaggeredUsers,
}

impl Fleet {
    /// Begins; returns when everybody has, or will at the agreed instant. Every connection's sample goes to `log`, too, if there is one.
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

    /// What has become of what has ended so far; of others: when they last told, about a second ago.
    pub fn tally(&self) -> Tally {
        match &self.0 {
            Made::Here(load) => load.tally(),
            Made::Away(load) => load.tally(),
        }
    }

    /// Brings `progress` up to date, without disturbing the load.
    pub fn follow(&self, progress: &mut Progress) {
        match &self.0 {
            Made::Here(load) => load.follow(progress),
            Made::Away(load) => load.follow(progress),
        }
    }

    /// What has ended since the start, or since this was last asked; counting begins anew. Waits for the answers of others.
    pub fn take(&mut self) -> Result<Taken, LostError> {
        match &mut self.0 {
            Made::Here(load) => Ok(Taken { at: load.elapsed(), tally: load.take() }),
            Made::Away(load) => load.take(),
        }
    }

    /// Whether nothing is in progress any more.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Made::Here(load) => load.is_finished(),
            Made::Away(load) => load.is_finished(),
        }
    }

    /// Drops what is in progress.
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
