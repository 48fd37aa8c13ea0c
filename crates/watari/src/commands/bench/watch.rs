//! Waiting for a run to end, and looking at it meanwhile.

use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use watari_bench::fleet::Running;
use watari_bench::plan::Stop;
use watari_bench::progress::Progress;
use watari_bench::view::{Screen, ScreenError, View};

use crate::failure::Failure;

/// What a run is watched on: a terminal, or nothing.
pub(crate) struct Watch {
    screen: Option<Screen>,
    title: String,
    stop: Stop,
    progress: Progress,
    /// When it is drawn next.
    due: Instant,
}

impl Watch {
    /// Of a run that ends by `stop`. Nothing is drawn if `quiet`, or if there is no terminal that can show a view.
    pub(crate) fn new(command: &[String], stop: Stop, quiet: bool) -> Self {
        let words = command.iter().skip(1).map(String::as_str);
        let title = std::iter::once("watari").chain(words).collect::<Vec<_>>().join(" ");
        // A terminal that shows no view is no reason to send no load.
        let screen = (!quiet && Screen::is_possible()).then(Screen::open).and_then(Result::ok);
        Self { screen, title, stop, progress: Progress::default(), due: Instant::now() }
    }

    /// Waits until the load is over, and gives the terminal back. Ctrl-C, and where a view is shown q, cuts the load off; what was
    /// measured until then is told all the same.
    pub(crate) fn wait(mut self, load: &Running) -> Result<(), Failure> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Start)?;
        runtime.block_on(async {
            let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::Start)?;
            // Whoever terminates this gets the terminal back, too.
            let mut terminate = signal(SignalKind::terminate()).map_err(Failure::Start)?;
            while !load.is_finished() {
                tokio::select! {
                    _ = interrupt.recv() => load.cut(),
                    _ = terminate.recv() => load.cut(),
                    () = sleep(LOOK) => self.look(load),
                }
            }
            Ok(())
        })
    }

    fn look(&mut self, load: &Running) {
        if self.show(load).is_err() {
            // The terminal is gone; the run is not.
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

/// How often is looked whether a load is over.
const LOOK: Duration = Duration::from_millis(10);
/// How often a view is drawn: seconds seem to run.
const FRAME: Duration = Duration::from_millis(200);
