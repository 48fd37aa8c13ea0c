//! Moves transfers so that origins have equal loads.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::governor::look::{Look, OriginLoad};
use crate::governor::settings::{Metric, Unequal};
use crate::governor::views::{Availability, Cause, OriginId, TransferView};

/// Whether transfers are being moved to make loads equal.
///
/// ```text
///             most loaded > `high` times least loaded
///   at rest --------------------------------------------> acting: moves as long as each has a gain
///           <--------------------------------------------
///             most loaded <= `low` times least loaded
/// ```
///
/// A move has a gain if the target's load after the move is lower than the source's load now, by the configured factor.
/// So there is never a reason to move back. The condition must hold for the present loads and for the averages.
/// Otherwise loads that swing would move transfers back and forth.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    averages: HashMap<OriginId, f64>,
    averaged_at: Option<Instant>,
    acting: bool,
    /// The time when the metric will show the effect of the last moves.
    settled_at: Option<Instant>,
}

impl Balance {
    /// Orders transfers from origins with higher loads to those with lower ones, the transfers with the most bytes left
    /// first.
    pub(crate) fn look(&mut self, look: &mut Look<'_>, unequal: &Unequal) {
        self.average(look, unequal);
        if self.settled_at.is_some_and(|at| look.now < at) {
            return;
        }
        while self.acts(look, unequal)
            && let Some((view, to)) = next(look, unequal.metric)
            && look.order(view, to, Cause::Unequal)
        {
            if unequal.metric != Metric::Connections {
                self.settled_at = Some(look.now + unequal.settle);
            }
            if unequal.metric == Metric::Response {
                return;
            }
        }
    }

    /// Updates the exponential averages of the loads. The average of a new origin begins with its present load.
    fn average(&mut self, look: &mut Look<'_>, unequal: &Unequal) {
        let passed =
            self.averaged_at.replace(look.now).map_or(Duration::ZERO, |at| look.now.saturating_duration_since(at));
        let kept = (-passed.div_duration_f64(unequal.settle.max(SETTLE_MIN))).exp();
        let before = std::mem::take(&mut self.averages);
        for origin in &mut look.origins {
            let load = load(unequal.metric, origin);
            let average = before.get(&origin.id).map_or(load, |before| before * kept + load * (1.0 - kept));
            origin.average = average;
            self.averages.insert(origin.id, average);
        }
    }

    fn acts(&mut self, look: &Look<'_>, unequal: &Unequal) -> bool {
        let most = up(look).map(|origin| load_at_least(unequal.metric, origin)).fold(0.0, f64::max);
        let least = up(look).map(|origin| load_at_most(unequal.metric, origin)).fold(f64::INFINITY, f64::min);
        let factor = if self.acting { unequal.low } else { unequal.high };
        self.acting = most > factor * least;
        self.acting
    }
}

/// Replaces a settling time of zero.
const SETTLE_MIN: Duration = Duration::from_nanos(1);

/// The transfer with the most bytes left whose move from the most loaded possible origin has a gain, and its target.
fn next<'a>(look: &Look<'a>, metric: Metric) -> Option<(&'a TransferView, OriginId)> {
    let mut origins: Vec<_> = up(look).collect();
    origins.sort_by(|a, b| load(metric, a).total_cmp(&load(metric, b)));
    origins.iter().rev().find_map(|from| {
        let settled = look.transfers.iter().filter(|view| view.origin == from.id && look.is_settled(view));
        let settled: Vec<_> = settled.collect();
        let worth = origins.iter().take_while(|to| gain(metric, from, to, 0.0) >= look.damping.gain_min);
        worth.filter(|_| !settled.is_empty()).find_map(|to| best(look, metric, from, to, &settled))
    })
}

fn best<'a>(
    look: &Look<'a>,
    metric: Metric,
    from: &OriginLoad,
    to: &OriginLoad,
    settled: &[&'a TransferView],
) -> Option<(&'a TransferView, OriginId)> {
    let gains = |view: &TransferView| {
        let rate = look.tracks[&view.id].pace.last.map(|window| window.rate);
        let rate = if metric == Metric::Rate { rate } else { Some(0.0) };
        rate.is_some_and(|rate| gain(metric, from, to, rate) >= look.damping.gain_min)
    };
    let movable = settled.iter().filter(|view| look.may_go(view, to.id) && gains(view));
    movable.max_by_key(|view| view.remaining).map(|view| (*view, to.id))
}

fn up<'a>(look: &'a Look<'_>) -> impl Iterator<Item = &'a OriginLoad> {
    look.origins.iter().filter(|origin| origin.availability == Availability::Up)
}

fn load(metric: Metric, origin: &OriginLoad) -> f64 {
    match metric {
        Metric::Connections => origin.connections / origin.weight,
        Metric::Response => origin.response.as_secs_f64(),
        Metric::Rate => origin.rate / origin.weight,
    }
}

/// The lower of the present load and the average.
fn load_at_least(metric: Metric, origin: &OriginLoad) -> f64 {
    load(metric, origin).min(origin.average)
}

/// The higher of the present load and the average.
fn load_at_most(metric: Metric, origin: &OriginLoad) -> f64 {
    load(metric, origin).max(origin.average)
}

/// The load of `from` now divided by the load of `to` after it gets a transfer of this `rate`. A move's effect on
/// response times cannot be predicted, so the present ones are compared.
fn gain(metric: Metric, from: &OriginLoad, to: &OriginLoad, rate: f64) -> f64 {
    let then = match metric {
        Metric::Connections => (to.connections + 1.0) / to.weight,
        Metric::Response => load(metric, to),
        Metric::Rate => (to.rate + rate) / to.weight,
    };
    load_at_least(metric, from) / then.max(load_at_most(metric, to))
}
