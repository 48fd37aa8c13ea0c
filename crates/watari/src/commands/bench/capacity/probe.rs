//! One measurement: a load that is held, and what ends while it is measured.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;
use watari_bench::capacity::search::Probe;
use watari_bench::load::Load;
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
    pub(super) async fn probe(&mut self, plan: Plan, probe: &Probe) -> Result<Option<Summary>, Failure> {
        let mut load = Load::start(plan, None).map_err(|error| Failure::Usage(error.to_string()))?;
        let measured = async {
            self.hold(probe.warmup).await?;
            let from = load.elapsed();
            drop(load.take());
            self.hold(probe.duration).await?;
            let elapsed = load.elapsed().saturating_sub(from);
            Some(Summary::new(Run::default(), elapsed, &load.take()))
        };
        let summary = measured.await;
        load.cut();
        load.finish();
        Ok(summary)
    }

    /// Lets time pass; `None`: Ctrl-C came first.
    async fn hold(&mut self, time: Duration) -> Option<()> {
        tokio::select! {
            _ = self.interrupt.recv() => None,
            () = sleep(time) => Some(()),
        }
    }
}
