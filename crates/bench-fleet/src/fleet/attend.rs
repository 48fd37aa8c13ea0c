//! Receives the reports of workers during a run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use watari_bench_engine::sample::wire::WireSamples;
use watari_bench_engine::tally::Tally;
use watari_link::{Inbox, TalkError, send};

use super::crew::{Ask, FleetState};
use super::logging::Logging;
use super::results::Taken;
use crate::worker::{AHEAD_MAX, HEARTBEAT, Link, Order, Report};

/// Receives the reports of all workers until each is done or lost. Each can be asked for its results.
pub(super) async fn attend_all(
    shared: &Arc<FleetState>,
    links: Vec<(Link, UnboundedReceiver<Ask>)>,
    logging: Option<Arc<Logging>>,
) {
    let mut attended = JoinSet::new();
    for (index, (link, mut asks)) in links.into_iter().enumerate() {
        let shared = Arc::clone(shared);
        let connections = Connections::new(logging.clone());
        attended.spawn(async move {
            let (from, to, hold) = link.split();
            let mut attending = Attending { shared: &shared, index, to, connections, asking: VecDeque::new() };
            let attended = attending.attend(from, &mut asks).await;
            // Set before the asking thread sees its channel close.
            shared.crew()[index].lost = attended.as_ref().err().map(ToString::to_string);
            drop(attending);
            if attended.is_ok() {
                hold.end().await;
            }
        });
    }
    while attended.join_next().await.is_some() {}
}

/// A worker in a run.
struct Attending<'a, W> {
    shared: &'a FleetState,
    /// Its index in the crew.
    index: usize,
    to: W,
    connections: Connections,
    /// Callers that wait for an answer, in order.
    asking: VecDeque<Ask>,
}

impl<W: AsyncWrite + Unpin> Attending<'_, W> {
    /// Receives the worker's reports until its part is over.
    async fn attend(
        &mut self,
        from: impl AsyncRead + Unpin + Send + 'static,
        asks: &mut UnboundedReceiver<Ask>,
    ) -> Result<(), TalkError> {
        let mut reports = Inbox::read(from);
        let mut beats = interval(HEARTBEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut cut = false;
        loop {
            tokio::select! {
                report = reports.next() => if self.on_report(report?)? {
                    return Ok(());
                },
                Some(ask) = asks.recv() => {
                    self.asking.push_back(ask);
                    self.send(&Order::Take).await?;
                }
                () = self.connections.logged() => self.send(&Order::Logged).await?,
                () = self.shared.cut.cancelled(), if !cut => {
                    cut = true;
                    self.send(&Order::Cut).await?;
                }
                _ = beats.tick() => self.send(&Order::Ping).await?,
            }
        }
    }

    /// Handles a report; true if it was the last.
    fn on_report(&mut self, report: Report) -> Result<bool, TalkError> {
        let classes = || Arc::clone(&self.shared.classes);
        match report {
            Report::Progress(tally) => {
                let tally = tally.into_tally(classes()).map_err(TalkError::content)?;
                self.shared.crew()[self.index].tally = tally;
            }
            Report::Taken { .. } if self.asking.is_empty() => return Err(report.out_of_turn()),
            Report::Taken { tally, at_ns } => {
                let tally = tally.into_tally(classes()).map_err(TalkError::content)?;
                self.shared.crew()[self.index].tally = Tally::new(classes());
                let taken = Taken { tally, at: Duration::from_nanos(at_ns) };
                if let Some(ask) = self.asking.pop_front() {
                    // This fails if the caller has stopped waiting.
                    let _ = ask.send(taken);
                }
            }
            Report::Connections(samples) => self.connections.take(samples, self.shared.classes.len())?,
            Report::Done(done) => {
                let tally = done.tally.into_tally(classes()).map_err(TalkError::content)?;
                let member = &mut self.shared.crew()[self.index];
                member.tally = tally;
                member.causes = done.causes;
                member.elapsed = Some(Duration::from_nanos(done.elapsed_ns));
                return Ok(true);
            }
            other => return Err(other.out_of_turn()),
        }
        Ok(false)
    }

    /// Sends an order to a worker. The worker may be done and not read any more, while its last report is still on the
    /// way. So a failed write is not an error, only a blocked one is. The silence timeout detects a lost worker.
    async fn send(&mut self, order: &Order) -> Result<(), TalkError> {
        match send(&mut self.to, order).await {
            Err(TalkError::Silent) => Err(TalkError::Silent),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// The connection samples of a worker, on their way to the log.
struct Connections {
    logging: Option<Arc<Logging>>,
    /// Number of reports that the log has not taken yet.
    ahead: usize,
    taken: UnboundedSender<()>,
    was_taken: UnboundedReceiver<()>,
}

impl Connections {
    fn new(logging: Option<Arc<Logging>>) -> Self {
        let (taken, was_taken) = unbounded_channel();
        Self { logging, ahead: 0, taken, was_taken }
    }

    /// Rejects samples if there is no log, or if the worker sends more than `AHEAD_MAX` reports ahead.
    fn take(&mut self, samples: WireSamples, classes: usize) -> Result<(), TalkError> {
        match &self.logging {
            Some(logging) if self.ahead < AHEAD_MAX => {
                self.ahead += 1;
                logging.take(samples.into_samples(classes).map_err(TalkError::content)?, self.taken.clone());
                Ok(())
            }
            _ => Err(Report::Connections(samples).out_of_turn()),
        }
    }

    /// Waits until the log has taken one report. Cancel-safe.
    async fn logged(&mut self) {
        // `self` holds a sender, so the channel is never closed.
        let _ = self.was_taken.recv().await;
        self.ahead -= 1;
    }
}
