//! Passes captured reports to the board, and the board's changes to views, outputs and receivers of alerts.
//!
//! ```text
//!   capture threads ──▶ Show ──▶ Board ──▶ view, lines, page, metrics; Notifier: webhooks, ..
//!                         │  │      ▲
//!         Printer: rows ◀─┘  ▼      │
//!                       Reporter   Judge ◀══ sensors on other machines
//!                            ╚══▶ a judge on another machine
//! ```

use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::body::Bytes;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Level;
use tracing_subscriber::filter::Targets;
use watari_capture::CaptureError;
use watari_watch::alerting::{self, Notifier};
use watari_watch::board::Board;
use watari_watch::clock;
use watari_watch::link::{Judge, JudgeMetrics, Reporter};
use watari_watch::live::{CaptureMessage, Live};
use watari_watch::metrics::BoardMetrics;
use watari_watch::terminal::{Choice, Key, Screen, View};
use watari_watch::web::{self, Site};

use super::outlets::{Opened, Outlets, Page};
use super::printer::{Printed, Printer, Style};
use crate::config::{Log, LogFormat};
use crate::failure::Failure;
use crate::process::EndSignals;
use crate::{logging, metrics_server};

/// The form of the output.
pub(super) enum Shown {
    /// A view with this title, if there is a terminal; else changes as lines.
    View(String),
    /// Rows or changes.
    Printed(Style),
}

/// The peers on other machines.
pub(super) enum Elsewhere {
    /// None.
    None,
    /// A judge, which gets this machine's reports, too.
    Judge(Reporter),
    /// Sensors. The judge enters their reports in the board.
    Sensors(Judge),
}

/// Shows a board.
pub(super) struct Show {
    board: Arc<Mutex<Board>>,
    out: Out,
    reporter: Option<Reporter>,
    notifier: Option<Notifier>,
    page: Option<Ticks>,
    /// The error that ended a capture thread.
    lost: Option<CaptureError>,
    _served: DropGuard,
}

/// The updates of the page.
struct Ticks {
    latest: watch::Sender<Bytes>,
    /// The second of the latest update.
    at_s: u64,
}

enum Out {
    View { screen: Screen, title: String, choice: Choice },
    Printer(Printer),
}

/// How often a view is drawn and the board's time advances.
const FRAME: Duration = Duration::from_millis(250);

/// Starts the log on the standard error, unless a view uses the same terminal.
pub(super) fn logs_for(shown: &Shown) {
    let has_view = matches!(shown, Shown::View(_)) && Screen::is_possible();
    if !has_view || !io::stderr().is_terminal() {
        let level = Targets::new().with_default(Level::INFO);
        logging::start(&Log { format: LogFormat::Text, level, repeats_max: logging::ALL_LINES });
    }
}

impl Show {
    /// Shows `board`. Must be called in a tokio runtime.
    pub(super) fn new(
        shown: Shown,
        board: &Arc<Mutex<Board>>,
        opened: Opened,
        elsewhere: Elsewhere,
    ) -> Result<Self, Failure> {
        let mut registry = Registry::with_prefix("watari_watch");
        registry.register_collector(Box::new(BoardMetrics(Arc::clone(board))));
        let notifier = notifier(&opened.alerting, &mut registry)?;
        let reporter = match elsewhere {
            Elsewhere::None => None,
            Elsewhere::Judge(reporter) => {
                registry.register_collector(Box::new(reporter.metrics()));
                Some(reporter)
            }
            Elsewhere::Sensors(judge) => {
                registry.register_collector(Box::new(JudgeMetrics(judge)));
                None
            }
        };
        let shutdown = CancellationToken::new();
        if let Some(listener) = opened.metrics {
            metrics_server::serve(listener, Arc::new(registry), shutdown.clone()).map_err(Failure::Start)?;
        }
        let page = opened.page.map(|page| serve(page, board, &shutdown)).transpose()?;
        let out = Out::new(shown)?;
        Ok(Self { board: Arc::clone(board), out, reporter, notifier, page, lost: None, _served: shutdown.drop_guard() })
    }

    /// Runs until its time is over, a signal asks the process to end, or a user quits the view. `live` has the captures
    /// of this machine, if it captures.
    pub(super) async fn run(mut self, mut live: Option<Live>, outlets: &Outlets) -> Result<(), Failure> {
        let mut signals = EndSignals::listen().map_err(Failure::Start)?;
        let shown = tokio::select! {
            shown = self.show(&mut live) => shown,
            _ = signals.next() => Ok(()),
            () = outlets.time_over() => Ok(()),
        };
        // Connections that are still open are part of the results.
        if let Some(live) = &mut live {
            self.receive_rest(live).await;
        }
        let finished = self.finish().await;
        shown.and(finished)
    }

    async fn show(&mut self, live: &mut Option<Live>) -> Result<(), Failure> {
        let mut frames = interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = next(live) => match message {
                    Some((part, message)) => self.on_message(part, message),
                    None => return self.lost.take().map_or(Ok(()), |error| Err(error.into())),
                },
                _ = frames.tick() => if self.go_on()? {
                    return Ok(());
                },
                ended = self.out.ended() => return ended,
            }
        }
    }

    async fn receive_rest(&mut self, live: &mut Live) {
        live.end();
        while let Ok(Some((part, message))) = timeout(FINISH_MAX, live.next()).await {
            self.on_message(part, message);
        }
    }

    fn on_message(&mut self, part: u8, message: CaptureMessage) {
        match message {
            CaptureMessage::Report(report) => {
                self.lock().take(SENSOR, part, &report);
                if let Some(reporter) = &self.reporter {
                    reporter.report(part, &report);
                }
            }
            CaptureMessage::Events(events) => self.out.print(Printed::Events(events)),
            // Other threads may still capture.
            CaptureMessage::Failed(error) => {
                tracing::error!(%error, "the capture on an interface has failed");
                self.lock().leave(SENSOR, part);
                self.lost = Some(error);
            }
        }
    }

    /// Returns whether the user quits.
    fn go_on(&mut self) -> Result<bool, Failure> {
        let changes = {
            let mut board = self.lock();
            board.advance(clock::now());
            std::iter::from_fn(|| board.poll()).collect::<Vec<_>>()
        };
        if let Some(page) = &mut self.page {
            page.advance(&self.board);
        }
        for (sensor, change) in changes {
            if let Some(notifier) = &self.notifier {
                notifier.notify(&sensor, &change);
            }
            self.out.print(Printed::Change(sensor, Box::new(change)));
        }
        let board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        let Out::View { screen, title, choice } = &mut self.out else { return Ok(false) };
        while let Some(key) = screen.key().map_err(Failure::Output)? {
            match key {
                Key::End => return Ok(true),
                Key::Up | Key::Down => choice.go(&board, key == Key::Down),
            }
        }
        let trouble = self.reporter.as_ref().map(Reporter::counts).filter(|counts| !counts.is_connected);
        let trouble = trouble.map(|counts| format!("  no judge: {}", counts.trouble.unwrap_or_default()));
        let lost = self.lost.as_ref().map(|error| format!("  {error}"));
        let title = format!("{title}{}{}", trouble.unwrap_or_default(), lost.unwrap_or_default());
        screen.draw(&View::new(&title, &board, choice)).map_err(Failure::Output)?;
        Ok(false)
    }

    /// Closes the view. Waits a few seconds for queued output, reports and alerts.
    async fn finish(self) -> Result<(), Failure> {
        let printing = async { if let Out::Printer(printer) = self.out { printer.finish().await } else { Ok(()) } };
        let reporting = async {
            if let Some(reporter) = self.reporter {
                let counts = reporter.finish(FINISH_MAX).await;
                if counts.is_untaken {
                    tracing::warn!("the judge has not received all reports");
                }
            }
        };
        let telling = async {
            if let Some(notifier) = self.notifier {
                notifier.stop().await;
            }
        };
        tokio::join!(printing, reporting, telling).0
    }

    fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Out {
    fn new(shown: Shown) -> Result<Self, Failure> {
        Ok(match shown {
            Shown::View(title) if Screen::is_possible() => {
                Self::View { screen: Screen::open().map_err(Failure::Output)?, title, choice: Choice::default() }
            }
            Shown::View(_) => Self::Printer(Printer::start(Style::Lines)?),
            Shown::Printed(style) => Self::Printer(Printer::start(style)?),
        })
    }

    /// A view shows the board instead.
    fn print(&mut self, printed: Printed) {
        if let Self::Printer(printer) = self {
            printer.print(printed);
        }
    }

    /// Waits until the output has ended.
    async fn ended(&mut self) -> Result<(), Failure> {
        match self {
            Self::View { .. } => std::future::pending().await,
            Self::Printer(printer) => printer.ended().await,
        }
    }
}

impl Ticks {
    fn advance(&mut self, board: &Mutex<Board>) {
        let now_s = clock::now().0 / 1_000_000_000;
        if now_s != self.at_s {
            self.at_s = now_s;
            self.latest.send_replace(web::tick(board));
        }
    }
}

fn serve(page: Page, board: &Arc<Mutex<Board>>, shutdown: &CancellationToken) -> Result<Ticks, Failure> {
    let (latest, ticks) = watch::channel(web::tick(board));
    let site = Site { board: Arc::clone(board), ticks, names: page.hosts };
    web::serve(page.listener, site, shutdown.clone()).map_err(Failure::Start)?;
    Ok(Ticks { latest, at_s: 0 })
}

/// Starts the alerts, if any receivers are configured.
fn notifier(config: &alerting::Config, registry: &mut Registry) -> Result<Option<Notifier>, Failure> {
    if config.receivers.is_empty() {
        return Ok(None);
    }
    let notifier = Notifier::start(&config.receivers, config.journal.clone())?;
    registry.register_collector(Box::new(notifier.metrics()));
    Ok(Some(notifier))
}

async fn next(live: &mut Option<Live>) -> Option<(u8, CaptureMessage)> {
    match live {
        Some(live) => live.next().await,
        None => std::future::pending().await,
    }
}

/// The name of this machine's own sensor.
const SENSOR: &str = "here";
/// The time for each of the last steps: the rest of captures, and of reports to the judge.
const FINISH_MAX: Duration = Duration::from_secs(3);
