//! Measures one run: begins it, shows it while it goes on, and sums it up.

use std::future::pending;
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime};

use tokio::time::sleep;
use watari_bench_engine::load;
use watari_bench_engine::plan::{Plan, Stop};
use watari_bench_engine::progress::Progress;
use watari_bench_report::files::{FilePaths, OpenFiles, WriteError};
use watari_bench_report::summary::{Run, Summary, WorkerSummary};
use watari_bench_report::view::View;
use watari_bench_report::view::screen::{Screen, ScreenError};

use crate::fleet::{Finished, Fleet, Running, StartError};

/// A run to measure.
pub struct Measurement<'a> {
    /// The command line, word by word.
    pub command: Vec<String>,
    pub plan: Plan,
    pub fleet: &'a Fleet,
    pub files: FilePaths,
    /// Whether to show the run in the terminal, if that is possible.
    pub shown: bool,
}

/// The results of a run.
pub struct Measured {
    pub summary: Summary,
    /// Number of workers that were lost. The summary lacks their last results.
    pub lost: usize,
    started: SystemTime,
    finished: load::Finished,
    files: OpenFiles,
}

/// A run could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    #[error(transparent)]
    Files(#[from] WriteError),
    #[error(transparent)]
    Start(#[from] StartError),
}

impl Measurement<'_> {
    /// Runs the plan until its end. When `end` is ready, the load is cut off; so it is when the view's user wants that.
    /// The results until then are reported all the same. Blocks the runtime while the load starts.
    pub async fn measure(self, end: impl Future<Output = ()>) -> Result<Measured, MeasureError> {
        let files = self.files.open(self.plan.work.classes())?;
        let started = SystemTime::now();
        let run = Run::of_this_process(self.command, started);
        let mut shown = Shown::new(&run.command, self.plan.stop, self.shown);
        let load = self.fleet.start(self.plan, files.log())?;
        shown.wait(&load, end).await;
        // Closes the view before anything is printed.
        drop(shown);
        let Finished { load: finished, workers } = load.finish();
        let lost = workers.iter().filter(|worker| worker.lost.is_some()).count();
        let run = run.by(workers.iter().map(WorkerSummary::from).collect());
        let summary = Summary::new(run, finished.elapsed, &finished.tally).because(finished.causes.clone());
        Ok(Measured { summary, lost, started, finished, files })
    }
}

impl Measured {
    /// Writes the files of the run. Separate, so that the summary can be printed even if a file cannot be written.
    pub fn write_files(self) -> Result<Summary, WriteError> {
        self.files.write(self.started, &self.finished, &self.summary)?;
        Ok(self.summary)
    }
}

/// The view of a run, if a terminal shows one.
struct Shown {
    screen: Option<Screen>,
    title: String,
    stop: Stop,
    progress: Progress,
    /// When the view is drawn next.
    due: Instant,
}

impl Shown {
    fn new(command: &[String], stop: Stop, wanted: bool) -> Self {
        let words = command.iter().skip(1).map(String::as_str);
        let title = std::iter::once("watari").chain(words).collect::<Vec<_>>().join(" ");
        // A terminal that cannot show a view does not prevent the load.
        let screen = (wanted && Screen::is_possible()).then(Screen::open).and_then(Result::ok);
        Self { screen, title, stop, progress: Progress::default(), due: Instant::now() }
    }

    /// Waits until the load is over.
    async fn wait(&mut self, load: &Running, end: impl Future<Output = ()>) {
        let mut cut = pin!(async {
            end.await;
            load.cut();
            pending::<()>().await;
        });
        while !load.is_finished() {
            tokio::select! {
                () = &mut cut => {}
                () = sleep(LOOK) => self.look(load),
            }
        }
    }

    fn look(&mut self, load: &Running) {
        if self.show(load).is_err() {
            // The terminal is gone. The run continues.
            self.screen = None;
        }
    }

    fn show(&mut self, load: &Running) -> Result<(), ScreenError> {
        let Some(screen) = &mut self.screen else { return Ok(()) };
        if screen.is_end_wanted()? {
            load.cut();
        }
        let now = Instant::now();
        if now >= self.due {
            self.due = now + FRAME;
            load.follow(&mut self.progress);
            screen.draw(&View::new(&self.title, self.stop, &mut self.progress))?;
        }
        Ok(())
    }
}

/// How often the wait checks whether the load is over.
const LOOK: Duration = Duration::from_millis(10);
/// How often a view is drawn: often enough for a smooth clock.
const FRAME: Duration = Duration::from_millis(200);
