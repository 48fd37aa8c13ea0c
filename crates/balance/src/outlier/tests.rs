#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const LIMITS: OutlierLimits = OutlierLimits {
    in_a_row: 3,
    window: Duration::from_secs(30),
    excess_percent: 50,
    requests_min: 10,
    ejection: Duration::from_secs(5),
    ejection_max: Duration::from_secs(12),
    forgive_after: Duration::from_mins(1),
    ejected_percent_max: 50,
};
const FINE: Outcome = Outcome::Answered(200);

/// Origins are numbers. Each request ends at the moment it begins.
struct Pool {
    outliers: Outliers<u32>,
    now: Instant,
    origins: u32,
}

impl Pool {
    fn new(origins: u32, limits: OutlierLimits) -> Self {
        let (mut outliers, now) = (Outliers::new(limits), Instant::now());
        outliers.configure(0..origins, now);
        Self { outliers, now, origins }
    }

    fn request(&mut self, origin: u32, outcome: Outcome) -> Option<Verdict> {
        let began = self.now;
        self.outliers.began(&origin, began);
        self.outliers.ended(&origin, began, outcome, self.now)
    }

    /// Fails requests until the origin is ejected. Returns the duration in seconds, and the cause.
    fn fail(&mut self, origin: u32) -> Option<(u64, Cause)> {
        let verdict = (0..LIMITS.in_a_row).find_map(|_| self.request(origin, Outcome::Unreachable));
        verdict.map(|verdict| self.ejection(verdict))
    }

    fn ejection(&self, verdict: Verdict) -> (u64, Cause) {
        let Verdict::Ejected { until, cause } = verdict else { panic!("{verdict:?}") };
        ((until - self.now).as_secs(), cause)
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn admitted(&self) -> Vec<u32> {
        let mut candidates = (0..self.origins).map(Candidate::new).collect();
        self.outliers.keep_admitted(&mut candidates, self.now);
        candidates.into_iter().map(|candidate| candidate.name).collect()
    }
}

#[test]
fn failures_in_a_row_eject() {
    let mut pool = Pool::new(3, LIMITS);
    for outcome in [Outcome::Unreachable, Outcome::TimedOut, FINE, Outcome::Broken, Outcome::Answered(503)] {
        assert_eq!(pool.request(1, outcome), None);
    }
    let verdict = pool.request(1, Outcome::Answered(502)).unwrap();
    assert_eq!(pool.ejection(verdict), (5, Cause::InARow));
    assert_eq!(pool.admitted(), [0, 2]);
}

#[test]
fn abandoned_requests_do_not_count() {
    let mut pool = Pool::new(3, LIMITS);
    for status in [200, 304, 404, 429, 500, 501, 505] {
        assert_eq!(Outcome::Answered(status).failed(), Some(false), "{status}");
    }
    pool.request(1, Outcome::Unreachable);
    pool.request(1, Outcome::Unreachable);
    assert_eq!(pool.request(1, Outcome::Abandoned), None);
    assert!(pool.request(1, Outcome::Answered(504)).is_some(), "it is the third failure in a row still");
}

#[test]
fn an_origin_that_fails_far_more_than_the_others_is_ejected() {
    let mut pool = Pool::new(3, LIMITS);
    for n in 0..9 {
        pool.request(0, FINE);
        assert_eq!(pool.request(1, if n % 3 == 2 { FINE } else { Outcome::Answered(503) }), None);
    }
    pool.request(0, FINE);
    let verdict = pool.request(1, Outcome::Answered(503)).unwrap();
    assert_eq!(pool.ejection(verdict), (5, Cause::Share));
}

#[test]
fn no_origin_is_ejected_if_all_fail_alike() {
    let mut pool = Pool::new(3, LIMITS);
    for n in 0..100 {
        for origin in 0..3 {
            assert_eq!(pool.request(origin, if n % 3 == 0 { FINE } else { Outcome::Answered(503) }), None);
        }
    }
}

#[test]
fn old_failures_are_forgotten() {
    let mut pool = Pool::new(2, LIMITS);
    for n in 0..200 {
        pool.request(0, FINE);
        let failed = !(8..=180).contains(&n);
        assert_eq!(pool.request(1, if failed && n % 3 > 0 { Outcome::TimedOut } else { FINE }), None, "{n}");
        pool.pass(1);
    }
}

#[test]
fn ejections_grow_to_a_maximum_and_are_forgiven() {
    let mut pool = Pool::new(2, LIMITS);
    assert_eq!(pool.fail(0), Some((5, Cause::InARow)));
    pool.pass(5);
    let verdict = pool.request(0, Outcome::TimedOut).unwrap();
    assert_eq!(pool.ejection(verdict), (10, Cause::Trial));
    pool.pass(10);
    assert_eq!(pool.request(0, FINE), Some(Verdict::Readmitted));
    assert_eq!(pool.fail(0), Some((12, Cause::InARow)));
    pool.pass(12);
    assert_eq!(pool.request(0, FINE), Some(Verdict::Readmitted));
    pool.pass(2 * 60);
    assert_eq!(pool.fail(0), Some((10, Cause::InARow)), "two of three are forgiven");
}

#[test]
fn an_origin_on_trial_gets_one_request() {
    let mut pool = Pool::new(2, LIMITS);
    pool.fail(0);
    let ejected = pool.now;
    assert_eq!(pool.admitted(), [1]);
    pool.pass(5);
    assert_eq!(pool.admitted(), [0, 1]);
    let began = pool.now;
    pool.outliers.began(&0, began);
    assert_eq!(pool.admitted(), [1]);
    assert_eq!(pool.outliers.ended(&0, ejected, Outcome::Abandoned, pool.now), None);
    assert_eq!(pool.admitted(), [1], "it was another request that ended");
    pool.pass(1);
    assert_eq!(pool.outliers.ended(&0, began, Outcome::Abandoned, pool.now), None);
    assert_eq!(pool.admitted(), [0, 1], "another one may be the trial");
    pool.outliers.began(&0, pool.now);
    pool.pass(4);
    assert_eq!(pool.admitted(), [1]);
    pool.pass(1);
    assert_eq!(pool.admitted(), [0, 1], "no result of the last one");
    assert_eq!(pool.request(0, FINE), Some(Verdict::Readmitted));
    assert_eq!(pool.admitted(), [0, 1]);
}

#[test]
fn requests_that_began_before_a_change_do_not_count() {
    let mut pool = Pool::new(2, LIMITS);
    let began = pool.now;
    pool.pass(1);
    pool.fail(0);
    assert_eq!(pool.outliers.ended(&0, began, FINE, pool.now), None);
    assert_eq!(pool.admitted(), [1]);
    pool.pass(5);
    let trial = pool.now;
    pool.pass(1);
    assert_eq!(pool.request(0, FINE), Some(Verdict::Readmitted));
    for _ in 0..10 {
        assert_eq!(pool.outliers.ended(&0, trial, Outcome::Broken, pool.now), None);
    }
}

#[test]
fn only_so_many_are_out_at_once() {
    let mut pool = Pool::new(5, LIMITS);
    let ejected: Vec<_> = (0..5).filter(|origin| pool.fail(*origin).is_some()).collect();
    assert_eq!(ejected, [0, 1]);
    let mut single = Pool::new(1, LIMITS);
    assert!(single.fail(0).is_some());
}

#[test]
fn all_get_requests_where_all_are_out() {
    let mut pool = Pool::new(2, OutlierLimits { ejected_percent_max: 100, ..LIMITS });
    assert!(pool.fail(0).is_some() && pool.fail(1).is_some());
    assert_eq!(pool.admitted(), [0, 1]);
    pool.pass(1);
    assert_eq!(pool.request(0, Outcome::Unreachable), None, "its time is not over: that it fails is known");
    assert_eq!(pool.request(1, FINE), Some(Verdict::Readmitted), "nor is this one's, but it does work");
    assert_eq!(pool.admitted(), [1]);
}

#[test]
fn origins_that_stay_stay_as_they_were() {
    let mut pool = Pool::new(4, LIMITS);
    pool.fail(0);
    pool.fail(3);
    pool.outliers.configure(2..6, pool.now);
    assert!(pool.outliers.may_have_request(&0, pool.now), "it is not ejected any more");
    assert!(!pool.outliers.may_have_request(&3, pool.now));
    assert!(pool.fail(4).is_some() && pool.fail(5).is_none(), "two of four are out");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn some_origin_always_gets_requests_and_the_ejected_share_is_limited(
        origins in 1..8_u32,
        percent in 0..120_u32,
        steps in vec((0..8_u32, 0..4_u8, 0..4_000_u64), 1..300),
    ) {
        let mut pool = Pool::new(origins, OutlierLimits { ejected_percent_max: percent, ..LIMITS });
        let allowed = (origins * percent / 100).clamp(1, origins) as usize;
        for (origin, what, pause_ms) in steps {
            let outcomes = [FINE, Outcome::TimedOut, Outcome::Answered(503), Outcome::Abandoned];
            pool.request(origin % origins, outcomes[usize::from(what)]);
            pool.now += Duration::from_millis(pause_ms);
            let out = pool.outliers.origins.values().filter(|record| record.is_out()).count();
            prop_assert_eq!(out, pool.outliers.out);
            prop_assert!(out <= allowed, "{} of {}", out, allowed);
            let admitted = pool.admitted();
            prop_assert!(!admitted.is_empty() && admitted.len() >= origins as usize - out);
        }
    }
}
