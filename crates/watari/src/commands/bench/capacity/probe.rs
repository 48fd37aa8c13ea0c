//! One measurement: a load that is held, and what ends while it is measured; and the single requests that show whether the server
//! is idle before.
//!
//! Single requests are sent by this process alone, whoever makes the loads: each is the first request of the plan, on a connection of
//! its own.

use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;
use watari_bench::capacity::idle::{IN_A_ROW, Unloaded};
use watari_bench::capacity::search::Probe;
use watari_bench::fleet::{Fleet, LostError, Running, Taken};
use watari_bench::plan::{Pace, Plan, Stop};
use watari_bench::summary::{PartSummary, Run, Summary};
use watari_bench::tally::Tally;

use crate::failure::Failure;

/// Measures, until Ctrl-C.
pub(super) struct Prober {
    interrupt: Signal,
}

impl Prober {
    /// Has to be called on a runtime.
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self { interrupt: signal(SignalKind::interrupt()).map_err(Failure::Start)? })
    }

    /// How the server answers before any load; `None`: Ctrl-C came first.
    pub(super) async fn unloaded(&mut self, plan: &Plan) -> Result<Option<Unloaded>, Failure> {
        let mut all = Tally::new(plan.work.classes());
        for _ in 0..IN_A_ROW {
            let until = Instant::now() + plan.timeouts.connect + plan.timeouts.response;
            let Some(one) = self.single(plan, until).await? else { return Ok(None) };
            all.merge(&one);
        }
        Ok(Some(Unloaded::new(total(&all))))
    }

    /// Waits until the server is idle again, and says whether it is by then; `None`: Ctrl-C came first.
    pub(super) async fn settle(
        &mut self,
        plan: &Plan,
        unloaded: &Unloaded,
        until: Instant,
    ) -> Result<Option<bool>, Failure> {
        let Some(mut watch) = unloaded.watch() else { return Ok(Some(false)) };
        while Instant::now() < until {
            let Some(one) = self.single(plan, until).await? else { return Ok(None) };
            if watch.enter(&total(&one)) {
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    }

    /// What became of one request, which is dropped if it has not ended by then; `None`: Ctrl-C came first.
    async fn single(&mut self, plan: &Plan, until: Instant) -> Result<Option<Tally>, Failure> {
        let load = Fleet::Here.start(single(plan), None)?;
        while load.tally().total().requests == 0 && !load.is_finished() && Instant::now() < until {
            tokio::select! {
                _ = self.interrupt.recv() => return Ok(None),
                () = sleep(LOOK_EVERY) => {}
            }
        }
        load.cut();
        Ok(Some(load.finish().load.tally))
    }

    /// What ended between the warm-up and the end of the measurement, when the load is cut off; `None`: Ctrl-C came first.
    ///
    /// That requests are counted when they end, and not when they begin, keeps a load that the server does not keep up with from
    /// going on until the server has.
    pub(super) async fn probe(&mut self, plan: Plan, fleet: &Fleet, probe: &Probe) -> Result<Option<Summary>, Failure> {
        let mut load = fleet.start(plan, None)?;
        let measured = self.measure(&mut load, probe).await;
        load.cut();
        load.finish();
        Ok(measured?)
    }

    /// Of a load of which a part is lost, there is no measurement.
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

    /// Lets the load go on until it is so old: others may begin a moment after this was told that they will. `None`: Ctrl-C came first.
    async fn hold(&mut self, load: &Running, until: Duration) -> Option<()> {
        while load.elapsed() < until {
            tokio::select! {
                _ = self.interrupt.recv() => return None,
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

/// How often it is looked whether a single request has ended. Between two of them a server has at least so long for itself.
const LOOK_EVERY: Duration = Duration::from_millis(20);
