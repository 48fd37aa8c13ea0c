//! The processes and machines that make the load.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use watari_bench_engine::duration::Span;
use watari_bench_engine::plan::Plan;
use watari_bench_fleet::fleet::{Chosen, Fleet, Machines};
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
        fleet(&self.fleet.staggered(self.stagger.map_or(Duration::ZERO, Span::get))?, plan)
    }
}

impl FleetOptions {
    /// The processes or workers that run the plan. Reports a choice that was not asked for on the standard error, and
    /// refuses plans that exceed the system's limits.
    pub(crate) fn fleet(&self, plan: &Plan) -> Result<Fleet, Failure> {
        fleet(&self.machines()?, plan)
    }

    /// The machines, of which a search chooses for each of its loads.
    pub(crate) fn machines(&self) -> Result<Machines, Failure> {
        self.staggered(Duration::ZERO)
    }

    fn staggered(&self, stagger: Duration) -> Result<Machines, Failure> {
        let Some(node) = &self.node else {
            return Ok(Machines::This { processes: self.processes.map(u64::from) });
        };
        self.check_workers()?;
        let identity = Box::new(Identity::load(&self.pki, node)?);
        Ok(Machines::Workers { addresses: self.workers.clone(), identity, stagger })
    }

    /// A worker makes one load at a time.
    fn check_workers(&self) -> Result<(), Failure> {
        let mut seen = HashSet::new();
        let twice = self.workers.iter().find(|address| !seen.insert(*address));
        twice.map_or(Ok(()), |address| Err(Failure::Usage(format!("{address} is given twice in --workers"))))
    }
}

fn fleet(machines: &Machines, plan: &Plan) -> Result<Fleet, Failure> {
    let Chosen { fleet, unasked } = machines.choose(plan)?;
    if let Some(unasked) = unasked {
        print_line(unasked);
    }
    Ok(fleet)
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
