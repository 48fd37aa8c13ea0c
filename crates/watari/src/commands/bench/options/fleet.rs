//! Who makes the load.

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
use watari_wire::NodeName;

use crate::failure::Failure;

/// Who makes the load
#[derive(Args)]
#[command(next_help_heading = "Processes and machines")]
pub(crate) struct FleetOptions {
    /// Processes of this machine that share the load, with --threads each; as many as open files make necessary, if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), conflicts_with = "workers")]
    processes: Option<u16>,
    /// Workers on other machines that share the load, with --threads each (`watari bench worker`)
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', requires = "node")]
    workers: Vec<String>,
    /// How much later than the one before each worker begins, to make surges
    #[arg(long, value_name = "DURATION", requires = "workers")]
    stagger: Option<Span>,
    /// The directory of keys and certificates by which workers know this process
    #[arg(long, value_name = "DIR", default_value = "pki", requires = "workers")]
    pki: PathBuf,
    /// Who this process is to workers: a node with the role bench
    #[arg(long, value_name = "NAME", value_parser = NodeName::new, requires = "workers")]
    node: Option<NodeName>,
}

impl FleetOptions {
    /// Who is to follow the plan. Says so on the standard error where that was not asked for, and refuses what limits do not allow.
    pub(crate) fn fleet(&self, plan: &Plan) -> Result<Fleet, Failure> {
        match &self.node {
            Some(node) => Ok(Fleet::Workers {
                addresses: self.workers.clone(),
                identity: Box::new(Identity::load(&self.pki, node)?),
                stagger: self.stagger.map_or(Duration::ZERO, Span::get),
            }),
            None => self.of_this_machine(plan),
        }
    }

    fn of_this_machine(&self, plan: &Plan) -> Result<Fleet, Failure> {
        let limits = Limits::of_this_process().map_err(|error| Failure::Usage(error.to_string()))?;
        let connections = plan.connections() as u64;
        let check = |processes| needs::check(&limits, plan, connections, processes);
        let asked = self.processes.map_or(1, u64::from);
        let processes = match check(asked) {
            Err(Shortage::Files { allowed, processes, .. }) if self.processes.is_none() => {
                eprintln!("{processes} processes share {connections} connections: one may have {allowed} open files");
                check(processes).map(|()| processes)
            }
            checked => checked.map(|()| asked),
        };
        match processes.map_err(|shortage| Failure::Usage(shortage.to_string()))? {
            1 => Ok(Fleet::Here),
            count => {
                Ok(Fleet::Processes { program: env::current_exe().map_err(Failure::Start)?, count: count as usize })
            }
        }
    }
}
