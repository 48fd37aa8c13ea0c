#![allow(clippy::unwrap_used)]

use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use watari_bench_engine::ending::EndingKind;
use watari_bench_engine::histogram::Encoded;
use watari_bench_engine::sample::{Family, RequestSample};
use watari_bench_engine::test_samples::{request, tally};
use watari_bench_report::summary::Run;

use super::*;

#[test]
fn the_same_thing_measured_twice_mostly_does_not_differ() {
    let differing = (0..SEEDS).filter(|seed| {
        let comparison = compare(&[one_run(*seed, 1.0)], &[one_run(seed + 1_000, 1.0)], &options()).unwrap();
        is_different(&comparison)
    });
    let differing = differing.count() as u64;
    assert!(differing <= SEEDS / 10, "{differing} of {SEEDS}");
}

#[test]
fn a_tenth_more_is_found() {
    for seed in 0..SEEDS {
        let comparison = compare(&[one_run(seed, 1.0)], &[one_run(seed + 1_000, 1.1)], &options()).unwrap();
        assert_eq!(verdict(&comparison, "latency_ms.mean"), Verdict::Worse, "seed {seed}: {comparison}");
        assert_eq!(verdict(&comparison, "latency_ms.p50"), Verdict::Worse, "seed {seed}: {comparison}");
        assert_eq!(verdict(&comparison, "requests_per_s"), Verdict::Worse, "seed {seed}: {comparison}");
    }
}

#[test]
fn what_differs_from_run_to_run_is_no_difference() {
    let differing = (0..SEEDS)
        .filter(|seed| is_different(&compare(&uneven(*seed, 1.0), &uneven(seed + 1_000, 1.0), &options()).unwrap()));
    let differing = differing.count() as u64;
    assert!(differing <= SEEDS / 10, "{differing} of {SEEDS}");
}

#[test]
fn runs_that_all_differ_are_different() {
    let comparison = compare(&uneven(1, 1.0), &uneven(2, 0.8), &options()).unwrap();
    assert_eq!(comparison.drawn, Drawn::Runs);
    assert_eq!(verdict(&comparison, "latency_ms.p50"), Verdict::Better);
    assert_eq!(verdict(&comparison, "requests_per_s"), Verdict::Better);
}

#[test]
fn a_small_effect_is_nothing_to_care_for() {
    let options = Options { min_effect: 0.5, ..options() };
    let comparison = compare(&[one_run(1, 1.0)], &[one_run(2, 1.1)], &options).unwrap();
    assert!(!is_different(&comparison), "{comparison}");
}

#[test]
fn the_same_seed_gives_the_same_comparison() {
    let (a, b) = ([one_run(1, 1.0)], [one_run(2, 1.02)]);
    assert_eq!(compare(&a, &b, &options()), compare(&a, &b, &options()));
}

#[test]
fn a_short_run_says_nothing() {
    let mut short = one_run(1, 1.0);
    short.total.seconds = 9.9;
    let comparison = compare(&[short], &[one_run(2, 2.0)], &options()).unwrap();
    assert!(comparison.figures.iter().all(|compared| compared.verdict == Verdict::Unknown), "{comparison}");
    assert!(comparison.notes.iter().any(|note| note.contains("too short")), "{comparison}");
}

#[test]
fn what_cannot_be_read_is_named() {
    assert_eq!(compare(&[], &[one_run(1, 1.0)], &options()).unwrap_err(), CompareError::NoRun);
    let mut damaged = one_run(2, 1.0);
    damaged.series.points[3].latency = Some(Encoded::from("!".to_owned()));
    let error = compare(&[one_run(1, 1.0)], &[damaged], &options()).unwrap_err();
    assert_eq!(error.to_string(), "run 1 of side B, interval 4 of its series: a histogram is not base64");
}

#[test]
fn people_see_what_is_better() {
    let text = compare(&uneven(1, 1.0), &uneven(2, 0.8), &options()).unwrap().to_string();
    let mut lines = text.lines();
    assert!(lines.next().unwrap().ends_with("change     from       to  B is"), "{text}");
    assert!(lines.next().unwrap().starts_with("requests_per_s  ") && text.contains("  better\n"), "{text}");
    assert!(
        text.contains(
            "medians of runs (A: 5, B: 5); `from` and `to`: the change, with 95% confidence for all figures together"
        ),
        "{text}"
    );
}

/// Five runs. The speed of each whole run varies by up to 5 %.
fn uneven(seed: u64, factor: f64) -> Vec<Summary> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..5).map(|run| one_run(seed * 10 + run, factor * random.random_range(0.95..1.05))).collect()
}

/// 30 s of successive requests. Each takes 50 ms times `factor`, half of it at random. Every third second is slower.
fn one_run(seed: u64, factor: f64) -> Summary {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut tally = tally();
    let mut now = Duration::ZERO;
    while now < Duration::from_secs(30) {
        let slow = if now.as_secs().is_multiple_of(3) { 1.2 } else { 1.0 };
        let took = Duration::from_secs_f64(0.05 * factor * slow * random.random_range(0.75..1.25));
        let sample = request(0, Family::Ipv4, None, EndingKind::Normal);
        tally.request(&RequestSample { due: now, started: now, ended: now + took, ..sample });
        now += took;
    }
    Summary::new(Run::default(), now, &tally)
}

fn is_different(comparison: &Comparison) -> bool {
    comparison.figures.iter().any(|compared| matches!(compared.verdict, Verdict::Better | Verdict::Worse))
}

fn verdict(comparison: &Comparison, figure: &str) -> Verdict {
    comparison.figures.iter().find(|compared| compared.figure == figure).unwrap().verdict
}

fn options() -> Options {
    Options { replicates: 1_000, ..Options::default() }
}

const SEEDS: u64 = 30;
