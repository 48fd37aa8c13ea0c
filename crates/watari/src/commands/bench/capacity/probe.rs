//! One measurement: a load that is held, and what ends while it is measured.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;
use watari_bench::capacity::search::Probe;
use watari_bench::fleet::{Fleet, LostError, Running, Taken};
use watari_bench::plan::Plan;
use watari_bench::summary::{Run, Summary};

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
