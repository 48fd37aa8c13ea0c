//! `watari lab`: experiments in network namespaces.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use watari_balance::{BulkPolicy, HandshakePolicy};
use watari_lab::plan::{Options, ROUNDS_MAX};
use watari_lab::result::RunResult;
use watari_lab::scale::{SharingCost, Spread, bytes_of_keys};
use watari_lab::supervisor::{self, Order, RUNS};
use watari_lab::{catalogue, output, router, run};
use watari_session::Placement;

use super::print::{print, print_json};
use crate::failure::Failure;
use crate::table::Table;

/// Run the experiments of the papers, and experiments of your own, side by side with other programs
#[derive(Args)]
#[command(after_help = "\
Examples:
  watari lab list
  watari lab run cssl-a --quick           one experiment, with fewer rounds and smaller loads
  watari lab run anma-1 anma-2            the results go to lab-runs/anma-1 and lab-runs/anma-2
  watari lab evaluate cssl-a              its figures and verdicts again, without a new run
  watari lab report                       one page of all results below lab-runs
  watari lab export mine                  the files of all experiments, to change; then:
  watari lab run mine/cssl-a.toml

A run makes network namespaces, and removes them when it ends, however it ends. CPU quotas need root.")]
pub(crate) struct Lab {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the experiments
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    Run(Run),
    /// Compute the result of finished runs again, by the experiments' present figures, ratios and plots
    Evaluate {
        /// The experiments: names, or files
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// The folder of the run, for one experiment [default: lab-runs/NAME]
        #[arg(long, value_name = "DIR")]
        json: Option<PathBuf>,
    },
    Report(Report),
    /// Write the files of all experiments to a new folder, as a start for experiments of your own
    Export {
        folder: PathBuf,
    },
    /// Simulate a cluster of many nodes, for the experiment `scale`
    #[command(hide = true)]
    Scale {
        #[arg(long)]
        nodes: usize,
    },
    /// Run an experiment in the namespaces that `run` has made
    #[command(hide = true)]
    Inside(Inside),
    /// Delay packets between two interfaces
    #[command(hide = true)]
    Router(Router),
    /// Send UDP datagrams back
    #[command(hide = true)]
    Echo {
        address: SocketAddr,
    },
    /// Measure the median of the round trips to `echo`, in milliseconds
    #[command(hide = true)]
    Probe {
        address: SocketAddr,
        #[arg(long)]
        probes: u32,
    },
}

/// Run experiments
#[derive(Args)]
#[command(after_help = "\
Examples:
  watari lab run cssl-a
  watari lab run cssl-a --quick --json /tmp/cssl-a
  watari lab run mine/cssl-a.toml --rounds 1
  watari lab run --all --quick

Experiments run one after the other, also if one fails. The folder of a run gets trials.json (all that was measured),
result.json, tables as CSV, plots as SVG and PNG, and the experiment's files. Exit status: 0 whatever the verdicts are,
1 a run failed, 2 wrong usage.")]
struct Run {
    /// The experiments: names, or files
    #[arg(required_unless_present = "all", value_name = "NAME")]
    names: Vec<String>,
    /// Run all experiments of `watari lab list`
    #[arg(long, conflicts_with_all = ["names", "json", "keep"])]
    all: bool,
    /// Run fewer rounds with smaller loads; a run takes less than 2 minutes
    #[arg(long)]
    quick: bool,
    /// The folder of the result, for one experiment [default: lab-runs/NAME; lab-runs/NAME-quick for a quick run;
    /// lab-runs/NAME-changed with --rounds, --set or another file of that name]
    #[arg(long, value_name = "DIR")]
    json: Option<PathBuf>,
    /// The rounds, instead of the experiment's number
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(ROUNDS_MAX)))]
    rounds: Option<u32>,
    /// The seed of random files and losses
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Set a variable of the table `params`; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Keep the configurations and the output of all processes in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// Write a page, or a Markdown document, of all results
#[derive(Args)]
#[command(after_help = "\
Examples:
  watari lab report
  watari lab report --runs lab-runs --out report.html --markdown docs/reproduction.md")]
struct Report {
    /// The folder whose folders have results
    #[arg(long, default_value = RUNS, value_name = "DIR")]
    runs: PathBuf,
    /// The page
    #[arg(long, default_value = "lab-report.html", value_name = "FILE")]
    out: PathBuf,
    /// Also write a Markdown document, and the results to a folder beside it
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

#[derive(Args)]
struct Inside {
    /// The order of the supervisor, as JSON
    order: String,
}

#[derive(Args)]
struct Router {
    #[arg(num_args = 2, required = true)]
    interfaces: Vec<String>,
    #[arg(long, value_parser = watari_values::duration::parse)]
    round_trip: Duration,
    #[arg(long, value_parser = watari_values::duration::parse)]
    jitter: Duration,
    #[arg(long)]
    loss: f64,
    #[arg(long)]
    rate: Option<f64>,
    #[arg(long)]
    seed: u64,
}

/// An experiment, as `list --json` prints it.
#[derive(Serialize)]
struct Listed {
    name: String,
    title: String,
    paper: Option<String>,
    rounds: u32,
    variants: usize,
}

impl Lab {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        match self.command {
            Command::List { json } => list(json),
            Command::Run(run) => run.execute(),
            Command::Evaluate { names, json } => evaluate(&names, json.as_deref()),
            Command::Report(report) => report.execute(),
            Command::Export { folder } => Ok(catalogue::export(&folder)?),
            Command::Scale { nodes } => scale(nodes),
            Command::Inside(inside) => inside.execute(),
            Command::Router(router) => router.execute(),
            Command::Echo { address } => Ok(router::echo(address)?),
            Command::Probe { address, probes } => {
                let mut round_trips = router::measure(address, probes)?;
                round_trips.sort();
                let median = round_trips.get(round_trips.len() / 2).ok_or(router::Error::NoAnswer(address))?;
                print(format_args!("{}\n", median.as_secs_f64() * 1e3))
            }
        }
    }
}

fn list(json: bool) -> Result<(), Failure> {
    let listed = catalogue::all()?.into_iter().map(|experiment| Listed {
        name: experiment.name,
        title: experiment.title,
        paper: experiment.paper,
        rounds: experiment.rounds.full,
        variants: experiment.variants.len(),
    });
    let listed: Vec<_> = listed.collect();
    if json {
        return print_json(&listed);
    }
    let mut table = Table::new(&["name", "paper", "rounds", "title"]);
    for one in listed {
        table.row([one.name, one.paper.unwrap_or_else(|| "-".to_owned()), one.rounds.to_string(), one.title]);
    }
    print(table)
}

/// Prints what sharing sessions costs in each mode, and how evenly clients are spread.
fn scale(nodes: usize) -> Result<(), Failure> {
    let sharing = |placement| SharingCost::simulate(nodes, placement);
    let spread = |bulk| Spread::simulate(nodes, HandshakePolicy::RoundRobin, bulk);
    print_json(&serde_json::json!({
        "push": sharing(Placement::Push)?,
        "owner": sharing(Placement::Owner)?,
        "key_bytes_per_day": bytes_of_keys(nodes),
        "off": spread(BulkPolicy::Off)?,
        "client_address": spread(BulkPolicy::ClientAddress)?,
        "stay": spread(BulkPolicy::Stay)?,
    }))
}

fn evaluate(names: &[String], json: Option<&Path>) -> Result<(), Failure> {
    one_folder(names, json.is_some())?;
    for name in names {
        let found = catalogue::find(name)?;
        let folder = json.map_or_else(|| Path::new(RUNS).join(&found.experiment.name), Path::to_owned);
        show(&run::evaluate(found, &folder).map_err(|error| supervisor::Error::Run(Box::new(error)))?)?;
    }
    Ok(())
}

/// Refuses one folder for several experiments.
fn one_folder(names: &[String], is_named: bool) -> Result<(), Failure> {
    if names.len() > 1 && is_named {
        return Err(Failure::Usage("--json and --keep are for one experiment".to_owned()));
    }
    Ok(())
}

impl Run {
    fn execute(self) -> Result<(), Failure> {
        one_folder(&self.names, self.json.is_some() || self.keep.is_some())?;
        if let [name] = &self.names[..] {
            return self.run(name);
        }
        let all = if self.all { catalogue::all()? } else { Vec::new() };
        let mut failed = 0;
        for name in self.names.iter().chain(all.iter().map(|experiment| &experiment.name)) {
            if let Err(failure) = self.run(name) {
                if matches!(failure, Failure::Lab(supervisor::Error::Interrupted)) {
                    return Err(failure);
                }
                failure.report();
                failed += 1;
            }
        }
        if failed == 0 { Ok(()) } else { Err(Failure::LabRuns(failed)) }
    }

    fn run(&self, name: &str) -> Result<(), Failure> {
        let set = self.set.iter().cloned().collect();
        let options = Options { is_quick: self.quick, rounds: self.rounds, seed: self.seed, set };
        let order = Order { name: name.to_owned(), options, folder: self.json.clone(), keep: self.keep.clone() };
        show(&supervisor::run(&order, &["lab", "inside"])?)
    }
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Prints the ratios of a run, and its verdict.
fn show(result: &RunResult) -> Result<(), Failure> {
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
    let mut table = Table::new(&["ratio", "paper", "ours", "required", "verdict"]);
    for (name, ratio) in &result.ratios {
        let bounds = [("at least", ratio.at_least), ("at most", ratio.at_most)];
        let bounds = bounds.iter().filter_map(|(word, bound)| Some(format!("{word} {}", (*bound)?)));
        let required = bounds.collect::<Vec<_>>().join(", ");
        let verdict = ratio.verdict.to_string();
        table.row([name.clone(), number(ratio.paper), number(ratio.ours), required, verdict]);
    }
    print(table)?;
    print(format_args!("{}: {}\n", result.name, result.verdict))
}

impl Inside {
    fn execute(self) -> Result<(), Failure> {
        Ok(supervisor::inside(&self.order)?)
    }
}

impl Report {
    fn execute(self) -> Result<(), Failure> {
        output::report(&self.runs, &self.out, self.markdown.as_deref())?;
        print(format_args!("wrote {}\n", self.out.display()))
    }
}

impl Router {
    fn execute(self) -> Result<(), Failure> {
        let settings = router::Settings {
            round_trip: self.round_trip,
            jitter: self.jitter,
            loss: self.loss,
            rate: self.rate,
            seed: self.seed,
        };
        Ok(router::run([&self.interfaces[0], &self.interfaces[1]], &settings)?)
    }
}
