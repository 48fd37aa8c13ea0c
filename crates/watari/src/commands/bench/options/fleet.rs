//! The processes and machines that make the load.

use std::collections::HashSet;
use std::env;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use watari_bench::duration::Span;
use watari_bench::fleet::Fleet;
use watari_bench::limits::{Limits, Shortage};
use watari_bench::needs;
use watari_bench::plan::Plan;
use watari_pki::Identity;
use watari_values::NodeName;

use crate::failure::Failure;
use crate::output::print_line;

/// The processes and machines that make the load
#[derive(Args)]
#[command(next_help_heading = "Processes and machines")]
pub(crate) struct FleetOptions {
    /// Processes of this machine that share the load, with --threads each [default: as many as the limit on open files
    /// needs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), conflicts_with = "workers")]
    processes: Option<u16>,
    /// Workers on other machines that share the load, with --threads each (`watari bench worker`)
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', requires = "node")]
    workers: Vec<String>,
    /// The directory with this process's key and certificate, and the authority's certificate, for workers
    #[arg(long, value_name = "DIR", default_value = "pki", requires = "workers")]
    pki: PathBuf,
    /// This process's name in its certificate: a node with the role bench
    #[arg(long, value_name = "NAME", value_parser = NodeName::new, requires = "workers")]
    node: Option<NodeName>,
}

/// The processes and machines that make the load, and their starting times
#[derive(Args)]
#[command(next_help_heading = "Processes and machines")]
pub(crate) struct StaggeredFleetOptions {
    #[command(flatten)]
    fleet: FleetOptions,
    /// The delay between the starts of two workers, to make surges
    #[arg(long, value_name = "DURATION", requires = "workers")]
    stagger: Option<Span>,
}

impl StaggeredFleetOptions {
    /// Like [`FleetOptions::fleet`].
    pub(crate) fn fleet(&self, plan: &Plan) -> Result<Fleet, Failure> {
        let mut fleet = self.fleet.fleet(plan)?;
        if let (Fleet::Workers { stagger, .. }, Some(span)) = (&mut fleet, self.stagger) {
            *stagger = span.get();
        }
        Ok(fleet)
    }
}

impl FleetOptions {
    /// The processes or workers that run the plan. Reports a choice that was not asked for on the standard error, and
    /// refuses plans that exceed the system's limits.
    pub(crate) fn fleet(&self, plan: &Plan) -> Result<Fleet, Failure> {
        let (fleet, unasked) = self.choose(plan)?;
        if let Some(unasked) = unasked {
            print_line(unasked);
        }
        Ok(fleet)
    }

    /// The same, with a sentence about a choice that was not asked for.
    pub(crate) fn choose(&self, plan: &Plan) -> Result<(Fleet, Option<String>), Failure> {
        match &self.node {
            Some(node) => {
                self.check_workers()?;
                let identity = Box::new(Identity::load(&self.pki, node)?);
                let addresses = self.workers.clone();
                Ok((Fleet::Workers { addresses, identity, stagger: Duration::ZERO }, None))
            }
            None => self.of_this_machine(plan),
        }
    }

    /// A worker makes one load at a time.
    fn check_workers(&self) -> Result<(), Failure> {
        let mut seen = HashSet::new();
        let twice = self.workers.iter().find(|address| !seen.insert(*address));
        twice.map_or(Ok(()), |address| Err(Failure::Usage(format!("{address} is given twice in --workers"))))
    }

    fn of_this_machine(&self, plan: &Plan) -> Result<(Fleet, Option<String>), Failure> {
        let limits = Limits::of_this_process().map_err(|error| Failure::Usage(error.to_string()))?;
        let connections = plan.connections() as u64;
        let check = |processes| needs::check(&limits, plan, connections, processes).map(|()| processes);
        let (enough, unasked) = match check(self.processes.map_or(1, u64::from)) {
            Err(Shortage::Files { allowed, processes, .. }) if self.processes.is_none() => {
                let why = format!("one process may open only {allowed} files");
                let unasked = format!("{processes} processes share {connections} connections: {why}");
                (check(processes), Some(unasked))
            }
            checked => (checked, None),
        };
        let processes = enough.map_err(|shortage| Failure::Usage(shortage.to_string()))?;
        Ok((processes_of_this_machine(processes)?, unasked))
    }
}

fn processes_of_this_machine(count: u64) -> Result<Fleet, Failure> {
    match count {
        1 => Ok(Fleet::Here),
        count => Ok(Fleet::Processes { program: env::current_exe().map_err(Failure::Start)?, count: count as usize }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        fleet: FleetOptions,
    }

    #[test]
    fn a_worker_is_not_given_twice() {
        let check = |workers| {
            let words = ["command", "--node", "lead", "--workers", workers];
            Command::try_parse_from(words).unwrap().fleet.check_workers()
        };
        assert!(check("a:1,a:2,b:1").is_ok());
        assert_eq!(check("a:1,b:1,a:1").unwrap_err().to_string(), "a:1 is given twice in --workers");
    }
}
