//! Serves one controller: one job, from the greeting to the last tally.

use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task;
use tokio::time::{sleep, timeout};
use watari_bench_engine::limits::Limits;
use watari_bench_engine::load::{Load, Prepared};
use watari_bench_engine::needs;
use watari_bench_engine::source::Sources;
use watari_bench_engine::tally::wire::WireTally;
use watari_link::{Inbox, SILENCE_MAX, TalkError, greet, send, skip};

use super::sample_queue::Connections;
use super::wire::{self, HEARTBEAT, Order, PROTOCOL, Report, WireDone};

/// Serves a controller. `own` are source addresses of this machine, which replace those of the job. `busy` is dropped
/// when the load is over, before the controller receives the result, so that it can send the next job at once.
///
/// The load ends if this function returns early.
pub(super) async fn serve<R, W, B>(mut from: R, mut to: W, own: Option<&Sources>, busy: B) -> Result<(), TalkError>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin,
{
    timeout(SILENCE_MAX, greet(&PROTOCOL, &mut from, &mut to)).await.map_err(|_| TalkError::Silent)??;
    let mut controller = Controller { orders: Inbox::read(from), to };
    let job = match controller.orders.next().await? {
        Order::Job(job) => job,
        other => return Err(other.out_of_turn()),
    };
    let connections = Connections::new(job.is_logged());
    let (prepared, after) = match prepare(*job, own) {
        Ok(prepared) => prepared,
        Err(why) => return controller.send_last(&Report::Refused { why }).await,
    };
    controller.send_report(&Report::Ready).await?;
    let Some(start) = controller.start().await? else { return Ok(()) };
    match prepared.start(start, after, connections.log()) {
        Ok(load) => controller.attend(load, connections, busy).await,
        Err(error) => controller.send_last(&Report::Refused { why: error.to_string() }).await,
    }
}

/// Refuses a controller, and sends it the reason.
pub(super) async fn refuse<R, W>(mut from: R, mut to: W, why: String) -> Result<(), TalkError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let refused = async {
        greet(&PROTOCOL, &mut from, &mut to).await?;
        // Reads the job first, so that closing the connection does not reset it and discard the reason.
        skip::<Order>(&mut from).await?;
        send(&mut to, &Report::Refused { why }).await
    };
    timeout(SILENCE_MAX, refused).await.map_err(|_| TalkError::Silent)??;
    // See `Controller::send_last`.
    let _ = timeout(SILENCE_MAX, tokio::io::copy(&mut from, &mut tokio::io::sink())).await;
    Ok(())
}

/// Prepares a job. The error is a sentence.
fn prepare(job: wire::Job, own: Option<&Sources>) -> Result<(Prepared, Duration), String> {
    let (mut plan, portion, after) = job.into_plan().map_err(|error| error.to_string())?;
    if let Some(own) = own {
        plan.sources = Some(own.clone());
    }
    let limits = Limits::of_this_process().map_err(|error| error.to_string())?;
    let connections = portion.share(plan.connections() as u64);
    needs::check(&limits, &plan, connections, 1).map_err(|shortage| shortage.to_string())?;
    let prepared = Load::prepare(plan, portion).map_err(|error| error.to_string())?;
    Ok((prepared, after))
}

struct Controller<W> {
    orders: Inbox<Order>,
    to: W,
}

impl<W: AsyncWrite + Unpin> Controller<W> {
    /// Sends a report. Fails if the controller does not take it within [`SILENCE_MAX`].
    async fn send_report(&mut self, report: &Report) -> Result<(), TalkError> {
        send(&mut self.to, report).await
    }

    /// Waits for the start. `None`: the controller cancelled the job.
    async fn start(&mut self) -> Result<Option<Instant>, TalkError> {
        loop {
            match self.orders.next().await? {
                Order::Ping => self.send_report(&Report::Pong).await?,
                Order::Start { after_ns } => {
                    let after = Duration::from_nanos(after_ns).min(SILENCE_MAX);
                    return Ok(Some(Instant::now() + after));
                }
                Order::Cut => return Ok(None),
                other @ (Order::Job(_) | Order::Logged | Order::Take) => return Err(other.out_of_turn()),
            }
        }
    }

    /// Sends reports about the load until it is over and all samples are sent.
    async fn attend<B>(&mut self, mut load: Load, mut connections: Connections, busy: B) -> Result<(), TalkError> {
        let mut timer = ReportTimer { next: Instant::now() + HEARTBEAT };
        while !(load.is_finished() && connections.are_sent()) {
            tokio::select! {
                order = self.orders.next() => match order? {
                    Order::Ping => {}
                    Order::Logged => connections.logged()?,
                    Order::Take => {
                        let at_ns = nanoseconds(load.elapsed());
                        let tally = Box::new(WireTally::of(&load.take()));
                        self.send_report(&Report::Taken { tally, at_ns }).await?;
                    }
                    Order::Cut => load.cut(),
                    other => return Err(other.out_of_turn()),
                },
                () = sleep(LOOK) => {
                    while let Some(report) = connections.report()? {
                        self.send_report(&report).await?;
                    }
                    if timer.is_due() {
                        let report = timer.make(|| Report::Progress(Box::new(WireTally::of(&load.tally()))));
                        self.send_report(&report).await?;
                    }
                },
            }
        }
        let finished = task::spawn_blocking(|| load.finish()).await.map_err(|_| TalkError::Closed)?;
        let done = WireDone {
            tally: WireTally::of(&finished.tally),
            elapsed_ns: nanoseconds(finished.elapsed),
            causes: finished.causes,
        };
        drop(busy);
        self.send_last(&Report::Done(Box::new(done))).await
    }

    /// Sends the last report, and reads orders until the controller closes, for at most [`SILENCE_MAX`]. If the worker
    /// closed first and an order came, the kernel would reset the connection and discard what the controller has not
    /// received yet.
    async fn send_last(&mut self, report: &Report) -> Result<(), TalkError> {
        self.send_report(report).await?;
        let closed = async { while self.orders.next().await.is_ok() {} };
        let _ = timeout(SILENCE_MAX, closed).await;
        Ok(())
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// When the next tally is sent. The interval grows with the time that a tally takes, to limit its share of the
/// machine's time.
struct ReportTimer {
    next: Instant,
}

impl ReportTimer {
    fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    fn make(&mut self, make: impl FnOnce() -> Report) -> Report {
        let begun = Instant::now();
        let report = make();
        self.next = Instant::now() + HEARTBEAT.max(begun.elapsed() * COST_MIN).min(SILENCE_MAX / 2);
        report
    }
}

/// The interval between checks whether the load is over.
const LOOK: Duration = Duration::from_millis(10);
/// Making tallies takes at most this fraction of a thread's time: 1/50.
const COST_MIN: u32 = 50;
