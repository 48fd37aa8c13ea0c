//! What is told of a run.

use std::time::{Duration, SystemTime};

use clap::Args;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use watari_bench::expect::{self, Condition};
use watari_bench::fleet::{Fleet, Running};
use watari_bench::plan::Plan;
use watari_bench::summary::{Run, Summary};

use crate::commands::{print, print_json};
use crate::failure::Failure;

/// What is told of the run
#[derive(Args)]
#[command(next_help_heading = "Report")]
pub(crate) struct Report {
    /// Print JSON, which `watari bench compare` reads
    #[arg(long)]
    json: bool,
    /// A condition that has to be met, as often as one likes: p99<50ms, endings.RESET=0, requests_per_s>=1000
    #[arg(long, value_name = "CONDITION")]
    expect: Vec<Condition>,
}

impl Report {
    /// Runs the plan, and tells what came of it.
    pub(crate) fn run(self, plan: Plan, fleet: &Fleet) -> Result<(), Failure> {
        self.run_and_show(plan, fleet, |_| String::new())
    }

    /// The same; people are shown more above the summary.
    pub(crate) fn run_and_show(
        self,
        plan: Plan,
        fleet: &Fleet,
        more: impl FnOnce(&Summary) -> String,
    ) -> Result<(), Failure> {
        let run = Run::of_this_process(std::env::args().collect(), SystemTime::now());
        let load = fleet.start(plan, None)?;
        watch(&load)?;
        let finished = load.finish();
        let summary = Summary::new(run.by(&finished.workers), finished.elapsed, &finished.tally);
        if self.json {
            print_json(&summary)?;
        } else {
            print(format_args!("{}{summary}", more(&summary)))?;
        }
        for (note, count) in &finished.notes {
            eprintln!("{count} x {note}");
        }
        match finished.workers.iter().filter(|worker| worker.lost.is_some()).count() {
            0 => self.verdict(&summary),
            lost => Err(Failure::Lost(lost)),
        }
    }

    fn verdict(&self, summary: &Summary) -> Result<(), Failure> {
        let outcomes = expect::check(&self.expect, summary);
        for outcome in &outcomes {
            eprintln!("{outcome}");
        }
        if outcomes.iter().any(|outcome| !outcome.met) {
            return Err(Failure::Expectation);
        }
        if summary.total.endings.normal == 0 { Err(Failure::Unanswered) } else { Ok(()) }
    }
}

/// Waits until the load is over; Ctrl-C cuts it off, and what was measured until then is told all the same.
fn watch(load: &Running) -> Result<(), Failure> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Start)?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::Start)?;
        while !load.is_finished() {
            tokio::select! {
                _ = interrupt.recv() => load.cut(),
                () = sleep(LOOK) => {}
            }
        }
        Ok(())
    })
}

/// How often is looked whether a load is over.
const LOOK: Duration = Duration::from_millis(10);
