//! The search: its options, its course, and its result.

use std::fmt;
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde::Serialize;
use tokio::runtime::Builder;
use watari_bench::capacity::chart::Chart;
use watari_bench::capacity::curve::{Curve, Point, Unit};
use watari_bench::capacity::idle::Unloaded;
use watari_bench::capacity::judge::{Arrivals, judge};
use watari_bench::capacity::search::{Ended, Finding, LevelStep, Next, Outcome, Plan, Probe, Search};
use watari_bench::capacity::sentence::sentence;
use watari_bench::duration::Span;
use watari_bench::expect::Condition;
use watari_bench::plan::{self, Pace};
use watari_bench::schedule::{Rate, Schedule, Spacing};
use watari_bench::summary::EndingCount;

use super::probe::Prober;
use crate::commands::bench::options::FleetOptions;
use crate::commands::print;
use crate::failure::Failure;

/// The range and precision of the search
#[derive(Args)]
#[command(next_help_heading = "Search")]
pub(super) struct SearchOptions {
    /// A condition that the server must meet; repeatable: p99<50ms, failures<0.1%
    #[arg(long, value_name = "CONDITION")]
    pub(super) expect: Vec<Condition>,
    /// The quantity to raise: due requests per second (an open loop), or connections in progress (a closed loop)
    #[arg(long, value_enum, default_value = "rate")]
    by: By,
    /// The first level [default: 100; by connections 8]
    #[arg(long, value_name = "LEVEL")]
    from: Option<u64>,
    /// The highest level to try [default: 1000000; by connections 10000]
    #[arg(long, value_name = "LEVEL")]
    to: Option<u64>,
    /// The step to the next level, until one misses a condition: x1.5, +100
    #[arg(long, default_value = "x2")]
    step: LevelStep,
    /// The precision of the result: its distance to a level that misses a condition, as a share of that level
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    resolution: f64,
    /// Measurements of each level, of which the majority decides; an odd number
    #[arg(long, value_name = "N", default_value_t = 3)]
    repeats: u32,
    /// The maximum number of measurements in all
    #[arg(long, value_name = "N", default_value_t = 60)]
    runs: u32,
    /// The warm-up time of each level before its measurement
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    warmup: Span,
    /// The time of each measurement
    #[arg(short = 'd', long, value_name = "DURATION", default_value = "10s")]
    duration: Span,
    /// The maximum time to wait between measurements until the server is idle
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    settle: Span,
    /// By rate: the maximum number of connections in progress
    #[arg(short = 'c', long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// By rate: random intervals (a Poisson process), which the seed reproduces
    #[arg(long, value_name = "SEED")]
    poisson: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Rate,
    Connections,
}

/// The result of a search, with its measurements.
#[derive(Serialize)]
pub(super) struct Found {
    /// The conditions of each measurement.
    expect: Vec<String>,
    /// How single requests were answered before. `null`: the search was interrupted earlier.
    unloaded: Option<Unloaded>,
    pub(super) finding: Finding,
    /// Requests answered per second at the level that was found.
    pub(super) throughput_per_s: Option<f64>,
    #[serde(flatten)]
    pub(super) curve: Curve,
}

impl SearchOptions {
    /// Searches with loads that differ from `base` only in their pace. If `tell` is set, prints each measurement.
    pub(super) fn run(&self, base: plan::Plan, fleet: &FleetOptions, tell: bool) -> Result<Found, Failure> {
        let plan = self.plan();
        // Refuses, before a long search, a highest level that the machine does not allow.
        fleet.fleet(&plan::Plan { pace: self.pace(plan.to)?, ..base.clone() })?;
        let mut search = Search::new(plan).map_err(|error| Failure::Usage(error.to_string()))?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Start)?;
        runtime.block_on(async {
            let mut prober = Prober::new()?;
            let unloaded = prober.unloaded(&base).await?;
            let curve = match &unloaded {
                Some(unloaded) if unloaded.latency_ms.is_some() => {
                    Measuring { options: self, fleet, tell, prober, unloaded }.measure(&mut search, base).await?
                }
                _ => Curve::new(self.unit()),
            };
            Ok(Found::new(&self.expect, unloaded, search.finding(), curve))
        })
    }

    fn plan(&self) -> Plan {
        Plan {
            from: self.from(),
            to: self.to.unwrap_or(match self.by {
                By::Rate => 1_000_000,
                By::Connections => 10_000,
            }),
            step: self.step,
            resolution: self.resolution,
            repeats: self.repeats,
            runs_max: self.runs,
            warmup: self.warmup.get(),
            duration: self.duration.get(),
        }
    }

    pub(super) fn from(&self) -> u64 {
        self.from.unwrap_or(match self.by {
            By::Rate => 100,
            By::Connections => 8,
        })
    }

    /// The pace of a level.
    #[allow(clippy::cast_precision_loss, reason = "levels are under 2^53")]
    pub(super) fn pace(&self, level: u64) -> Result<Pace, Failure> {
        if self.by == By::Connections {
            return Ok(Pace::Closed { connections: level as usize });
        }
        let rate = Rate::constant(level as f64).map_err(|error| Failure::Usage(error.to_string()))?;
        let spacing = self.poisson.map_or(Spacing::Even, |seed| Spacing::Poisson { seed });
        Ok(Pace::Open { schedule: Schedule::new(rate, spacing), connections_max: self.connections as usize })
    }

    fn unit(&self) -> Unit {
        match self.by {
            By::Rate => Unit::RequestsPerSecond,
            By::Connections => Unit::Connections,
        }
    }

    fn arrivals(&self) -> Option<Arrivals> {
        let of_rate = if self.poisson.is_some() { Arrivals::Random } else { Arrivals::Even };
        (self.by == By::Rate).then_some(of_rate)
    }
}

/// A search in progress.
struct Measuring<'a> {
    options: &'a SearchOptions,
    fleet: &'a FleetOptions,
    tell: bool,
    prober: Prober,
    unloaded: &'a Unloaded,
}

impl Measuring<'_> {
    /// Measures the levels that the search asks for, until it has its result or until Ctrl-C.
    async fn measure(mut self, search: &mut Search, mut base: plan::Plan) -> Result<Curve, Failure> {
        let mut curve = Curve::new(self.options.unit());
        while let Next::Probe(probe) = search.poll() {
            base.pace = self.options.pace(probe.level)?;
            let Some(point) = self.point(&base, &probe, curve.points.is_empty()).await? else { break };
            if self.tell {
                print(Line { run: probe.run, unit: curve.unit, point: &point })?;
            }
            search.report(point.outcome);
            curve.points.push(point);
        }
        Ok(curve)
    }

    /// One measurement, after the server is idle again (except for the first one). `None`: Ctrl-C came first.
    async fn point(&mut self, plan: &plan::Plan, probe: &Probe, first: bool) -> Result<Option<Point>, Failure> {
        let until = Instant::now() + self.options.settle.get();
        let settled = if first { Some(true) } else { self.prober.settle(plan, self.unloaded, until).await? };
        let Some(idle) = settled else { return Ok(None) };
        let (fleet, _) = self.fleet.choose(plan)?;
        let Some(summary) = self.prober.probe(plan.clone(), &fleet, probe).await? else { return Ok(None) };
        let judged = judge(probe.level, &summary, &self.options.expect, self.options.arrivals());
        Ok(Some(Point { idle, ..judged }))
    }
}

impl Found {
    #[allow(clippy::cast_precision_loss, reason = "levels are under 2^53")]
    fn new(conditions: &[Condition], unloaded: Option<Unloaded>, finding: Finding, curve: Curve) -> Self {
        let answers = unloaded.as_ref().is_none_or(|unloaded| unloaded.latency_ms.is_some());
        let finding = if answers { finding } else { Finding { ended: Ended::Unanswered, ..finding } };
        let at = |level| curve.levels().into_iter().find(|measured| measured.level == level);
        let throughput_per_s = finding.level.and_then(at).map(|level| match curve.unit {
            // Requests that queued up in the warm-up may have been answered on top of those that are due. The server
            // does not sustain that throughput.
            Unit::RequestsPerSecond => level.throughput_per_s.min(level.level as f64),
            Unit::Connections => level.throughput_per_s,
        });
        let expect = conditions.iter().map(ToString::to_string).collect();
        Self { expect, unloaded, finding, throughput_per_s, curve }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.finding.ended == Ended::Unanswered {
            let endings = self.unloaded.iter().flat_map(|unloaded| &unloaded.endings_at);
            for EndingCount { kind, phase, side, count } in endings {
                writeln!(f, "{count} single requests: {kind} ({phase}, {side})")?;
            }
        } else {
            writeln!(f, "{}", Chart { curve: &self.curve, found: self.finding.level })?;
        }
        writeln!(f, "{}", sentence(&self.finding, &self.curve))
    }
}

/// A measurement, in a line.
struct Line<'a> {
    run: u32,
    unit: Unit,
    point: &'a Point,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { level, throughput_per_s, p99_ms, failures, outcome, idle, missed, .. } = self.point;
        let p99 = p99_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2} ms"));
        let outcome = match outcome {
            Outcome::Met => "met",
            Outcome::Missed => "missed",
            Outcome::Void => "void",
        };
        let (unit, failed) = (self.unit.name(), 100.0 * failures);
        write!(
            f,
            "{:>3}. {level} {unit}: {throughput_per_s:.1} answered/s, p99 {p99}, {failed:.2} % failed",
            self.run
        )?;
        writeln!(f, ": {outcome}")?;
        if !idle {
            writeln!(f, "     the server was not idle before")?;
        }
        missed.iter().try_for_each(|missed| writeln!(f, "     {missed}"))
    }
}
