#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Enough picks for the shares to show.
const MANY: u32 = 40_000;

type Agent = Candidate<String>;

fn agents(weights: &[u32]) -> Vec<Agent> {
    let names = (0..).map(|n| format!("agent-{n}"));
    names.zip(weights).map(|(name, weight)| Candidate { weight: *weight, ..Candidate::new(name) }).collect()
}

fn client(n: u32) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 + n).into()
}

/// The number of picks of each agent, over many clients.
fn counts<'a>(agents: &'a [Agent], mut pick: impl FnMut(IpAddr) -> Option<&'a Agent>) -> Vec<u32> {
    let mut picked: HashMap<&str, u32> = HashMap::new();
    for n in 0..MANY {
        *picked.entry(&pick(client(n)).unwrap().name).or_default() += 1;
    }
    agents.iter().map(|agent| picked.get(agent.name.as_str()).copied().unwrap_or(0)).collect()
}

fn near(count: u32, share: u32, shares: u32) -> bool {
    let expected = MANY * share / shares;
    count.abs_diff(expected) <= 200 + expected / 20
}

fn weights() -> impl Strategy<Value = Vec<u32>> {
    vec(1..=20_u32, 1..6)
}

#[test]
fn without_candidates_none_is_picked() {
    let policies = [
        HandshakePolicy::RoundRobin,
        HandshakePolicy::Weighted,
        HandshakePolicy::LeastConnections,
        HandshakePolicy::ShortestResponse,
        HandshakePolicy::ClientAddress,
    ];
    for policy in policies {
        assert_eq!(policy.pick(&mut Turns::<String>::default(), client(1), &[]), None);
    }
}

#[test]
fn round_robin_takes_each_in_turn_whatever_its_weight() {
    let agents = agents(&[1, 5, 1]);
    let mut turns = Turns::default();
    let picked: Vec<_> = (0..6)
        .map(|_| HandshakePolicy::RoundRobin.pick(&mut turns, client(1), &agents).unwrap().name.clone())
        .collect();
    assert_eq!(picked, ["agent-0", "agent-1", "agent-2", "agent-0", "agent-1", "agent-2"]);
}

/// The textbook example of the method.
#[test]
fn weighted_turns_are_spread() {
    let agents = agents(&[5, 1, 1]);
    let mut turns = Turns::default();
    let picked: String = (0..7)
        .map(|_| {
            HandshakePolicy::Weighted
                .pick(&mut turns, client(1), &agents)
                .unwrap()
                .name
                .as_str()
                .chars()
                .last()
                .unwrap()
        })
        .collect();
    assert_eq!(picked, "0010200");
}

#[test]
fn a_forgotten_agent_starts_anew() {
    let agents = agents(&[1, 1]);
    let mut turns = Turns::default();
    turns.next(&agents, |_| 1);
    turns.retain(|_| false);
    assert_eq!(turns.next(&agents, |_| 1), Some(&agents[0]));
}

#[test]
fn addresses_spread_evenly() {
    let agents = agents(&[1; 4]);
    let counts = counts(&agents, |client| by_client_address(client, &agents));
    assert!(counts.iter().all(|count| (9_500..=10_500).contains(count)), "{counts:?}");
}

/// Dispatchers of any version have to select the same agents. These are the selections from before weights were added.
#[test]
fn equal_weights_select_as_ever() {
    let agents = agents(&[7; 5]);
    let picked: String = (0..40)
        .map(|n| by_client_address(client(n * 7919), &agents).unwrap().name.as_str().chars().last().unwrap())
        .collect();
    assert_eq!(picked, "3224424121114132314212310004232323201130");
}

#[test]
fn a_mapped_address_is_the_same_client() {
    let agents = agents(&[3, 1, 4, 1, 5, 9, 2]);
    let v4 = Ipv4Addr::new(192, 0, 2, 7);
    assert_eq!(by_client_address(v4.into(), &agents), by_client_address(v4.to_ipv6_mapped().into(), &agents));
    let prefix = ClientPrefix::new(24, 56).unwrap();
    assert_eq!(prefix.network(v4.to_ipv6_mapped().into()), IpAddr::from([192, 0, 2, 0]));
}

#[test]
fn prefixes_have_bounds() {
    assert_eq!(ClientPrefix::new(32, 128), Ok(ClientPrefix::default()));
    assert!(ClientPrefix::new(1, 1).is_ok());
    assert_eq!(ClientPrefix::new(33, 64).unwrap_err().to_string(), "a prefix has 1 to 32 bits, not 33");
    assert_eq!(ClientPrefix::new(24, 0).unwrap_err().to_string(), "a prefix has 1 to 128 bits, not 0");
    assert!(ClientPrefix::new(0, 64).is_err() && ClientPrefix::new(24, 129).is_err());
}

#[test]
fn an_agent_that_starts_slowly_gets_more_and_more() {
    let mut agents = agents(&[1, 1]);
    let mut last = 0;
    for (ago_ms, share) in [(0, 1), (100, 100), (500, 500), (1000, 1000), (5000, 1000)] {
        agents[1].slow_start = Some((Duration::from_millis(ago_ms), Duration::from_secs(1)));
        for policy in [HandshakePolicy::RoundRobin, HandshakePolicy::Weighted, HandshakePolicy::ClientAddress] {
            let mut turns = Turns::default();
            let counts = counts(&agents, |client| policy.pick(&mut turns, client, &agents));
            assert!(near(counts[1], share, 1000 + share), "{policy:?} after {ago_ms} ms: {counts:?}");
            if policy == HandshakePolicy::RoundRobin {
                assert!(counts[1] >= last);
                last = counts[1];
            }
        }
    }
}

#[test]
fn a_slow_agent_gets_little_until_it_is_forgotten() {
    let now = Instant::now();
    let [mut quick, mut slow] = [ResponseAverage::default(), ResponseAverage::default()];
    quick.observe(now, Duration::from_millis(2));
    slow.observe(now, Duration::from_millis(50));
    let mut agents = agents(&[1, 1]);
    let mut pick = |later_s: u64| {
        let now = now + Duration::from_secs(later_s);
        quick.observe(now, Duration::from_millis(2));
        (agents[0].response, agents[1].response) = (quick.at(now), slow.at(now));
        HandshakePolicy::ShortestResponse.pick(&mut Turns::default(), client(1), &agents).unwrap().name.clone()
    };
    assert_eq!((pick(0), pick(1), pick(20)), ("agent-0".to_owned(), "agent-0".to_owned(), "agent-0".to_owned()));
    assert_eq!(pick(60), "agent-1", "it may have recovered");
}

/// An agent without an answer yet has no response time, and must not get all handshakes.
#[test]
fn an_agent_that_has_yet_to_answer_is_not_flooded() {
    let mut agents = agents(&[1, 1]);
    agents[0].response = Duration::from_millis(2);
    let mut turns = Turns::default();
    for _ in 0..100 {
        let picked = HandshakePolicy::ShortestResponse.pick(&mut turns, client(1), &agents).unwrap().name.clone();
        agents.iter_mut().find(|agent| agent.name == picked).unwrap().unanswered += 1;
    }
    assert!(agents.iter().all(|agent| agent.unanswered > 0), "{agents:?}");
}

#[test]
fn health_falls_and_rises_after_so_many_in_a_row() {
    let thresholds = HealthThresholds { fall: 3, rise: 2 };
    let mut health = Health::default();
    let outcomes = "..x.xx.xxx x.x..x.xxx";
    let changes: Vec<_> = outcomes
        .chars()
        .filter(|outcome| *outcome != ' ')
        .enumerate()
        .filter_map(|(at, outcome)| Some((at, health.checked(outcome == '.', thresholds)?)))
        .collect();
    assert_eq!(changes, [(9, Change::Fell), (14, Change::Rose), (19, Change::Fell)]);
    assert!(!health.is_healthy());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn turns_follow_weights_exactly(weights in weights()) {
        let agents = agents(&weights);
        let total: u32 = weights.iter().sum();
        let mut turns = Turns::default();
        let mut picked = vec![0_u32; agents.len()];
        for _ in 0..total * 3 {
            let agent = HandshakePolicy::Weighted.pick(&mut turns, client(1), &agents).unwrap();
            picked[agents.iter().position(|other| other == agent).unwrap()] += 1;
        }
        let expected: Vec<_> = weights.iter().map(|weight| weight * 3).collect();
        prop_assert_eq!(picked, expected);
    }

    /// For any available agents, in any order.
    #[test]
    fn turns_are_counted_by_name(weights in weights(), rounds in vec((any::<u8>(), 0..6_usize, any::<bool>()), 1..50)) {
        let agents = agents(&weights);
        let mut turns = Turns::default();
        let mut credits: HashMap<String, i64> = HashMap::new();
        for (here, first, reversed) in rounds {
            let mut available: Vec<_> = (0..agents.len()).filter(|n| here & 1 << n != 0).map(|n| &agents[n]).collect();
            let count = available.len();
            available.rotate_left(first.min(count));
            if reversed {
                available.reverse();
            }
            let mut richest: Option<&Agent> = None;
            for agent in &available {
                *credits.entry(agent.name.clone()).or_default() += i64::from(agent.weight);
                if richest.is_none_or(|richest| credits[&agent.name] > credits[&richest.name]) {
                    richest = Some(agent);
                }
            }
            let picked = turns.next(available.iter().copied(), |agent| agent.weight.into());
            prop_assert_eq!(picked, richest);
            if let Some(picked) = picked {
                let earned: i64 = available.iter().map(|agent| i64::from(agent.weight)).sum();
                *credits.get_mut(&picked.name).unwrap() -= earned;
            }
        }
    }

    #[test]
    fn shares_of_addresses_follow_weights(weights in weights()) {
        let agents = agents(&weights);
        let total = weights.iter().sum();
        let counts = counts(&agents, |client| by_client_address(client, &agents));
        for (count, weight) in counts.iter().zip(&weights) {
            prop_assert!(near(*count, *weight, total), "{:?} of {:?}", counts, weights);
        }
    }

    #[test]
    fn least_connections_never_picks_a_fuller_agent(
        agents in vec((1..=20_u32, 0..50_usize), 1..8), picks in 1..20_usize,
    ) {
        let weights: Vec<_> = agents.iter().map(|(weight, _)| *weight).collect();
        let mut candidates = super::tests::agents(&weights);
        for (candidate, (_, connections)) in candidates.iter_mut().zip(&agents) {
            candidate.connections = *connections;
        }
        let mut turns = Turns::default();
        for _ in 0..picks {
            let picked = HandshakePolicy::LeastConnections.pick(&mut turns, client(1), &candidates).unwrap().clone();
            for other in &candidates {
                let (mine, others) = (picked.connections as u64, other.connections as u64);
                prop_assert!(mine * u64::from(other.weight) <= others * u64::from(picked.weight));
            }
            candidates.iter_mut().find(|other| other.name == picked.name).unwrap().connections += 1;
        }
    }

    #[test]
    fn only_the_clients_of_a_lost_agent_move(client: [u8; 16], weights in vec(1..=20_u32, 5), lost in 0_usize..5) {
        let all = agents(&weights);
        let before = by_client_address(IpAddr::from(client), &all).unwrap();
        let mut left = all.clone();
        let gone = left.remove(lost);
        let after = by_client_address(IpAddr::from(client), &left).unwrap();
        prop_assert!(*before == gone || before == after);
    }

    /// An agent in slow start takes over only its own clients. The clients of other agents stay.
    #[test]
    fn more_weight_only_draws_clients_to_itself(client: [u8; 4], weights in vec(1..=20_u32, 5), grown in 0_usize..5) {
        let before = agents(&weights);
        let mut after = before.clone();
        after[grown].weight += 1;
        let picked = |agents: &[Agent]| by_client_address(IpAddr::from(client), agents).unwrap().name.clone();
        let (first, then) = (picked(&before), picked(&after));
        prop_assert!(then == first || then == after[grown].name);
    }

    #[test]
    fn the_order_of_agents_does_not_matter(client: [u8; 4], weights in vec(1..=20_u32, 5)) {
        let agents = agents(&weights);
        let reversed: Vec<_> = agents.iter().rev().cloned().collect();
        prop_assert_eq!(
            by_client_address(IpAddr::from(client), &agents),
            by_client_address(IpAddr::from(client), &reversed)
        );
    }

    #[test]
    fn a_prefix_keeps_a_network_together(a: u128, b: u128, ipv4 in 1..=32_u8, ipv6 in 1..=128_u8) {
        let prefix = ClientPrefix::new(ipv4, ipv6).unwrap();
        // The same network, and an address that differs in the last bit of the prefix.
        let host = |bits: u128, len: u8| if len == 128 { bits } else { bits | b & (u128::MAX >> len) };
        let network = |bits: u128| prefix.network(Ipv6Addr::from_bits(bits).into());
        let outside = Ipv4Addr::from_bits(0).to_ipv6_mapped().to_bits() >> 32;
        prop_assume!(a >> 32 != outside);
        let neighbour = a ^ 1 << (128 - ipv6);
        prop_assume!(neighbour >> 32 != outside);
        prop_assert_eq!(network(host(a, ipv6)), network(a | host(0, ipv6)));
        prop_assert_ne!(network(neighbour), network(a));

        let (a, b) = (a as u32, b as u32);
        let host = if ipv4 == 32 { a } else { a & u32::MAX << (32 - ipv4) | b & (u32::MAX >> ipv4) };
        let network = |bits: u32| prefix.network(Ipv4Addr::from_bits(bits).into());
        prop_assert_eq!(network(host), network(a));
        prop_assert_ne!(network(a ^ 1 << (32 - ipv4)), network(a));
    }

    #[test]
    fn an_average_lies_between_what_was_seen_and_falls(
        seen in vec((0..5_000_u64, 1..1_000_000_u64), 1..30), later_ms in 1..60_000_u64,
    ) {
        let mut now = Instant::now();
        let mut average = ResponseAverage::default();
        for (pause_ms, response_us) in &seen {
            now += Duration::from_millis(*pause_ms);
            average.observe(now, Duration::from_micros(*response_us));
        }
        let times = || seen.iter().map(|(_, response_us)| Duration::from_micros(*response_us));
        let rounding = Duration::from_nanos(100);
        prop_assert!(average.at(now) + rounding >= times().min().unwrap());
        prop_assert!(average.at(now) <= times().max().unwrap() + rounding);
        prop_assert!(average.at(now + Duration::from_millis(later_ms)) < average.at(now));
    }
}
