//! The report of a run.

use std::time::SystemTime;

use clap::Args;
use watari_bench::expect::{self, Condition};
use watari_bench::fleet::{Finished, Fleet};
use watari_bench::plan::Plan;
use watari_bench::summary::{Run, Summary};

use super::files::Files;
use crate::commands::bench::watch::Watch;
use crate::commands::{print, print_json};
use crate::failure::Failure;
use crate::output::print_line;

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
        let files = self.files.open(plan.work.classes())?;
        let started = SystemTime::now();
        let run = Run::of_this_process(std::env::args().collect(), started);
        let watch = Watch::new(&run.command, plan.stop, self.json)?;
        let load = fleet.start(plan, files.log())?;
        watch.wait(&load);
        let Finished { load: finished, workers } = load.finish();
        let summary = Summary::new(run.by(&workers), finished.elapsed, &finished.tally);
        let summary = summary.because(finished.causes.clone());
        if self.json {
            print_json(&summary)?;
        } else {
            print(format_args!("{}{summary}", more(&summary)))?;
        }
        files.write(started, &finished, &summary)?;
        match workers.iter().filter(|worker| worker.lost.is_some()).count() {
            0 => self.verdict(&summary),
            lost => Err(Failure::Lost(lost)),
        }
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
