#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::ResponseAverage;

type Origin = Candidate<String>;

const ALL: [OriginPolicy; 5] = [
    OriginPolicy::RoundRobin,
    OriginPolicy::Weighted,
    OriginPolicy::LeastConnections,
    OriginPolicy::TwoChoices,
    OriginPolicy::Hash,
];

fn origins(weights: &[u32]) -> Vec<Origin> {
    let origin =
        |(n, weight): (usize, &u32)| Origin { weight: *weight, ..Candidate::new(format!("http://10.0.0.{n}")) };
    weights.iter().enumerate().map(origin).collect()
}

/// 64 pseudo-random bits: the `n`-th number of `SplitMix64`.
fn random(n: u64) -> u64 {
    let mut mixed = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn position(origins: &[Origin], picked: &Origin) -> usize {
    origins.iter().position(|origin| origin.name == picked.name).unwrap()
}

/// The number of requests that each origin gets of 10,000, none of which ends.
fn spread(policy: OriginPolicy, load_factor: Option<LoadFactor>, mut origins: Vec<Origin>) -> Vec<usize> {
    let mut balancer = Balancer::new(policy, load_factor);
    for n in 0..10_000_u64 {
        let picked = balancer.pick(&n.to_be_bytes(), random(n), &origins).unwrap();
        let picked = position(&origins, picked);
        origins[picked].connections += 1;
    }
    origins.iter().map(|origin| origin.connections).collect()
}

fn answering(mut origins: Vec<Origin>, response: Duration) -> Vec<Origin> {
    for origin in &mut origins {
        origin.response = response;
    }
    origins
}

fn percent(percent: u32) -> LoadFactor {
    LoadFactor::from_percent(percent).unwrap()
}

#[test]
fn no_origin_is_picked_where_there_is_none() {
    for policy in ALL {
        assert_eq!(Balancer::<String>::new(policy, Some(percent(100))).pick(b"/", 1, &[]), None);
    }
}

#[test]
fn the_only_origin_gets_everything() {
    for policy in ALL {
        assert_eq!(spread(policy, Some(percent(100)), origins(&[3])), [10_000]);
    }
}

#[test]
fn each_policy_spreads_as_its_weights_say() {
    for policy in ALL {
        let counts = spread(policy, None, answering(origins(&[1, 2, 5]), Duration::from_millis(3)));
        let expected = if policy == OriginPolicy::RoundRobin { [3333, 3333, 3333] } else { [1250, 2500, 6250] };
        for (count, expected) in counts.iter().zip(expected) {
            assert!(count.abs_diff(expected) < 150, "{policy:?}: {counts:?}");
        }
    }
}

/// With a single random choice, the fullest of 100 would be some 25 above the average here.
#[test]
fn two_choices_keep_the_fullest_origin_near_the_average() {
    let counts = spread(OriginPolicy::TwoChoices, None, answering(origins(&[1; 100]), Duration::from_millis(3)));
    assert!(counts.iter().all(|count| (90..=104).contains(count)), "{counts:?}");
}

#[test]
fn two_choices_avoid_the_slow_in_proportion() {
    let mut origins = answering(origins(&[1; 4]), Duration::from_millis(2));
    origins[2].response = Duration::from_millis(20);
    let counts = spread(OriginPolicy::TwoChoices, None, origins);
    let tenth = counts[0] / 10;
    assert!(counts[2].abs_diff(tenth) < 20, "{counts:?}");
}

#[test]
fn a_new_origin_is_tried_with_one_request_until_it_answers() {
    let mut origins = answering(origins(&[1; 4]), Duration::from_millis(2));
    origins[1].response = Duration::ZERO;
    let counts = spread(OriginPolicy::TwoChoices, None, origins);
    assert_eq!(counts[1], 1);
}

/// One slow answer counts at once, and fades in the end.
#[test]
fn a_slow_origin_is_tried_again_after_a_while() {
    let begin = Instant::now();
    let [mut quick, mut slow] = [ResponseAverage::default(), ResponseAverage::default()];
    for n in 0..100 {
        slow.observe_peak(begin + Duration::from_millis(n), Duration::from_millis(2));
    }
    slow.observe_peak(begin + Duration::from_millis(100), Duration::from_secs(1));
    let mut origins = origins(&[1, 1]);
    let mut pick = |later_s: u64| {
        let now = begin + Duration::from_secs(later_s);
        quick.observe_peak(now, Duration::from_millis(2));
        (origins[0].response, origins[1].response) = (quick.at(now), slow.at(now));
        let mut balancer = Balancer::new(OriginPolicy::TwoChoices, None);
        position(&origins, balancer.pick(b"", random(later_s), &origins).unwrap())
    };
    assert_eq!((1..=60).map(&mut pick).sum::<usize>(), 0);
    assert_eq!(pick(70), 1, "it may have recovered");
}

#[test]
fn an_average_rises_at_once_and_falls_slowly() {
    let now = Instant::now();
    let mut average = ResponseAverage::default();
    average.observe_peak(now, Duration::from_millis(2));
    average.observe_peak(now, Duration::from_millis(80));
    assert_eq!(average.at(now), Duration::from_millis(80));
    let later = now + Duration::from_secs(10);
    average.observe_peak(later, Duration::from_millis(2));
    let expected = Duration::from_micros(30_694); // 80 ms / e + 2 ms * (1 - 1 / e)
    assert!(average.at(later).abs_diff(expected) < Duration::from_micros(1), "{:?}", average.at(later));
}

#[test]
fn a_factor_below_one_would_leave_requests_without_origin() {
    let error = LoadFactor::from_percent(99).unwrap_err();
    assert_eq!(error.to_string(), "an origin must be allowed at least 100 percent of the average load, not 99");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any keys, also the same one repeatedly.
    #[test]
    fn no_origin_gets_more_than_the_factor_allows(
        weights in vec(1..=20_u32, 1..9), factor in 100..300_u32, keys in vec(0..3_u8, 1..200),
    ) {
        let (mut origins, shares) = (origins(&weights), weights.iter().sum::<u32>());
        let mut balancer = Balancer::new(OriginPolicy::Hash, Some(percent(factor)));
        for (before, key) in keys.iter().enumerate() {
            let picked = position(&origins, balancer.pick(&[*key], 0, &origins).unwrap());
            origins[picked].connections += 1;
            let allowed = (before + 1) * (weights[picked] * factor) as usize;
            prop_assert!(origins[picked].connections <= allowed.div_ceil(shares as usize * 100), "{origins:?}");
        }
    }

    #[test]
    fn only_keys_of_a_full_or_lost_origin_move(key: [u8; 8], weights in vec(1..=20_u32, 2..9), n in 0..8_usize) {
        let mut origins = origins(&weights);
        let n = n % origins.len();
        let mut balancer = Balancer::new(OriginPolicy::Hash, Some(percent(100)));
        let before = balancer.pick(&key, 0, &origins).unwrap().name.clone();
        let mut without = origins.clone();
        let lost = without.remove(n);
        origins[n].connections = 1;
        let full = balancer.pick(&key, 0, &origins).unwrap().name.clone();
        let gone = Balancer::new(OriginPolicy::Hash, None).pick(&key, 0, &without).unwrap().name.clone();
        prop_assert!(before == lost.name || (full == before && gone == before));
        prop_assert!(full == gone || full == lost.name, "both go where the key selects next");
    }

    #[test]
    fn any_random_bits_draw_an_origin(bits: u64, weights in vec(1..=1000_u32, 1..9)) {
        let origins = origins(&weights);
        for bits in [bits, 0, u64::MAX] {
            prop_assert!(Balancer::new(OriginPolicy::TwoChoices, None).pick(b"", bits, &origins).is_some());
        }
    }
}
