//! What the trials of a run show: figures, ratios, verdicts.

use std::collections::BTreeMap;
use std::time::Instant;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Error;
use crate::experiment::{Figure, Plot, Quotient, Ratio};
use crate::measure::{self, Trial};
use crate::output::TernaryPoints;
use crate::plan::{Plan, PlannedVariant};
use crate::result::{CpuSeries, Entry, FigureResult, FigureRow, PrintedFigure, RatioResult, RunResult, Verdict};
use crate::statistics::{median, range};
use crate::verdict;

/// A trial of a variant.
pub(super) struct Taken {
    pub(super) variant: String,
    pub(super) round: u32,
    pub(super) trial: Trial,
}

/// The result, without commands, delays and plots.
pub(super) fn result(plan: &Plan, trials: &[Taken], started: (Instant, OffsetDateTime)) -> Result<RunResult, Error> {
    let experiment = plan.experiment();
    let figures = experiment.figures.iter().map(|figure| figure_result(plan, figure, trials));
    let figures = figures.collect::<Result<Vec<_>, _>>()?;
    let mut ratios = BTreeMap::new();
    for ratio in &experiment.ratios {
        ratios.insert(ratio.name.clone(), ratio_result(plan, ratio, trials)?);
    }
    let entries = entries(plan, &ratios);
    Ok(RunResult {
        name: experiment.name.clone(),
        title: experiment.title.clone(),
        paper: experiment.paper.clone(),
        text: experiment.text.trim().to_owned(),
        verdict: verdict::of_all(entries.iter().map(|entry| entry.verdict)),
        quick: plan.options.is_quick,
        rounds: plan.rounds,
        seed: plan.options.seed,
        started: started.1.format(&Rfc3339).unwrap_or_default(),
        seconds: started.0.elapsed().as_secs_f64(),
        ratios,
        figures,
        entries,
        printed: experiment.printed.iter().map(PrintedFigure::from).collect(),
        deviations: experiment.deviations.clone(),
        delays: Vec::new(),
        plots: Vec::new(),
        versions: BTreeMap::new(),
        commands: Vec::new(),
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
            variant: variant.clone(),
            points: lines.iter().filter_map(shares).collect(),
        });
        points.collect::<Vec<_>>()
    };
    processes.flat_map(of_process).collect()
}

/// The shares in a span of `watari watch live --json --states`, in percent.
fn shares(span: &serde_json::Value) -> Option<[f64; 3]> {
    let share = |key: &str| Some(span["shares"][key].as_f64()? * 100.0);
    Some([share("s_normal")?, share("client_abort")?, share("timeout")?])
}

fn figure_result(plan: &Plan, figure: &Figure, trials: &[Taken]) -> Result<FigureResult, Error> {
    let has = |variant: &&PlannedVariant| figure.variants.is_empty() || figure.variants.contains(&variant.key);
    let mut rows = Vec::new();
    for variant in plan.variants.iter().filter(has) {
        let of_variant = trials.iter().filter(|taken| taken.variant == variant.key);
        let values = of_variant.map(|taken| value(&figure.measure, &taken.trial, &figure.name, &variant.key));
        let values = values.collect::<Result<Vec<_>, _>>()?;
        rows.push(FigureRow {
            variant: variant.key.clone(),
            title: variant.title.clone(),
            matrix: variant.matrix.clone(),
            paper: figure.paper.get(&variant.key).copied(),
            median: median(&values),
            values,
        });
    }
    Ok(FigureResult { name: figure.name.clone(), unit: figure.unit.clone(), source: figure.source.clone(), rows })
}

fn ratio_result(plan: &Plan, ratio: &Ratio, trials: &[Taken]) -> Result<RatioResult, Error> {
    let values = quotients(plan, &ratio.ours, &ratio.name, trials)?;
    let mut peers = BTreeMap::new();
    for (peer, quotient) in &ratio.peers {
        peers.insert(peer.clone(), median(&quotients(plan, quotient, &ratio.name, trials)?));
    }
    let ours = median(&values);
    let verdict = ours.map_or(Verdict::Impossible, |ours| verdict::of_ratio(ratio, ours));
    Ok(RatioResult {
        paper: ratio.paper,
        ours,
        peers,
        spread: ours.and_then(|median| spread(&values, median)),
        values,
        at_least: ratio.at_least,
        at_most: ratio.at_most,
        source: ratio.source.clone(),
        because: if verdict == Verdict::Differs { ratio.because.clone() } else { String::new() },
        verdict,
    })
}

/// The quotient in each round. None in a quick run without one of the variants.
fn quotients(plan: &Plan, quotient: &Quotient, name: &str, trials: &[Taken]) -> Result<Vec<f64>, Error> {
    let rounds = 1..=plan.rounds;
    let values = rounds.map(|round| {
        let Some(of) = side(plan, &quotient.of, name, trials, round)? else { return Ok(None) };
        let Some(over) = &quotient.over else { return Ok(Some(of)) };
        Ok(side(plan, over, name, trials, round)?.map(|over| of / over))
    });
    Ok(values.collect::<Result<Vec<_>, Error>>()?.into_iter().flatten().collect())
}

fn side(plan: &Plan, side: &str, name: &str, trials: &[Taken], round: u32) -> Result<Option<f64>, Error> {
    let Some((variant, measure)) = plan.side(side) else { return Ok(None) };
    let taken = trials.iter().find(|taken| taken.variant == variant.key && taken.round == round);
    taken.map(|taken| value(measure, &taken.trial, name, &variant.key)).transpose()
}

fn value(measure: &str, trial: &Trial, name: &str, variant: &str) -> Result<f64, Error> {
    measure::value(measure, trial).map_err(|error| Error::Measure { place: format!("\"{name}\" of {variant}"), error })
}

fn entries(plan: &Plan, ratios: &BTreeMap<String, RatioResult>) -> Vec<Entry> {
    let measured = ratios.iter().map(|(name, ratio)| Entry {
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

fn spread(values: &[f64], median: f64) -> Option<f64> {
    let (least, most) = range(values)?;
    (values.len() > 1 && median != 0.0).then(|| (most - least) / median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_has_no_spread() {
        assert_eq!(spread(&[2.0], 2.0), None);
        assert_eq!(spread(&[1.0, 2.0, 3.0], 2.0), Some(1.0));
    }
}
