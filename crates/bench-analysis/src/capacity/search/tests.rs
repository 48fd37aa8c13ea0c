#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::Outcome::{Met, Missed, Void};
use super::*;

fn plan(from: u64, to: u64) -> Plan {
    Plan {
        from,
        to,
        step: LevelStep::Factor(2.0),
        resolution: 0.05,
        repeats: 1,
        runs_max: 1000,
        warmup: Duration::from_secs(5),
        duration: Duration::from_mins(1),
    }
}

/// Drives a search with a script: the levels that it must ask for, and their outcomes. The search must then be done.
fn follow(plan: Plan, script: &[(u64, Outcome)]) -> Finding {
    let mut search = Search::new(plan).unwrap();
    for (at, (level, outcome)) in script.iter().enumerate() {
        match search.poll() {
            Next::Probe(probe) => assert_eq!((probe.level, probe.run as usize), (*level, at + 1), "line {at}"),
            Next::Done(finding) => panic!("done before line {at}: {finding:?}"),
        }
        search.report(*outcome);
    }
    match search.poll() {
        Next::Done(finding) => finding,
        Next::Probe(probe) => panic!("not done, but asks for {probe:?}"),
    }
}

/// Drives a search to its end. `server` judges each level.
fn drive(plan: Plan, mut server: impl FnMut(u64) -> Outcome) -> Finding {
    let mut search = Search::new(plan).unwrap();
    loop {
        match search.poll() {
            Next::Probe(probe) => search.report(server(probe.level)),
            Next::Done(finding) => return finding,
        }
    }
}

fn finding(level: Option<u64>, missed: Option<u64>, runs: u32, ended: Ended) -> Finding {
    Finding { level, confirmed: level.is_some(), missed, noisy: Vec::new(), runs, ended }
}

#[test]
fn every_arrow_of_the_picture() {
    // Climb, bisect.
    let script = [(100, Met), (200, Met), (400, Missed), (300, Met), (350, Missed), (325, Missed), (312, Met)];
    assert_eq!(follow(plan(100, 5000), &script), finding(Some(312), Some(325), 7, Ended::Found));

    // Climb to the highest level.
    let script = [(100, Met), (200, Met), (250, Met)];
    assert_eq!(follow(plan(100, 250), &script), finding(Some(250), None, 3, Ended::HighestMet));

    // Descend, bisect.
    let script = [(8, Missed), (4, Missed), (2, Met), (3, Met)];
    assert_eq!(follow(plan(8, 100), &script), finding(Some(3), Some(4), 4, Ended::Found));

    // Descend to the end.
    let script = [(3, Missed), (2, Missed), (1, Missed)];
    assert_eq!(follow(plan(3, 100), &script), finding(None, Some(1), 3, Ended::LowestMissed));

    // The search makes no more measurements than the plan allows.
    let script = [(100, Met), (200, Missed)];
    let expected = finding(Some(100), Some(200), 2, Ended::Unfinished);
    assert_eq!(follow(Plan { runs_max: 2, ..plan(100, 5000) }, &script), expected);
}

#[test]
fn increments_go_up_and_down() {
    let plan = |from| Plan { step: LevelStep::Increment(100), resolution: 0.5, ..plan(from, 1000) };
    let up = [(100, Met), (200, Met), (300, Missed)];
    assert_eq!(follow(plan(100), &up), finding(Some(200), Some(300), 3, Ended::Found));
    let down = [(250, Missed), (150, Missed), (50, Met), (100, Met)];
    assert_eq!(follow(plan(250), &down), finding(Some(100), Some(150), 4, Ended::Found));
}

#[test]
fn a_level_that_is_noisy_is_repeated() {
    let plan = Plan { repeats: 3, resolution: 0.5, ..plan(100, 5000) };
    // Missed by most; met by most.
    let script = [
        (100, Met),
        (200, Missed),
        (200, Met),
        (200, Met),
        (400, Missed),
        (400, Met),
        (400, Missed),
        (300, Missed),
        (300, Missed),
    ];
    let noisy = vec![200, 400];
    assert_eq!(follow(plan, &script), Finding { noisy, ..finding(Some(200), Some(300), 9, Ended::Found) });
}

#[test]
fn the_answer_is_confirmed() {
    let plan = Plan { repeats: 3, resolution: 0.5, ..plan(100, 5000) };
    let script = [(100, Met), (200, Missed), (200, Missed), (150, Met), (150, Met)];
    assert_eq!(follow(plan.clone(), &script), finding(Some(150), Some(200), 5, Ended::Found));

    // A level that is not confirmed becomes the upper bound, and the level below is confirmed in turn.
    let script =
        [(100, Met), (200, Missed), (200, Missed), (150, Met), (150, Missed), (150, Missed), (100, Missed), (100, Met)];
    let noisy = vec![100, 150];
    let expected = Finding { noisy, ..finding(Some(100), Some(150), 8, Ended::Found) };
    assert_eq!(follow(plan.clone(), &script), expected);

    let unconfirmed = follow(Plan { runs_max: 4, ..plan }, &script[..4]);
    assert_eq!((unconfirmed.level, unconfirmed.confirmed, unconfirmed.ended), (Some(150), false, Ended::Unfinished));
}

#[test]
fn a_level_that_is_missed_below_one_that_was_met_counts() {
    // The first measurement meets every level under 800. Of three measurements each, most miss 600 and 400.
    let plan = Plan { repeats: 3, resolution: 0.9, ..plan(200, 5000) };
    let script = [
        (200, Met),
        (400, Met),
        (800, Missed),
        (800, Missed),
        (600, Met),
        (600, Missed),
        (600, Missed),
        (400, Missed),
        (400, Missed),
        (300, Met),
        (300, Met),
    ];
    let found = follow(plan, &script);
    assert_eq!(found, Finding { noisy: vec![400, 600], ..finding(Some(300), Some(400), 11, Ended::Found) });
}

#[test]
fn the_generators_limit_is_not_taken_for_the_servers() {
    let plan = |repeats| Plan { repeats, resolution: 0.5, ..plan(100, 5000) };
    let script = [(100, Met), (200, Void), (150, Met)];
    assert_eq!(follow(plan(1), &script), finding(Some(150), Some(200), 3, Ended::GeneratorLimit));
    let script = [(100, Met), (200, Void), (200, Missed), (150, Met), (150, Met)];
    assert_eq!(follow(plan(3), &script).ended, Ended::Found);
}

#[test]
fn reports_that_nobody_asked_for_change_nothing() {
    let mut search = Search::new(plan(100, 5000)).unwrap();
    search.report(Missed);
    let first = search.poll();
    assert_eq!(search.poll(), first);
    search.report(Met);
    search.report(Missed);
    assert!(matches!(search.poll(), Next::Probe(probe) if probe.level == 200 && probe.run == 2));
}

#[test]
fn steps_are_read() {
    assert_eq!("x1.5".parse(), Ok(LevelStep::Factor(1.5)));
    assert_eq!("+100".parse(), Ok(LevelStep::Increment(100)));
    for text in ["", "2", "x1", "x0.5", "xnan", "xinf", "+0", "+-1", "+1.5", "-1"] {
        assert_eq!(text.parse::<LevelStep>(), Err(NoStep), "{text}");
    }
}

#[test]
fn plans_that_cannot_be_followed_are_refused() {
    let good = plan(1, LEVEL_MAX);
    assert!(Search::new(good.clone()).is_ok());
    let cases = [
        (Plan { from: 0, ..good.clone() }, PlanError::Levels(0, LEVEL_MAX)),
        (Plan { from: 3, to: 2, ..good.clone() }, PlanError::Levels(3, 2)),
        (Plan { to: LEVEL_MAX + 1, ..good.clone() }, PlanError::Levels(1, LEVEL_MAX + 1)),
        (Plan { step: LevelStep::Factor(1.0), ..good.clone() }, PlanError::LevelStep),
        (Plan { step: LevelStep::Factor(f64::INFINITY), ..good.clone() }, PlanError::LevelStep),
        (Plan { step: LevelStep::Increment(0), ..good.clone() }, PlanError::LevelStep),
        (Plan { resolution: 0.0, ..good.clone() }, PlanError::Resolution(0.0)),
        (Plan { resolution: 1.0, ..good.clone() }, PlanError::Resolution(1.0)),
        (Plan { repeats: 2, ..good.clone() }, PlanError::Repeats(2)),
        (Plan { repeats: 5, runs_max: 2, ..good.clone() }, PlanError::Runs(2)),
        (Plan { duration: Duration::ZERO, ..good }, PlanError::Duration),
    ];
    for (plan, error) in cases {
        assert_eq!(Search::new(plan).unwrap_err(), error);
    }
}

/// Simulates an M/M/1 queue, request by request: random arrivals, one server, random service times.
struct Queue {
    random: StdRng,
    /// Mean number of requests served in a second.
    service_rate: f64,
}

impl Queue {
    /// 99th percentile of the time in the queue, in seconds.
    fn p99(&mut self, rate: f64, warmup: Duration, duration: Duration) -> f64 {
        let (mut now, mut wait, mut stays) = (0.0, 0.0_f64, Vec::new());
        while now < (warmup + duration).as_secs_f64() {
            let (service, gap) = (self.exponential(self.service_rate), self.exponential(rate));
            if now >= warmup.as_secs_f64() {
                stays.push(wait + service);
            }
            now += gap;
            wait = (wait + service - gap).max(0.0);
        }
        let at = stays.len() * 99 / 100;
        *stays.select_nth_unstable_by(at, f64::total_cmp).1
    }

    fn exponential(&mut self, rate: f64) -> f64 {
        -(1.0 - self.random.random::<f64>()).ln() / rate
    }
}

/// In theory, the time in the queue exceeds `limit` with probability `exp(-(service rate - rate) * limit)`.
#[allow(clippy::cast_precision_loss)]
#[test]
fn the_knee_of_a_noisy_queue_is_found() {
    let (service_rate, limit) = (1000.0, 0.05);
    let knee = service_rate - 100_f64.ln() / limit;
    let off = |seed| {
        let plan = Plan { repeats: 3, ..plan(100, 10_000) };
        let mut queue = Queue { random: StdRng::seed_from_u64(seed), service_rate };
        let (warmup, duration) = (plan.warmup, plan.duration);
        let found = drive(plan, |rate| if queue.p99(rate as f64, warmup, duration) < limit { Met } else { Missed });
        assert!(found.confirmed && found.ended == Ended::Found, "seed {seed}: {found:?}");
        found.level.unwrap() as f64 / knee - 1.0
    };
    let off: Vec<_> = (0..30).map(off).collect();
    assert!(off.iter().all(|off| off.abs() < 0.05), "{off:.3?}");
}

proptest! {
    #[test]
    fn a_sharp_knee_is_found(
        knee in 1_u64..100_000, from in 1_u64..100_000, repeats in 0_u32..3, factor in 1.1_f64..4.0, resolution in 0.001_f64..0.5,
    ) {
        let plan = Plan { step: LevelStep::Factor(factor), repeats: 2 * repeats + 1, resolution, ..plan(from, 1_000_000) };
        let found = drive(plan, |level| if level <= knee { Met } else { Missed });
        let (level, missed) = (found.level.unwrap(), found.missed.unwrap());
        prop_assert!(level <= knee && knee < missed, "{:?}", found);
        prop_assert!(missed - level <= scaled(level, resolution).max(1), "{:?}", found);
        prop_assert!(found.confirmed && found.noisy.is_empty());
        prop_assert_eq!(found.ended, Ended::Found);
    }

    #[test]
    fn whatever_a_server_does_the_search_ends(from in 1_u64..1000, repeats in 0_u32..3, runs_max in 3_u32..60, seed: u64) {
        let plan = Plan { repeats: 2 * repeats + 1, runs_max, ..plan(from, 10_000) };
        let mut random = StdRng::seed_from_u64(seed);
        let found = drive(plan, |_| [Met, Missed, Void][random.random_range(0..3)]);
        prop_assert!(found.runs <= runs_max);
        if let (Some(level), Some(missed)) = (found.level, found.missed) {
            prop_assert!(level < missed);
        }
        prop_assert!(found.confirmed || found.level.is_none() || found.ended == Ended::Unfinished);
    }
}
