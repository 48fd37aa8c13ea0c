//! Waiting for a run to end, and looking at it meanwhile.

use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;
use watari_bench::fleet::Running;
use watari_bench::plan::Stop;
use watari_bench::progress::Progress;
use watari_bench::view::{Screen, ScreenError, View};

use crate::failure::Failure;
use crate::process::EndSignals;

/// Who waits for a run.
pub(crate) struct Watch {
    runtime: Runtime,
    end: EndSignals,
    shown: Shown,
}

/// What a run is shown on: a terminal, or nothing.
struct Shown {
    screen: Option<Screen>,
    title: String,
    stop: Stop,
    progress: Progress,
    /// When it is drawn next.
    due: Instant,
}

impl Watch {
    /// Of a run that begins after this, and ends by `stop`. Nothing is drawn if `quiet`, or if there is no terminal that can show a
    /// view.
    pub(crate) fn new(command: &[String], stop: Stop, quiet: bool) -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Start)?;
        // Before there is a load that would end without its summary, or a view that the terminal would keep.
        let end = {
            let _within = runtime.enter();
            EndSignals::listen().map_err(Failure::Start)?
        };
        let words = command.iter().skip(1).map(String::as_str);
        let title = std::iter::once("watari").chain(words).collect::<Vec<_>>().join(" ");
        // A terminal that shows no view is no reason to send no load.
        let screen = (!quiet && Screen::is_possible()).then(Screen::open).and_then(Result::ok);
        let shown = Shown { screen, title, stop, progress: Progress::default(), due: Instant::now() };
        Ok(Self { runtime, end, shown })
    }

    /// Waits until the load is over, and gives the terminal back. A signal to end, such as of Ctrl-C, and where a view is shown q, cuts
    /// the load off; what was measured until then is told all the same.
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
