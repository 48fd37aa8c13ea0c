//! Makes the measurements that a search asks for.

use std::io;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use watari_bench_engine::plan::Plan;
use watari_bench_engine::schedule::RateError;
use watari_bench_fleet::fleet::{ChooseError, LostError, Machines, StartError};
use watari_bench_report::expect::Condition;

use super::curve::{Curve, Point};
use super::found::Found;
use super::idle::Unloaded;
use super::judge::judge;
use super::line::Line;
use super::probe::{ProbeError, Prober};
use super::quantity::Quantity;
use super::search::{self, Next, Probe, Search};

/// A search for the capacity of a server.
pub struct CapacitySearch<'a> {
    /// Its range and precision.
    pub plan: search::Plan,
    pub quantity: Quantity,
    /// The conditions of each measurement.
    pub conditions: &'a [Condition],
    /// The longest wait between measurements until the server is idle.
    pub settle: Duration,
    /// The loads differ from this plan only in their pace.
    pub load: Plan,
    pub machines: &'a Machines,
}

/// A search failed.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    #[error(transparent)]
    Plan(#[from] search::PlanError),
    /// A level is not a rate.
    #[error(transparent)]
    Rate(#[from] RateError),
    #[error(transparent)]
    Choose(#[from] ChooseError),
    #[error(transparent)]
    Start(#[from] StartError),
    /// A part of a load was lost.
    #[error(transparent)]
    Lost(#[from] LostError),
    /// The caller cannot print a measurement.
    #[error("cannot write the output: {0}")]
    Output(io::Error),
}

impl From<ProbeError> for SearchError {
    fn from(error: ProbeError) -> Self {
        match error {
            ProbeError::Start(error) => Self::Start(error),
            ProbeError::Lost(error) => Self::Lost(error),
        }
    }
}

impl CapacitySearch<'_> {
    /// Searches until there is a result, or until `interrupted`. Passes each measurement to `each`.
    pub async fn run(
        self,
        interrupted: CancellationToken,
        each: impl FnMut(&Line<'_>) -> io::Result<()>,
    ) -> Result<Found, SearchError> {
        let mut search = Search::new(self.plan.clone())?;
        let mut prober = Prober::new(interrupted);
        let unloaded = prober.unloaded(&self.load).await?;
        let curve = match &unloaded {
            Some(unloaded) if unloaded.latency_ms.is_some() => {
                Measuring { options: &self, prober, unloaded }.measure(&mut search, each).await?
            }
            _ => Curve::new(self.quantity.unit()),
        };
        Ok(Found::new(self.conditions, unloaded, search.finding(), curve))
    }
}

/// A search in progress.
struct Measuring<'a> {
    options: &'a CapacitySearch<'a>,
    prober: Prober,
    unloaded: &'a Unloaded,
}

impl Measuring<'_> {
    /// Measures the levels that the search asks for, until it has its result or is interrupted.
    async fn measure(
        mut self,
        search: &mut Search,
        mut each: impl FnMut(&Line<'_>) -> io::Result<()>,
    ) -> Result<Curve, SearchError> {
        let mut curve = Curve::new(self.options.quantity.unit());
        while let Next::Probe(probe) = search.poll() {
            let plan = Plan { pace: self.options.quantity.pace(probe.level)?, ..self.options.load.clone() };
            let Some(point) = self.point(plan, &probe, curve.points.is_empty()).await? else { break };
            each(&Line { run: probe.run, unit: curve.unit, point: &point }).map_err(SearchError::Output)?;
            search.report(point.outcome);
            curve.points.push(point);
        }
        Ok(curve)
    }

    /// One measurement, after the server is idle again (except for the first one). `None`: it was interrupted.
    async fn point(&mut self, plan: Plan, probe: &Probe, first: bool) -> Result<Option<Point>, SearchError> {
        let CapacitySearch { quantity, conditions, settle, machines, .. } = self.options;
        let until = Instant::now() + *settle;
        let settled = if first { Some(true) } else { self.prober.settle(&plan, self.unloaded, until).await? };
        let Some(idle) = settled else { return Ok(None) };
        let fleet = machines.choose(&plan)?.fleet;
        let Some(summary) = self.prober.probe(plan, &fleet, probe).await? else { return Ok(None) };
        let judged = judge(probe.level, &summary, conditions, quantity.arrivals());
        Ok(Some(Point { idle, ..judged }))
    }
}
