//! `watari bench capacity`: the capacity of a server, and the number of servers that a site needs.

mod prediction;
mod search;

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use watari_bench_analysis::capacity::report::CapacityReport;
use watari_bench_analysis::capacity::search::Ended;
use watari_bench_analysis::capacity::{CapacitySearch, Found, Quantity};
use watari_bench_engine::plan::{Pace, Plan, Stop};
use watari_bench_engine::tls::Resume;
use watari_bench_report::summary::Run;

use self::prediction::Predict;
use self::search::SearchOptions;
use super::options::{FleetOptions, Protocol, Target, TimeoutOptions, Tls};
use crate::commands::print::{print, print_json};
use crate::failure::Failure;
use crate::output::write;

/// Find the highest load at which a server meets conditions, and the number of servers that a site needs
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[command(mut_arg("urls", |urls| urls.required(false).required_unless_present("capacity").conflicts_with("capacity")))]
pub(crate) struct Capacity {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    search: SearchOptions,
    #[command(flatten)]
    predict: Predict,
    /// Threads
    #[arg(short = 't', long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    #[command(flatten)]
    protocol: Protocol,
    #[command(flatten)]
    timeouts: TimeoutOptions,
    #[command(flatten)]
    tls: Tls,
    #[command(flatten)]
    fleet: FleetOptions,
    /// Print JSON
    #[arg(long, help_heading = "Report")]
    json: bool,
    /// Write a self-contained page with the curve
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  watari bench capacity https://www.example/ --expect 'p99<50ms' --expect 'failures<0.1%'
  watari bench capacity http://127.0.0.1:8080/ --by connections --from 8 --to 4096 --expect 'p99<50ms' --html curve.html
  watari bench capacity http://10.0.0.1/ --expect 'p99<50ms' --workers a:7000,b:7000 --pki pki --node lead
  watari bench capacity https://www.example/ --expect 'p99<50ms' --log access.log --growth 2
  watari bench capacity --capacity 1200 --log access.log --headroom 0.4 --redundancy 2
  watari bench capacity --capacity 1200 --profile day.toml

A profile describes a day: visits_per_day, pages_per_visit, requests_per_page and 24 hourly_shares, or 24
requests_per_hour; and, where known, peak_factor (the busiest day against this one), bytes_per_request,
handshakes_per_visit. Conditions are checked for each measurement alone, with the requests that ended in it. Exit
status: 0 done, 1 no load meets the conditions, or a worker was lost, 2 wrong usage.";

impl Capacity {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        self.check()?;
        // Before the search, which takes long, so that unreadable inputs and unwritable outputs are reported at once.
        let demand = self.predict.demand()?;
        let file = self.html.as_ref().map(create).transpose()?;
        let run = Run::of_this_process(std::env::args().collect(), SystemTime::now());
        let found = if self.predict.capacity.is_some() { None } else { Some(self.search()?) };
        let prediction = self.predict.predict(demand.as_ref(), found.as_ref())?;
        let report = CapacityReport { run, search: found, prediction };
        if let (Some(mut file), Some(page)) = (file, report.page()) {
            file.write_all(page.as_bytes()).map_err(Failure::Output)?;
        }
        if self.json {
            print_json(&report)?;
        } else {
            print(&report)?;
        }
        match report.search {
            Some(found) if found.finding.ended == Ended::Unanswered => Err(Failure::Unanswered),
            Some(found) if found.finding.level.is_none() => Err(Failure::Expectation),
            _ => Ok(()),
        }
    }

    /// Checks that clap cannot express.
    fn check(&self) -> Result<(), Failure> {
        let searched = self.predict.capacity.is_none();
        if searched && self.search.expect.is_empty() {
            return Err(Failure::Usage(
                "--expect is needed: it states what the server must meet under a load".to_owned(),
            ));
        }
        if !searched && self.html.is_some() {
            return Err(Failure::Usage("--html needs a URL: without a search there is no curve".to_owned()));
        }
        self.predict.check()
    }

    fn search(&self) -> Result<Found, Failure> {
        let quantity = self.search.quantity();
        let load = Plan {
            work: self.target.requests()?.into(),
            sources: self.target.sources(),
            pace: pace(quantity, self.search.from())?,
            stop: Stop::default(),
            protocol: self.protocol.plan(),
            tls: self.tls.options(Resume::Full)?,
            timeouts: self.timeouts.timeouts(),
            threads: usize::from(self.threads),
        };
        // Refuses, before a long search, a highest level that the machine does not allow.
        self.fleet.fleet(&Plan { pace: pace(quantity, self.search.to())?, ..load.clone() })?;
        let search = CapacitySearch {
            plan: self.search.plan(),
            quantity,
            conditions: &self.search.expect,
            settle: self.search.settle.get(),
            load,
            machines: &self.fleet.machines()?,
        };
        run(search, !self.json)
    }
}

fn pace(quantity: Quantity, level: u64) -> Result<Pace, Failure> {
    quantity.pace(level).map_err(|error| Failure::Usage(error.to_string()))
}

/// Searches until there is a result, or until Ctrl-C. If `print` is set, prints each measurement.
fn run(search: CapacitySearch<'_>, print: bool) -> Result<Found, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Start)?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::Start)?;
        let interrupted = CancellationToken::new();
        let token = interrupted.clone();
        tokio::spawn(async move {
            interrupt.recv().await;
            token.cancel();
        });
        Ok(search.run(interrupted, |line| if print { write(line) } else { Ok(()) }).await?)
    })
}

fn create(path: &PathBuf) -> Result<File, Failure> {
    File::create(path).map_err(|error| Failure::Usage(format!("cannot write {}: {error}", path.display())))
}
