//! Waits for a run to end, and shows its progress.

use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;
use watari_bench::fleet::Running;
use watari_bench::plan::Stop;
use watari_bench::progress::Progress;
use watari_bench::view::{Screen, ScreenError, View};

use crate::failure::Failure;
use crate::process::EndSignals;

/// Waits for a run.
pub(crate) struct Watch {
    runtime: Runtime,
    end: EndSignals,
    shown: Shown,
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

impl Watch {
    /// For a run that begins after this call and ends by `stop`. Draws no view if `quiet`, or if no terminal can show
    /// one.
    pub(crate) fn new(command: &[String], stop: Stop, quiet: bool) -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Start)?;
        // Handles signals before a load runs, which would end without its summary, and before a view is open, which
        // would stay on the terminal.
        let end = {
            let _within = runtime.enter();
            EndSignals::listen().map_err(Failure::Start)?
        };
        let words = command.iter().skip(1).map(String::as_str);
        let title = std::iter::once("watari").chain(words).collect::<Vec<_>>().join(" ");
        // A terminal that cannot show a view does not prevent the load.
        let screen = (!quiet && Screen::is_possible()).then(Screen::open).and_then(Result::ok);
        let shown = Shown { screen, title, stop, progress: Progress::default(), due: Instant::now() };
        Ok(Self { runtime, end, shown })
    }

    /// Waits until the load is over, and closes the view. A signal to end, such as from Ctrl-C, cuts the load off; so
    /// does the key q in a view. The results until then are reported all the same.
    pub(crate) fn wait(self, load: &Running) {
        let Self { runtime, mut end, mut shown } = self;
        runtime.block_on(async {
            while !load.is_finished() {
                tokio::select! {
                    _ = end.next() => load.cut(),
                    () = sleep(LOOK) => shown.look(load),
                }
            }
        });
    }
}

impl Shown {
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
