#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::shares::Shares;

fn seconds(list: &[u64]) -> Vec<Duration> {
    list.iter().copied().map(Duration::from_secs).collect()
}

fn settings(rate: f64, count: Count, duration_s: u64, requests: u32, waits: Vec<Duration>) -> Settings {
    Settings::new(rate, count, Duration::from_secs(duration_s), requests, Shares::new(waits, 1).unwrap()).unwrap()
}

/// The settings of the paper: 800 requests/s for 90 s, three per user, with waits of 5, 10, 30 and 60 s.
fn paper(count: Count) -> Settings {
    settings(800.0, count, 90, 3, seconds(&[5, 10, 30, 60]))
}

/// Simulates users and a server that takes `latency` for each request. Returns all visits.
fn simulate(mut users: Users, latency: impl Fn(&Visit) -> Duration) -> Vec<Visit> {
    let (mut now, mut visits) = (Duration::ZERO, Vec::new());
    let mut answers: BinaryHeap<Reverse<(Duration, Visit)>> = BinaryHeap::new();
    loop {
        while let Some(Reverse((at, visit))) = answers.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            answers.pop();
            users.answered(visit, at);
        }
        let answer = answers.peek().map(|Reverse((at, _))| *at);
        match users.next(now) {
            Next::Ask(visit) => {
                answers.push(Reverse((visit.due + latency(&visit), visit)));
                visits.push(visit);
            }
            Next::Wait(until) => now = answer.map_or(until, |answer| answer.min(until)),
            Next::WaitForAnswers => now = answer.unwrap(),
            Next::Done => return visits,
        }
    }
}

fn count_before(visits: &[Visit], second: u64) -> usize {
    visits.iter().filter(|visit| visit.due < Duration::from_secs(second)).count()
}

/// The total number of requests in the paper's model, computed in another way: slots of 1/800 s instead of times.
fn requests_by_slots(waits: &Shares) -> usize {
    const SLOTS: usize = 90 * 800;
    let mut returning = vec![0; SLOTS + 120 * 800];
    let (mut asked, mut users) = (0, 0);
    for slot in 0..SLOTS {
        asked += returning[slot];
        while asked <= slot {
            let wait = waits.of(users).as_secs() as usize * 800;
            returning[slot + wait] += 1;
            returning[slot + 2 * wait] += 1;
            (asked, users) = (asked + 1, users + 1);
        }
    }
    users as usize * 3
}

#[test]
fn the_papers_users_make_72000_requests_in_90_s_and_then_only_return() {
    let visits = simulate(Users::new(paper(Count::Requests)), |_| Duration::ZERO);
    assert_eq!(count_before(&visits, 90), 72_000);
    for second in 0..90 {
        // From 60 to 65 s, the rate is exceeded by 42/s because of waits that end. Returning users are not delayed:
        // fewer new users begin later.
        let ahead = count_before(&visits, second) - second as usize * 800;
        assert!(ahead <= 5 * 42 + 4, "{ahead} ahead at {second} s");
    }
    assert_eq!(visits.len(), requests_by_slots(paper(Count::Requests).waits()));
    let after = &visits[72_000..];
    assert!(after.iter().all(|visit| visit.request > 0), "no new users");
    // The longest wait twice, begun just before the end.
    assert!(after.last().unwrap().due < Duration::from_secs(90 + 120));
    assert_eq!(after.len(), 21_561);
}

#[test]
fn the_rate_may_count_new_users() {
    let visits = simulate(Users::new(paper(Count::Users)), |_| Duration::ZERO);
    assert_eq!(visits.len(), 3 * 72_000);
    let new = visits.iter().filter(|visit| visit.request == 0 && visit.due < Duration::from_secs(45)).count();
    assert_eq!(new, 36_000);
}

#[test]
fn the_rate_holds_when_answers_take_time() {
    // 0 to 299 ms, depending on user and request.
    let latency = |visit: &Visit| Duration::from_millis((visit.user * 7919 + u64::from(visit.request) * 131) % 300);
    let visits = simulate(Users::new(paper(Count::Requests)), latency);
    let in_time = count_before(&visits, 90);
    assert!((72_000..72_050).contains(&in_time), "{in_time}");
}

#[test]
fn a_server_that_answers_late_gets_no_more_at_once_than_return() {
    let users = Users::new(paper(Count::Requests));
    // All requests of the first 20 s get their responses at 20 s.
    let latency = |visit: &Visit| Duration::from_secs(20).saturating_sub(visit.due);
    let visits = simulate(users, latency);
    assert_eq!(count_before(&visits, 20), 16_000);
    // Until then only new users begin, at the rate. At 25 s, a quarter of the 16,000 users return.
    assert_eq!(count_before(&visits, 25), 20_000);
    let at_25 = visits.iter().filter(|visit| visit.due == Duration::from_secs(25) && visit.request == 1).count();
    assert_eq!(at_25, 4_000);
    let new_after = visits.iter().filter(|visit| visit.request == 0 && visit.due >= Duration::from_secs(25));
    assert!(new_after.clone().all(|visit| visit.due >= Duration::from_secs(29)), "the rate makes up for those at 25 s");
}

#[test]
fn nothing_is_left_to_do_only_when_all_answers_have_come() {
    let mut users = Users::new(settings(1.0, Count::Users, 1, 2, seconds(&[5])));
    let s = Duration::from_secs;
    let first = Visit { due: s(0), user: 0, request: 0 };
    assert_eq!(users.next(s(0)), Next::Ask(first));
    assert_eq!(users.next(s(0)), Next::WaitForAnswers);
    assert!(users.answered(first, s(2)));
    assert_eq!(users.next(s(2)), Next::Wait(s(7)));
    let second = Visit { due: s(7), user: 0, request: 1 };
    assert_eq!(users.next(s(9)), Next::Ask(second));
    assert_eq!(users.next(s(9)), Next::WaitForAnswers);
    assert!(!users.answered(second, s(10)));
    assert_eq!(users.next(s(10)), Next::Done);
    assert_eq!(users.begun(), 1);
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let make = |rate, requests, duration_s| {
        let waits = Shares::new(seconds(&[5]), 1).unwrap();
        Settings::new(rate, Count::Requests, Duration::from_secs(duration_s), requests, waits).map(drop)
    };
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(make(rate, 3, 90), Err(SettingsError::Rate), "{rate}");
    }
    assert_eq!(make(1.0, 0, 90), Err(SettingsError::Requests));
    assert_eq!(make(1.0, 3, 0), Err(SettingsError::Duration));
}

proptest! {
    #[test]
    fn every_user_makes_all_requests_and_waits_in_between(
        rate in 0.1_f64..500.0, by_users: bool, duration_s in 1_u64..20, requests in 1_u32..5,
        waits in prop::collection::vec(0_u64..10, 1..5), late_ms in 0_u64..3000,
    ) {
        let count = if by_users { Count::Users } else { Count::Requests };
        let settings = settings(rate, count, duration_s, requests, seconds(&waits));
        let latency = Duration::from_millis(late_ms);
        let visits = simulate(Users::new(settings.clone()), |_| latency);

        prop_assert!(visits.is_sorted_by_key(|visit| visit.due));
        let mut last: HashMap<u64, Visit> = HashMap::new();
        for visit in &visits {
            if let Some(before) = last.insert(visit.user, *visit) {
                prop_assert_eq!(visit.request, before.request + 1);
                prop_assert_eq!(visit.due, before.due + latency + settings.waits().of(visit.user));
            } else {
                prop_assert!(visit.request == 0 && visit.due < settings.duration());
            }
        }
        prop_assert!(last.values().all(|visit| visit.request == requests - 1));
    }

    #[test]
    fn shares_of_the_load_make_up_the_whole(of in 1_u64..9, rate in 1.0_f64..1000.0) {
        let settings = settings(rate, Count::Users, 3, 1, seconds(&[1]));
        let mut shared: Vec<_> =
            (0..of).flat_map(|index| simulate(Users::share(settings.clone(), index, of), |_| Duration::ZERO)).collect();
        shared.sort();
        prop_assert_eq!(shared, simulate(Users::new(settings), |_| Duration::ZERO));
    }

}

proptest! {
    // Each case simulates the whole experiment.
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn shares_of_the_load_hold_the_rate(of in 1_u64..9) {
        let shares = (0..of).flat_map(|index| {
            simulate(Users::share(paper(Count::Requests), index, of), |_| Duration::ZERO)
        });
        let visits: Vec<_> = shares.collect();
        // Each share may begin a few requests too many, because users return at the last moment.
        let in_time = count_before(&visits, 90) as u64;
        prop_assert!((72_000..72_000 + 4 * of).contains(&in_time), "{}", in_time);
    }
}
