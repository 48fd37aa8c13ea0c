//! Chooses the processes and machines for a plan.

use std::path::PathBuf;
use std::time::Duration;
use std::{env, io};

use watari_bench_engine::limits::{Limits, LimitsError, Shortage};
use watari_bench_engine::needs;
use watari_bench_engine::plan::Plan;
use watari_pki::Identity;

use super::definition::Fleet;

/// The processes and machines that may make loads.
#[derive(Clone)]
pub enum Machines {
    /// Processes of this machine.
    This {
        /// Their number; `None`: as many as the limit on open files needs.
        processes: Option<u64>,
    },
    /// Workers that listen. The fields are those of [`Fleet::Workers`].
    Workers { addresses: Vec<String>, identity: Box<Identity>, stagger: Duration },
}

/// The fleet for a plan.
pub struct Chosen {
    pub fleet: Fleet,
    /// A sentence about a choice that was not asked for.
    pub unasked: Option<String>,
}

/// No fleet can make the load of a plan.
#[derive(Debug, thiserror::Error)]
pub enum ChooseError {
    /// The limits of this machine cannot be read.
    #[error(transparent)]
    Limits(LimitsError),
    /// The plan exceeds the limits of this machine.
    #[error(transparent)]
    Shortage(#[from] Shortage),
    /// The path of this program, which further processes run, is not known.
    #[error("cannot start: {0}")]
    Program(io::Error),
}

impl Machines {
    /// The processes or workers that run the plan. Refuses plans that exceed the limits of this machine.
    pub fn choose(&self, plan: &Plan) -> Result<Chosen, ChooseError> {
        match self {
            Self::This { processes } => of_this_machine(*processes, plan),
            Self::Workers { addresses, identity, stagger } => {
                let (addresses, identity) = (addresses.clone(), identity.clone());
                Ok(Chosen { fleet: Fleet::Workers { addresses, identity, stagger: *stagger }, unasked: None })
            }
        }
    }
}

fn of_this_machine(processes: Option<u64>, plan: &Plan) -> Result<Chosen, ChooseError> {
    let limits = Limits::of_this_process().map_err(ChooseError::Limits)?;
    let connections = plan.connections() as u64;
    let check = |processes| needs::check(&limits, plan, connections, processes).map(|()| processes);
    let (enough, unasked) = match check(processes.unwrap_or(1)) {
        Err(Shortage::Files { allowed, processes: enough, .. }) if processes.is_none() => {
            let why = format!("one process may open only {allowed} files");
            let unasked = format!("{enough} processes share {connections} connections: {why}");
            (check(enough), Some(unasked))
        }
        checked => (checked, None),
    };
    Ok(Chosen { fleet: processes_of_this_machine(enough?)?, unasked })
}

fn processes_of_this_machine(count: u64) -> Result<Fleet, ChooseError> {
    match count {
        1 => Ok(Fleet::Here),
        count => {
            let program: PathBuf = env::current_exe().map_err(ChooseError::Program)?;
            Ok(Fleet::Processes { program, count: count as usize })
        }
    }
}
