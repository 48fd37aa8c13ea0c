//! `watari bench capacity`: the capacity of a server, and the number of servers that a site needs.

mod prediction;
mod probe;
mod search;

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use serde::Serialize;
use watari_bench::capacity::page::page;
use watari_bench::capacity::search::Ended;
use watari_bench::plan::{Plan, Stop};
use watari_bench::predict::Prediction;
use watari_bench::summary::Run;
use watari_bench::tls::Resume;

use self::prediction::Predict;
use self::search::{Found, SearchOptions};
use super::options::{FleetOptions, Protocol, Target, TimeoutOptions, Tls};
use crate::commands::{print, print_json};
use crate::failure::Failure;

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

/// The output of `--json`.
#[derive(Serialize)]
struct CapacityReport<'a> {
    run: &'a Run,
    /// `null`: the capacity was given.
    search: Option<&'a Found>,
    /// `null`: no option states the site's load.
    prediction: Option<&'a Prediction>,
}

impl Capacity {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        self.check()?;
        // Before the search, which takes long, so that unreadable inputs and unwritable outputs are reported at once.
        let demand = self.predict.demand()?;
        let file = self.html.as_ref().map(create).transpose()?;
        let run = Run::of_this_process(std::env::args().collect(), SystemTime::now());
        let found = if self.predict.capacity.is_some() { None } else { Some(self.search()?) };
        let capacity = self.predict.capacity(found.as_ref());
        let prediction = match (demand, capacity) {
            (Some(demand), Some(capacity)) => Some(self.predict.predict(&demand, capacity)?),
            _ => None,
        };
        let told = CapacityReport { run: &run, search: found.as_ref(), prediction: prediction.as_ref() };
        if let (Some(mut file), Some(found)) = (file, &found) {
            let page = page(&run, &found.curve, &found.finding, &told.to_string());
            file.write_all(page.as_bytes()).map_err(Failure::Output)?;
        }
        if self.json {
            print_json(&told)?;
        } else {
            print(&told)?;
        }
        match found {
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
        let base = Plan {
            work: self.target.requests()?.into(),
            sources: self.target.sources(),
            pace: self.search.pace(self.search.from())?,
            stop: Stop::default(),
            protocol: self.protocol.plan(),
            tls: self.tls.options(Resume::Full)?,
            timeouts: self.timeouts.timeouts(),
            threads: usize::from(self.threads),
        };
        self.search.run(base, &self.fleet, !self.json)
    }
}

impl std::fmt::Display for CapacityReport<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(found) = self.search {
            write!(f, "\n{found}")?;
        }
        match (self.search, self.prediction) {
            (Some(_), Some(prediction)) => write!(f, "\n{prediction}"),
            (None, Some(prediction)) => write!(f, "{prediction}"),
            (_, None) => Ok(()),
        }
    }
}

fn create(path: &PathBuf) -> Result<File, Failure> {
    File::create(path).map_err(|error| Failure::Usage(format!("cannot write {}: {error}", path.display())))
}
