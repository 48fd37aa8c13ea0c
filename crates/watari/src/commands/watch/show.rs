//! What is heard goes to the board, and what the board says is shown: in a terminal, as lines, as metrics.

use std::io::{self, StdoutLock, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::registry::Registry;
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};
use watari_endings::{Change, Event};
use watari_watch::batch::Sink;
use watari_watch::board::Board;
use watari_watch::live::{self, Heard, Live};
use watari_watch::metrics::BoardMetrics;
use watari_watch::rows::seconds;
use watari_watch::spans::{EvidenceRow, SharesRow, because};
use watari_watch::terminal::{Choice, Key, Screen, View};

use super::output::{self, Format, Output, What, moment};
use crate::failure::Failure;
use crate::metrics_server;

/// What is shown.
pub(super) enum Shown {
    /// A view of the terminal, if there is one, of this title; else changes as lines.
    View(String),
    /// Each change of a server's state.
    Changes { json: bool },
    /// Each connection.
    Rows(Format),
}

/// Shows a board.
pub(super) struct Show {
    board: Arc<Mutex<Board>>,
    out: Out,
    _metrics: DropGuard,
}

enum Out {
    View { screen: Screen, title: String, choice: Choice },
    Changes { json: bool },
    Rows(Output<StdoutLock<'static>>),
}

/// How often a view is drawn, and time goes on.
const FRAME: Duration = Duration::from_millis(250);

/// A server is in another state, as JSON has it.
#[derive(Serialize)]
struct ChangeRow<'a> {
    sensor: &'a str,
    server: SocketAddr,
    at: f64,
    since: f64,
    before: &'static str,
    state: &'static str,
    shares: Option<SharesRow>,
    evidence: EvidenceRow,
}

impl Show {
    /// Of a board; on `metrics` it is scraped. Must be called in a tokio runtime.
    pub(super) fn new(shown: Shown, board: &Arc<Mutex<Board>>, metrics: Option<TcpListener>) -> Result<Self, Failure> {
        let out = match shown {
            Shown::View(title) if Screen::is_possible() => {
                Out::View { screen: Screen::open().map_err(Failure::Output)?, title, choice: Choice::default() }
            }
            Shown::View(_) => Out::Changes { json: false },
            Shown::Changes { json } => Out::Changes { json },
            Shown::Rows(format) => Out::Rows(output::sink(format, What::Connections, io::stdout().lock())?),
        };
        let shutdown = CancellationToken::new();
        if let Some(listener) = metrics {
            let mut registry = Registry::with_prefix("watari_watch");
            registry.register_collector(Box::new(BoardMetrics(Arc::clone(board))));
            metrics_server::serve(listener, Arc::new(registry), shutdown.clone()).map_err(Failure::Start)?;
        }
        Ok(Self { board: Arc::clone(board), out, _metrics: shutdown.drop_guard() })
    }

    /// Until `end`, or until somebody who looks at it wants no more.
    pub(super) async fn run(mut self, mut live: Live, end: impl Future<Output = ()>) -> Result<(), Failure> {
        let mut frames = interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::pin!(end);
        loop {
            tokio::select! {
                heard = live.next() => match heard {
                    Some((part, heard)) => self.hear(part, heard)?,
                    None => return Ok(()),
                },
                _ = frames.tick() => if self.go_on()? {
                    return Ok(());
                },
                () = &mut end => return self.finish(),
            }
        }
    }

    fn hear(&mut self, part: usize, heard: Heard) -> Result<(), Failure> {
        match heard {
            Heard::Report(report) => {
                self.lock().take(SENSOR, part, &report);
                Ok(())
            }
            Heard::Events(events) => self.print(&events),
            Heard::Failed(error) => Err(error.into()),
        }
    }

    fn print(&mut self, events: &[Event]) -> Result<(), Failure> {
        let Out::Rows(output) = &mut self.out else { return Ok(()) };
        for event in events {
            if let Event::Closed(connection) = event {
                output.connection(connection)?;
            }
        }
        output.flush()
    }

    /// Returns whether somebody wants no more.
    fn go_on(&mut self) -> Result<bool, Failure> {
        let changes = {
            let mut board = self.lock();
            board.advance(live::now());
            std::iter::from_fn(|| board.poll()).collect::<Vec<_>>()
        };
        if let Out::Changes { json } = self.out {
            for (sensor, change) in &changes {
                print_change(sensor, change, json)?;
            }
        }
        let board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        let Out::View { screen, title, choice } = &mut self.out else { return Ok(false) };
        while let Some(key) = screen.key().map_err(Failure::Output)? {
            match key {
                Key::End => return Ok(true),
                Key::Up | Key::Down => choice.go(&board, key == Key::Down),
            }
        }
        screen.draw(&View::new(title, &board, choice)).map_err(Failure::Output)?;
        Ok(false)
    }

    fn finish(self) -> Result<(), Failure> {
        if let Out::Rows(mut output) = self.out { output.flush() } else { Ok(()) }
    }

    fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What this machine's own sensor is called.
const SENSOR: &str = "here";

fn print_change(sensor: &str, change: &Change, json: bool) -> Result<(), Failure> {
    let (verdict, mut out) = (&change.verdict, io::stdout().lock());
    let written = if json {
        let row = ChangeRow {
            sensor,
            server: change.server,
            at: seconds(verdict.at),
            since: seconds(verdict.since),
            before: change.before.as_str(),
            state: verdict.state.as_str(),
            shares: verdict.evidence.shares.map(SharesRow::from),
            evidence: EvidenceRow::from(&verdict.evidence),
        };
        serde_json::to_writer(&mut out, &row).map_err(io::Error::from).and_then(|()| out.write_all(b"\n"))
    } else {
        let (at, server, state, why) =
            (moment(verdict.at.0), change.server, verdict.state.as_str(), because(&verdict.evidence));
        writeln!(out, "{at} {server} is {state}, {} before: {why}", change.before.as_str())
    };
    written.and_then(|()| out.flush()).map_err(Failure::Output)
}
