//! The standard output, in a thread of its own, so that a slow reader delays nothing else.

use std::io::{self, StdoutLock, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::timeout;
use watari_endings::{Change, Event};
use watari_watch::batch::Sink;
use watari_watch::rows::seconds;
use watari_watch::spans::{EvidenceRow, SharesRow, because};

use super::output::{self, Format, Output, What, moment};
use crate::failure::Failure;

/// Prints in a thread of its own.
pub(super) struct Printer {
    sender: SyncSender<Printed>,
    ended: Option<oneshot::Receiver<Result<(), Failure>>>,
    dropped: u64,
}

/// An item to print.
pub(super) enum Printed {
    /// The connections among them are printed as rows.
    Events(Vec<Event>),
    /// A server whose state has changed, with the sensor that saw it.
    Change(String, Box<Change>),
}

/// The items that are printed, and their format.
#[derive(Debug, Clone, Copy)]
pub(super) enum Style {
    /// Changes as lines for people.
    Lines,
    /// Changes as JSON objects.
    Objects,
    /// Connections.
    Rows(Format),
}

/// A change of a server's state, in JSON.
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

/// The most items in the queue, each with up to 1,024 events. Further ones are dropped and counted.
const WAITING_MAX: usize = 256;
/// The time that the queue gets to drain at the end.
const FINISH_MAX: Duration = Duration::from_secs(3);

impl Printer {
    pub(super) fn start(style: Style) -> Result<Self, Failure> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let (end, ended) = oneshot::channel();
        let print = move || {
            // An error means that the receiver was dropped.
            let _ = end.send(print_all(style, &receiver));
        };
        thread::Builder::new().name("printer".to_owned()).spawn(print).map_err(Failure::Start)?;
        Ok(Self { sender, ended: Some(ended), dropped: 0 })
    }

    /// Queues the item, or drops it if the queue is full.
    pub(super) fn print(&mut self, printed: Printed) {
        if let Err(TrySendError::Full(_)) = self.sender.try_send(printed) {
            if self.dropped == 0 {
                tracing::warn!("the reader of the output is too slow: output is dropped");
            }
            self.dropped += 1;
        }
    }

    /// Waits until printing ends, and returns its result. Reports an end only once.
    pub(super) async fn ended(&mut self) -> Result<(), Failure> {
        let Some(ended) = &mut self.ended else { return std::future::pending().await };
        let why = ended.await;
        self.ended = None;
        why.unwrap_or(Ok(()))
    }

    /// Prints the rest, if the reader takes it within [`FINISH_MAX`].
    pub(super) async fn finish(self) -> Result<(), Failure> {
        let Self { sender, ended, dropped } = self;
        drop(sender);
        if dropped > 0 {
            tracing::warn!(dropped, "output was dropped: its reader was too slow");
        }
        let Some(ended) = ended else { return Ok(()) };
        match timeout(FINISH_MAX, ended).await {
            Ok(Ok(printed)) => printed,
            // The thread panicked, which has been reported.
            Ok(Err(_)) => Ok(()),
            Err(_) => Err(Failure::Output(io::Error::new(io::ErrorKind::TimedOut, "its reader is too slow"))),
        }
    }
}

fn print_all(style: Style, receiver: &Receiver<Printed>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match style {
        Style::Rows(format) => {
            let mut rows = output::sink(format, What::Connections, out)?;
            receiver.iter().try_for_each(|printed| print_rows(&mut rows, &printed))
        }
        Style::Lines => receiver.iter().try_for_each(|printed| print_change(&mut out, &printed, write_line)),
        Style::Objects => receiver.iter().try_for_each(|printed| print_change(&mut out, &printed, write_object)),
    }
}

fn print_rows(rows: &mut Output<StdoutLock<'_>>, printed: &Printed) -> Result<(), Failure> {
    let Printed::Events(events) = printed else { return Ok(()) };
    for event in events {
        if let Event::Closed(connection) = event {
            rows.connection(connection)?;
        }
    }
    rows.flush()
}

type Write1 = fn(&mut StdoutLock<'_>, &str, &Change) -> io::Result<()>;

fn print_change(out: &mut StdoutLock<'_>, printed: &Printed, write: Write1) -> Result<(), Failure> {
    let Printed::Change(sensor, change) = printed else { return Ok(()) };
    write(out, sensor, change).and_then(|()| out.flush()).map_err(Failure::Output)
}

fn write_line(out: &mut StdoutLock<'_>, sensor: &str, change: &Change) -> io::Result<()> {
    let verdict = &change.verdict;
    let (at, server, state, why) =
        (moment(verdict.at.0), change.server, verdict.state.as_str(), because(&verdict.evidence));
    writeln!(out, "{at} {sensor}: {server} is {state}, {} before: {why}", change.before.as_str())
}

fn write_object(out: &mut StdoutLock<'_>, sensor: &str, change: &Change) -> io::Result<()> {
    let verdict = &change.verdict;
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
    serde_json::to_writer(&mut *out, &row).map_err(io::Error::from)?;
    out.write_all(b"\n")
}
