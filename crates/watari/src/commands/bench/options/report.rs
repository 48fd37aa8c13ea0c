//! The report of a run.

use clap::Args;
use tokio::runtime::Builder;
use watari_bench_engine::plan::Plan;
use watari_bench_fleet::fleet::Fleet;
use watari_bench_fleet::measure::{Measured, Measurement};
use watari_bench_report::expect::{self, Condition};
use watari_bench_report::summary::Summary;

use super::files::Files;
use crate::commands::print::{print, print_json};
use crate::failure::Failure;
use crate::output::print_line;
use crate::process::EndSignals;

/// The report of the run
#[derive(Args)]
#[command(next_help_heading = "Report")]
pub(crate) struct Report {
    /// Print JSON, which `watari bench compare` reads
    #[arg(long)]
    json: bool,
    /// A condition that the results must meet; repeatable: p99<50ms, endings.RESET=0, failures<0.1%, failed=0
    #[arg(long, value_name = "CONDITION")]
    expect: Vec<Condition>,
    #[command(flatten)]
    files: Files,
}

impl Report {
    /// Runs the plan, and reports the results.
    pub(crate) fn run(self, plan: Plan, fleet: &Fleet) -> Result<(), Failure> {
        self.run_and_show(plan, fleet, |_| String::new())
    }

    /// The same, with `more` text above the summary for people.
    pub(crate) fn run_and_show(
        self,
        plan: Plan,
        fleet: &Fleet,
        more: impl FnOnce(&Summary) -> String,
    ) -> Result<(), Failure> {
        let command = std::env::args().collect();
        let measurement = Measurement { command, plan, fleet, files: self.files.paths(), shown: !self.json };
        let measured = measure(measurement)?;
        let summary = &measured.summary;
        if self.json {
            print_json(summary)?;
        } else {
            print(format_args!("{}{summary}", more(summary)))?;
        }
        let lost = measured.lost;
        let summary = measured.write_files()?;
        if lost > 0 { Err(Failure::Lost(lost)) } else { self.verdict(&summary) }
    }

    fn verdict(&self, summary: &Summary) -> Result<(), Failure> {
        let outcomes = expect::check(&self.expect, summary);
        for outcome in &outcomes {
            print_line(outcome);
        }
        if outcomes.iter().any(|outcome| !outcome.met) {
            return Err(Failure::Expectation);
        }
        if summary.total.succeeded() == 0 { Err(Failure::Unanswered) } else { Ok(()) }
    }
}

/// Measures until the run ends, or until a signal asks this process to end.
fn measure(measurement: Measurement<'_>) -> Result<Measured, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Start)?;
    runtime.block_on(async {
        // Handles signals before a load runs, which would end without its summary, and before a view is open, which
        // would stay on the terminal.
        let mut signals = EndSignals::listen().map_err(Failure::Start)?;
        let end = async {
            signals.next().await;
        };
        Ok(measurement.measure(end).await?)
    })
}
