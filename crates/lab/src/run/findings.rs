//! What the trials of a run show: figures, ratios, verdicts.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;

use super::Error;
use super::measured::{Measured, Taken};
use crate::experiment::{Figure, Plot, Quotient, Ratio};
use crate::measure::{self, Trial};
use crate::output::TernaryPoints;
use crate::plan::Plan;
use crate::result::{CpuSeries, Entry, FigureResult, FigureRow, RatioResult, RunResult, SPREAD_MAX, Verdict};
use crate::statistics::{median, range};
use crate::verdict;

/// The result, without plots.
pub(super) fn result(plan: &Plan, measured: &Measured) -> Result<RunResult, Error> {
    let (experiment, trials) = (plan.experiment(), &measured.trials);
    let figures = experiment.figures.iter().map(|figure| figure_result(plan, figure, trials));
    let figures = figures.collect::<Result<Vec<_>, _>>()?;
    let mut ratios = IndexMap::new();
    for ratio in &plan.ratios {
        ratios.insert(ratio.name.clone(), ratio_result(plan, ratio, trials)?);
    }
    let entries = entries(plan, &ratios);
    Ok(RunResult {
        name: experiment.name.clone(),
        title: experiment.title.clone(),
        paper: experiment.paper.clone(),
        text: experiment.text.trim().to_owned(),
        verdict: verdict::of_all(ratios.values().map(|ratio| ratio.verdict)),
        quick: plan.options.is_quick,
        changes: plan.changes(),
        rounds: plan.rounds,
        seed: plan.options.seed,
        started: measured.started.clone(),
        seconds: measured.seconds,
        ratios,
        figures,
        entries,
        printed: experiment.printed.clone(),
        deviations: [experiment.deviations.clone(), measured.deviations.clone()].concat(),
        delays: measured.delays.clone(),
        plots: Vec::new(),
        versions: measured.versions.clone(),
        commands: measured.commands.clone(),
        digest: plan.digest(),
    })
}

/// The CPU use of all hosts in all trials.
pub(super) fn cpu_series(trials: &[Taken]) -> Vec<CpuSeries> {
    let of_trial = |taken: &Taken| {
        let series = taken.trial.hosts.iter().map(|(host, used)| CpuSeries {
            variant: taken.variant.clone(),
            round: taken.round,
            host: host.clone(),
            quota: used.quota,
            points: used.points.clone(),
        });
        series.collect::<Vec<_>>()
    };
    trials.iter().flat_map(of_trial).collect()
}

/// The shares of endings in the spans that processes have printed, for plots.
pub(super) fn ternary(plan: &Plan, trials: &[Taken]) -> Vec<TernaryPoints> {
    let processes = plan.experiment().plots.iter().filter_map(|plot| match plot {
        Plot::Ternary { process, .. } => Some(process),
        _ => None,
    });
    let of_process = |process: &String| {
        let lines = trials.iter().filter_map(|taken| Some((&taken.variant, taken.trial.lines.get(process)?)));
        let points = lines.map(|(variant, lines)| TernaryPoints {
            process: process.clone(),
            variant: variant.clone(),
            points: lines.iter().filter_map(shares).collect(),
        });
        points.collect::<Vec<_>>()
    };
    processes.collect::<BTreeSet<_>>().into_iter().flat_map(of_process).collect()
}

/// The shares in a span of `watari watch live --json --states`, in percent.
fn shares(span: &serde_json::Value) -> Option<[f64; 3]> {
    let share = |key: &str| Some(span["shares"][key].as_f64()? * 100.0);
    Some([share("s_normal")?, share("client_abort")?, share("timeout")?])
}

fn figure_result(plan: &Plan, figure: &Figure, trials: &[Taken]) -> Result<FigureResult, Error> {
    let mut rows = Vec::new();
    for variant in plan.variants.iter().filter(|variant| figure.is_of(&variant.key)) {
        let of_variant = trials.iter().filter(|taken| taken.variant == variant.key);
        let values = of_variant.map(|taken| value(&figure.measure, &taken.trial, &figure.name, &variant.key));
        let values = values.map(|value| value.map(finite)).collect::<Result<Vec<_>, _>>()?;
        rows.push(FigureRow {
            variant: variant.key.clone(),
            title: variant.title.clone(),
            matrix: variant.matrix.clone(),
            paper: figure.paper.get(&variant.key).copied(),
            median: median(values.iter().copied().flatten()),
            values,
        });
    }
    Ok(FigureResult { name: figure.name.clone(), unit: figure.unit.clone(), source: figure.source.clone(), rows })
}

fn ratio_result(plan: &Plan, ratio: &Ratio, trials: &[Taken]) -> Result<RatioResult, Error> {
    let measured = |measure: &str, taken: &Taken| value(measure, &taken.trial, &ratio.name, &taken.variant);
    let values = quotients(plan, &ratio.ours, trials, measured)?;
    let mut peers = BTreeMap::new();
    for (peer, quotient) in &ratio.peers {
        peers.insert(peer.clone(), median(quotients(plan, quotient, trials, measured)?.into_iter().flatten()));
    }
    // Of a trial that is too short for a speed, none is known.
    let speeds = quotients(plan, &ratio.ours, trials, |_, taken| Ok(taken.trial.speed.unwrap_or(f64::NAN)))?;
    let ours = median(values.iter().copied().flatten());
    let spread = spread(&values);
    let verdict = ours.map_or(Verdict::Impossible, |ours| verdict::of_ratio(ratio, ours));
    let because = match verdict {
        Verdict::Impossible if values.is_empty() => "The run has none of its variants.".to_owned(),
        Verdict::Impossible => "No round has a value.".to_owned(),
        verdict => ratio.reason(verdict).to_owned(),
    };
    let is_wide = spread.is_some_and(|spread| spread > SPREAD_MAX);
    let spread_reasons = [&ratio.spread_because, &plan.experiment().spread_because];
    let spread_because = spread_reasons.into_iter().find(|reason| is_wide && !reason.is_empty());
    Ok(RatioResult {
        paper: ratio.paper,
        ours,
        peers,
        spread,
        speed_spread: self::spread(&speeds),
        values,
        tolerance: ratio.tolerance,
        at_least: ratio.at_least,
        at_most: ratio.at_most,
        source: ratio.source.clone(),
        because,
        spread_because: spread_because.cloned().unwrap_or_default(),
        verdict,
    })
}

/// The quotient in each round, of what `value` takes out of a trial by a measure. Empty if the run lacks a variant, as quick
/// runs do.
fn quotients(
    plan: &Plan,
    quotient: &Quotient,
    trials: &[Taken],
    value: impl Fn(&str, &Taken) -> Result<f64, Error>,
) -> Result<Vec<Option<f64>>, Error> {
    let side = |side: &str, round| {
        let Some((variant, measure)) = plan.side(side) else { return Ok(None) };
        let taken = trials.iter().find(|taken| taken.variant == variant.key && taken.round == round);
        taken.map(|taken| value(measure, taken)).transpose()
    };
    let values = (1..=plan.rounds).map(|round| {
        let Some(of) = side(&quotient.of, round)? else { return Ok(None) };
        let Some(over) = &quotient.over else { return Ok(Some(of)) };
        Ok(side(over, round)?.map(|over| of / over))
    });
    let values = values.collect::<Result<Vec<_>, Error>>()?;
    Ok(values.into_iter().flatten().map(finite).collect())
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn value(measure: &str, trial: &Trial, name: &str, variant: &str) -> Result<f64, Error> {
    measure::value(measure, trial).map_err(|error| Error::Measure { place: format!("\"{name}\" of {variant}"), error })
}

/// The ratios that are rows of the paper, and the rows that cannot be measured. Beyond the papers, all ratios.
fn entries(plan: &Plan, ratios: &IndexMap<String, RatioResult>) -> Vec<Entry> {
    let is_beyond = plan.experiment().paper.is_none();
    let rows = ratios.iter().filter(|(_, ratio)| is_beyond || !ratio.source.is_empty());
    let measured = rows.map(|(name, ratio)| Entry {
        source: if ratio.source.is_empty() { name.clone() } else { format!("{}: {name}", ratio.source) },
        verdict: ratio.verdict,
        why: ratio.because.clone(),
    });
    let impossible = plan.experiment().impossible.iter().map(|row| Entry {
        source: row.source.clone(),
        verdict: Verdict::Impossible,
        why: row.why.clone(),
    });
    measured.chain(impossible).collect()
}

/// The largest minus the least, divided by the median. None of one value, and if the median is 0.
fn spread(values: &[Option<f64>]) -> Option<f64> {
    let values: Vec<_> = values.iter().copied().flatten().collect();
    let (median, (least, most)) = (median(values.iter().copied())?, range(values.iter().copied())?);
    finite((most - least) / median.abs()).filter(|_| values.len() > 1)
}

#[cfg(test)]
mod tests;
