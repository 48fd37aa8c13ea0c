//! The results of a run, and what keeps it from having some.

use std::time::Duration;

use watari_bench_engine::load;
use watari_bench_engine::tally::Tally;
use watari_bench_report::summary::WorkerSummary;

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

impl From<&Worked> for WorkerSummary {
    fn from(worked: &Worked) -> Self {
        Self {
            name: worked.name.clone(),
            requests: worked.requests,
            begun_after_ms: worked.after.as_millis() as u64,
            start_error_us: worked.start_error.as_micros() as u64,
            lost: worked.lost.clone(),
        }
    }
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
    /// There are more workers than [`Portion`](watari_bench_engine::portion::Portion) permits.
    #[error("there are too many workers or processes")]
    TooMany,
    /// The plan has users, and their own settings decide when they begin.
    #[error("users cannot be staggered: their settings decide when they begin")]
    StaggeredUsers,
}
