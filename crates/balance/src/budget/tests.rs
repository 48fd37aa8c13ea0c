use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const LIMITS: RetryLimits = RetryLimits { window: Duration::from_secs(10), percent: 20, per_s: 1 };

fn retries(budget: &mut RetryBudget, now: Instant) -> usize {
    (0..1000).take_while(|_| budget.retry(now)).count()
}

#[test]
fn a_fifth_of_the_requests_and_some_more_may_be_tried_again() {
    let now = Instant::now();
    let mut budget = RetryBudget::new(LIMITS, now);
    assert_eq!(retries(&mut budget, now), 10, "one a second for ten seconds, without any request");
    for _ in 0..99 {
        budget.request(now);
    }
    assert_eq!(retries(&mut budget, now), 19);
}

#[test]
fn what_was_taken_is_forgotten_after_the_window() {
    let now = Instant::now();
    let mut budget = RetryBudget::new(LIMITS, now);
    assert_eq!(retries(&mut budget, now), 10);
    assert!(!budget.retry(now + Duration::from_secs(9)));
    assert_eq!(retries(&mut budget, now + Duration::from_secs(10)), 10);
}

#[test]
fn nothing_is_tried_again_where_nothing_may() {
    let now = Instant::now();
    let mut budget = RetryBudget::new(RetryLimits { percent: 0, per_s: 0, ..LIMITS }, now);
    budget.request(now);
    assert!(!budget.retry(now));
}

proptest! {
    /// For any sequence of requests and retries. Those between 9 s and 10 s old may or may not count.
    #[test]
    fn what_is_granted_is_within_the_budget_and_what_is_denied_is_not(
        steps in vec((0..1500_u64, 0..20_u32, 0..20_u32), 1..50),
    ) {
        let mut now = Instant::now();
        let mut budget = RetryBudget::new(LIMITS, now);
        let (mut requested, mut retried) = (Vec::new(), Vec::new());
        for (pause_ms, requests, retries) in steps {
            now += Duration::from_millis(pause_ms);
            for _ in 0..requests {
                budget.request(now);
                requested.push(now);
            }
            for _ in 0..retries {
                let younger = |all: &[Instant], ms| all.iter().filter(|at| now - **at < Duration::from_millis(ms)).count();
                let allowed = |ms| younger(&requested, ms) * 20 / 100 + 10;
                if budget.retry(now) {
                    prop_assert!(younger(&retried, 9_000) < allowed(10_001));
                    retried.push(now);
                } else {
                    prop_assert!(younger(&retried, 10_001) >= allowed(9_000));
                }
            }
        }
    }
}
