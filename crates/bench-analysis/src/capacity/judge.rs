//! Decides whether a measurement met its conditions.

use watari_bench_report::expect::{self, Condition};
use watari_bench_report::summary::Summary;

use super::curve::Point;
use super::search::Outcome;

/// How the requests of an open loop arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrivals {
    /// At even intervals.
    Even,
    /// At random intervals (a Poisson process).
    Random,
}

/// Checks a measurement against the conditions.
///
/// * `level`: the load; in an open loop, the requests that were due in a second;
/// * `summary`: the requests that ended during the measurement;
/// * `arrivals`: `None` in a closed loop.
///
/// An open loop has one more condition: as many requests must end as are due. Without it, a server would meet any rate
/// for a while, as requests pile up. If the generator itself explains a miss, the measurement says nothing about the
/// server, and is [`Outcome::Void`].
///
/// The result assumes that the server was idle before. The caller corrects [`Point::idle`] if it was not.
pub(super) fn judge(level: u64, summary: &Summary, conditions: &[Condition], arrivals: Option<Arrivals>) -> Point {
    let outcomes = expect::check(conditions, summary);
    let mut missed: Vec<_> = outcomes.iter().filter(|outcome| !outcome.met).map(ToString::to_string).collect();
    missed.extend(arrivals.and_then(|arrivals| piles_up(level, summary, arrivals)));
    let outcome = match (missed.is_empty(), fault_of_generator(summary)) {
        (true, _) => Outcome::Met,
        (false, None) => Outcome::Missed,
        (false, Some(fault)) => {
            missed.push(fault);
            Outcome::Void
        }
    };
    let total = &summary.total;
    let latency = |ms| (total.latency_ms.count > 0).then_some(ms);
    Point {
        level,
        throughput_per_s: total.requests_per_s,
        p50_ms: latency(total.latency_ms.p50),
        p99_ms: latency(total.latency_ms.p99),
        failures: total.failures,
        outcome,
        idle: true,
        missed,
    }
}

/// Returns a message if fewer requests ended than were due, by more than [`SHORT_MAX`] and by more than chance
/// explains.
#[allow(clippy::cast_precision_loss, reason = "counts of requests are under 2^53")]
fn piles_up(level: u64, summary: &Summary, arrivals: Arrivals) -> Option<String> {
    let due = level as f64 * summary.total.seconds;
    let by_chance = match arrivals {
        Arrivals::Even => EVEN_SLACK,
        // Three standard deviations, plus the slack of even arrivals.
        Arrivals::Random => 3.0 * due.sqrt() + EVEN_SLACK,
    };
    let short = due - summary.total.requests as f64;
    let ended_per_s = summary.total.requests as f64 / summary.total.seconds;
    (short > (SHORT_MAX * due).max(by_chance))
        .then(|| format!("requests pile up: {ended_per_s:.1} of {level} per second end"))
}

/// Why the generator is at fault for a miss; `None` if it is not.
fn fault_of_generator(summary: &Summary) -> Option<String> {
    let (total, late_ms) = (&summary.total, summary.schedule_error_ms.p99);
    if total.endings.local > 0 {
        return Some(format!("the generator had no file, port or address for {} requests", total.endings.local));
    }
    let explains = late_ms > LATE_SHARE * total.latency_ms.p99 && late_ms > LATE_MS_MIN;
    explains.then(|| format!("the generator itself was late: p99 {late_ms:.3} ms"))
}

/// The share of the due requests that may be missing at the end.
const SHORT_MAX: f64 = 0.02;
/// How many requests may be due or end just outside the borders of the measurement.
const EVEN_SLACK: f64 = 2.0;
/// The generator is at fault if its own lateness is over this share of the latency, ...
const LATE_SHARE: f64 = 0.5;
/// ... and over this, in milliseconds: more than a scheduler's time slice.
const LATE_MS_MIN: f64 = 1.0;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use watari_bench_engine::ending::{Ending, EndingKind, Phase, Side};
    use watari_bench_engine::sample::{Family, RequestSample};
    use watari_bench_engine::tally::Tally;
    use watari_bench_report::summary::Run;

    use super::*;

    /// `requests` requests in 10 s, all with the same latency and ending.
    fn measured(requests: u32, latency_ms: u64, kind: EndingKind, late_ms: u64) -> Summary {
        let mut tally = Tally::new(["page".to_owned()].into());
        for _ in 0..requests {
            tally.lag(Duration::from_millis(late_ms));
            tally.request(&RequestSample {
                class: 0,
                family: Family::Ipv4,
                handshake: None,
                due: Duration::ZERO,
                started: Duration::ZERO,
                written: None,
                first_byte: None,
                ended: Duration::from_millis(latency_ms),
                status: None,
                error_status: false,
                body_bytes: 0,
                ending: Ending::new(kind, Phase::Response, Side::Server),
            });
        }
        Summary::new(Run::default(), Duration::from_secs(10), &tally)
    }

    fn judged(summary: &Summary, arrivals: Option<Arrivals>) -> Point {
        judge(100, summary, &["p99<50ms".parse().unwrap(), "failures<1%".parse().unwrap()], arrivals)
    }

    #[test]
    fn a_level_is_met_when_all_conditions_are() {
        let met = judged(&measured(1000, 10, EndingKind::Normal, 0), Some(Arrivals::Even));
        assert_eq!((met.outcome, met.missed.len(), met.level), (Outcome::Met, 0, 100));
        assert!((met.p99_ms.unwrap() - 10.0).abs() < 0.1 && (met.throughput_per_s - 100.0).abs() < 1e-9, "{met:?}");
        let slow = judged(&measured(1000, 60, EndingKind::Normal, 0), Some(Arrivals::Even));
        assert_eq!((slow.outcome, slow.missed.len()), (Outcome::Missed, 1));
        assert!(slow.missed[0].starts_with("not met: p99<50ms (6"), "{slow:?}");
        let failed = judged(&measured(1000, 1, EndingKind::Reset, 0), Some(Arrivals::Even));
        assert_eq!((failed.outcome, failed.missed.len(), failed.p99_ms), (Outcome::Missed, 2, None));
    }

    #[test]
    fn requests_that_pile_up_are_a_miss_of_an_open_loop() {
        let of_1000 = |requests, arrivals| judged(&measured(requests, 10, EndingKind::Normal, 0), arrivals);
        assert_eq!(of_1000(980, Some(Arrivals::Even)).outcome, Outcome::Met);
        let short = of_1000(979, Some(Arrivals::Even));
        assert_eq!(
            (short.outcome, short.missed),
            (Outcome::Missed, vec!["requests pile up: 97.9 of 100 per second end".into()])
        );
        assert_eq!(of_1000(904, Some(Arrivals::Random)).outcome, Outcome::Met, "chance alone may do so");
        assert_eq!(of_1000(900, Some(Arrivals::Random)).outcome, Outcome::Missed);
        assert_eq!(of_1000(1, None).outcome, Outcome::Met, "nothing is due in a closed loop");
    }

    #[test]
    fn the_generators_faults_are_not_the_servers() {
        let late = judged(&measured(1000, 60, EndingKind::Normal, 40), Some(Arrivals::Even));
        assert_eq!((late.outcome, late.missed.len()), (Outcome::Void, 2));
        assert!(late.missed[1].starts_with("the generator itself was late: p99 40."), "{late:?}");
        let little = judged(&measured(1000, 60, EndingKind::Normal, 20), Some(Arrivals::Even));
        assert_eq!(little.outcome, Outcome::Missed);
        let met_all_the_same = judged(&measured(1000, 45, EndingKind::Normal, 40), Some(Arrivals::Even));
        assert_eq!(met_all_the_same.outcome, Outcome::Met);
        assert_eq!(judged(&measured(1000, 1, EndingKind::Local, 0), None).outcome, Outcome::Void);
    }
}
