//! Single measurements:
//!
//! * A probe holds a load, and counts the requests that end while it is measured.
//! * Single requests show whether the server is idle before a probe. They are sent by this process alone, even if other
//!   processes or workers make the loads. Each is the first request of the plan, on a connection of its own.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use watari_bench_engine::plan::{Pace, Plan, Stop};
use watari_bench_engine::tally::Tally;
use watari_bench_fleet::fleet::{Fleet, LostError, Running, StartError, Taken};
use watari_bench_report::summary::{PartSummary, Run, Summary};

use super::idle::{IN_A_ROW, Unloaded};
use super::search::Probe;

/// Measures until it is interrupted.
pub(super) struct Prober {
    interrupted: CancellationToken,
}

/// A measurement failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProbeError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Lost(#[from] LostError),
}

impl Prober {
    pub(super) fn new(interrupted: CancellationToken) -> Self {
        Self { interrupted }
    }

    /// How the server responds before any load. `None`: it was interrupted.
    pub(super) async fn unloaded(&mut self, plan: &Plan) -> Result<Option<Unloaded>, ProbeError> {
        let mut all = Tally::new(plan.work.classes());
        for _ in 0..IN_A_ROW {
            let until = Instant::now() + plan.timeouts.connect + plan.timeouts.response;
            let Some(one) = self.single(plan, until).await? else { return Ok(None) };
            all.merge(&one);
        }
        Ok(Some(Unloaded::new(total(&all))))
    }

    /// Waits until the server is idle again or `until`, and returns whether it is idle. `None`: it was interrupted.
    pub(super) async fn settle(
        &mut self,
        plan: &Plan,
        unloaded: &Unloaded,
        until: Instant,
    ) -> Result<Option<bool>, ProbeError> {
        let Some(mut watch) = unloaded.watch() else { return Ok(Some(false)) };
        while Instant::now() < until {
            let Some(one) = self.single(plan, until).await? else { return Ok(None) };
            if watch.enter(&total(&one)) {
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    }

    /// The result of one request, which is dropped if it has not ended by `until`. `None`: it was interrupted.
    async fn single(&mut self, plan: &Plan, until: Instant) -> Result<Option<Tally>, ProbeError> {
        let load = Fleet::Here.start(single(plan), None)?;
        while load.tally().total().requests == 0 && !load.is_finished() && Instant::now() < until {
            tokio::select! {
                () = self.interrupted.cancelled() => return Ok(None),
                () = sleep(LOOK_EVERY) => {}
            }
        }
        load.cut();
        Ok(Some(load.finish().load.tally))
    }

    /// The requests that end between the warm-up and the end of the measurement, when the load is cut off. `None`: it was
    /// interrupted.
    ///
    /// Requests count when they end, not when they begin. So a measurement does not have to wait until an overloaded
    /// server has answered all of them.
    pub(super) async fn probe(
        &mut self,
        plan: Plan,
        fleet: &Fleet,
        probe: &Probe,
    ) -> Result<Option<Summary>, ProbeError> {
        let mut load = fleet.start(plan, None)?;
        let measured = self.measure(&mut load, probe).await;
        load.cut();
        load.finish();
        Ok(measured?)
    }

    /// Fails if a part of the load is lost.
    async fn measure(&mut self, load: &mut Running, probe: &Probe) -> Result<Option<Summary>, LostError> {
        if self.hold(load, probe.warmup).await.is_none() {
            return Ok(None);
        }
        let from = load.take()?.at;
        if self.hold(load, load.elapsed() + probe.duration).await.is_none() {
            return Ok(None);
        }
        let Taken { tally, at } = load.take()?;
        Ok(Some(Summary::new(Run::default(), at.saturating_sub(from), &tally)))
    }

    /// Holds the load until its age is `until`. Reads the age again after each sleep, because workers begin a moment
    /// after the order to start. `None`: it was interrupted.
    async fn hold(&mut self, load: &Running, until: Duration) -> Option<()> {
        while load.elapsed() < until {
            tokio::select! {
                () = self.interrupted.cancelled() => return None,
                () = sleep(until.saturating_sub(load.elapsed())) => {}
            }
        }
        Some(())
    }
}

/// A plan of one request.
fn single(plan: &Plan) -> Plan {
    let stop = Stop { requests: Some(1), after: None };
    Plan { pace: Pace::Closed { connections: 1 }, stop, threads: 1, ..plan.clone() }
}

fn total(tally: &Tally) -> PartSummary {
    Summary::new(Run::default(), Duration::ZERO, tally).total
}

/// How often the prober checks whether a single request has ended. The server is idle for at least this time between
/// two of them.
const LOOK_EVERY: Duration = Duration::from_millis(20);
