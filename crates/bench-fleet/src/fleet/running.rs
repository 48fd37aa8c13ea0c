//! A run in progress, wherever its load is generated.

use std::sync::Arc;
use std::time::Duration;

use watari_bench_engine::connection_log::ConnectionLog;
use watari_bench_engine::load::Load;
use watari_bench_engine::plan::{Pace, Plan};
use watari_bench_engine::progress::Progress;
use watari_bench_engine::tally::Tally;

use super::away::Away;
use super::definition::Fleet;
use super::results::{Finished, LostError, StartError, Taken};

/// A run in progress, here or elsewhere.
#[derive(Debug)]
pub struct Running(Made);

#[derive(Debug)]
enum Made {
    Here(Load),
    Away(Away),
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
