//! `watari bench http`: a load of HTTP requests.

use clap::Args;
use watari_bench_engine::plan::Plan;
use watari_bench_engine::tls::Resume;

use super::make_list::MakeList;
use super::options::{Flow, Load, Protocol, Report, StaggeredFleetOptions, Target, Tls};
use crate::failure::Failure;

/// Send requests, and report how they ended
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[command(mut_arg("urls", |urls| urls.required(false).required_unless_present("MakeList").conflicts_with("MakeList")))]
pub(crate) struct Http {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    flow: Flow,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    tls: Tls,
    #[command(flatten)]
    protocol: Protocol,
    #[command(flatten)]
    fleet: StaggeredFleetOptions,
    #[command(flatten)]
    report: Report,
    #[command(flatten)]
    make_list: Option<MakeList>,
}

const EXAMPLES: &str = "\
Examples:
  watari bench http http://127.0.0.1:8080/ -n 10000 -c 100          a closed loop over connections that are kept
  watari bench http http://10.0.0.1/ -d 1m --requests-per-connection 1 --source 10.0.1.0/24,2001:db8::/120
  watari bench http https://www.example/ -d 30s -r 500 --resume reuse --json
  watari bench http https://www.example/ -d 1m --html run.html      charts and tables, in one file
  watari bench http https://www.example/ -d 1m -r 100..2000/60s --expect 'p99<50ms' --expect endings.RESET=0
  watari bench http http://www.example/gone -n 100 --ok-status 404,410        here, these statuses are success
  watari bench http http://10.0.0.1/ -c 60000 -d 10m --source 10.0.1.1-10.0.1.4 --processes 4
  watari bench http http://10.0.0.1/ -c 9000 -d 1m --workers a:7000,b:7000,c:7000 --pki pki --node lead --stagger 10s
  watari bench http https://www.example/ -d 30s -c 10 --http2 --streams 100
  watari bench http --make-list --from 10.0.0.0/24=8 --from 2001:db8::/64=2 --uri '/a.html weight=3' --uri /b.cgi
  watari bench http --make-list --from-log access.log --from-anywhere --tls-share 1
  watari bench http https://www.example/ -n 1000 -c 50 --flow flow.toml

With --rate, latency counts from when a request was due. A terminal shows the run in progress. Ctrl-C, or q there, ends
it, and the command reports what it measured until then. Requests whose responses have a status of 400 or more count as
failures (see --ok-status). Exit status: 0 done, though requests may have failed (`--expect failed=0` makes that 1), 1 no
request succeeded, a condition is not met, or a worker was lost, 2 wrong usage.";

impl Http {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        if let Some(make_list) = self.make_list {
            return make_list.execute();
        }
        let work = self.flow.work(&self.target)?;
        let plan = Plan {
            work,
            sources: self.target.sources(),
            pace: self.load.pace(),
            stop: self.load.stop(),
            protocol: self.protocol.plan(),
            tls: self.tls.options(Resume::Full)?,
            timeouts: self.load.timeouts(),
            threads: self.load.threads(),
        };
        let fleet = self.fleet.fleet(&plan)?;
        self.report.run(plan, &fleet)
    }
}
