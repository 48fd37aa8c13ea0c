//! Many nodes, a network that loses, delays and reorders messages, and clients that come back at once or later.

mod world;

use super::*;
use world::World;

/// The faults of the network.
#[derive(Debug, Clone, Copy)]
struct Network {
    loss_percent: u64,
    /// Most messages are much faster than the slowest. No message waits for another.
    delay_ms_max: u64,
}

/// Whether nodes leave, and come back empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Churn {
    None,
    /// Every five seconds a node leaves, or the one that left comes back. Each other node gets the change within 100
    /// ms, independently.
    OneAtATime,
}

#[derive(Debug, Clone, Default)]
struct Report {
    put: u64,
    /// Messages with [`Request::Put`] or [`Answer::Stored`].
    put_messages: u64,
    resumed: u64,
    /// Not resumed: a node came or left while the session was being sent to its owners.
    excused: u64,
    /// Not resumed, without excuse: the client, and the outcome of the search.
    lost: Vec<(usize, Outcome)>,
    changes: u64,
    put_ms_max: u64,
    search_ms_max: u64,
}

impl Report {
    fn add(&mut self, other: &Self) {
        self.put += other.put;
        self.put_messages += other.put_messages;
        self.resumed += other.resumed;
        self.excused += other.excused;
        self.changes += other.changes;
        self.put_ms_max = self.put_ms_max.max(other.put_ms_max);
        self.search_ms_max = self.search_ms_max.max(other.search_ms_max);
    }
}

const ROUGH: Network = Network { loss_percent: 5, delay_ms_max: 500 };
const CALM: Network = Network { loss_percent: 5, delay_ms_max: 20 };
const QUIET: Network = Network { loss_percent: 0, delay_ms_max: 20 };

fn run(seed: u64, nodes: usize, placement: Placement, network: Network, churn: Churn) -> Report {
    World::new(seed, nodes, placement, network, churn).run()
}

/// The sum of the runs with these seeds.
fn run_all(nodes: usize, placement: Placement, network: Network, churn: Churn) -> Report {
    let mut sum = Report::default();
    for seed in 0..SEEDS {
        let report = run(seed, nodes, placement, network, churn);
        assert_eq!(report.lost, [], "seed {seed}, {nodes} nodes, {placement:?}");
        sum.add(&report);
    }
    sum
}

const SEEDS: u64 = 20;
const BOTH: [Placement; 2] = [Placement::Owner, Placement::Push];

#[test]
fn a_client_that_comes_back_at_once_is_known_at_every_node() {
    for placement in BOTH {
        for nodes in [2, 3, 5, 12] {
            let report = run_all(nodes, placement, ROUGH, Churn::None);
            assert!(report.resumed >= 1_000 && report.excused == 0, "{report:?}");
            assert!(report.search_ms_max <= 1_000 && report.put_ms_max <= 1_550, "{report:?}");
        }
    }
}

#[test]
fn members_come_and_go_and_clients_are_still_known() {
    for placement in BOTH {
        for nodes in [4, 7, 12] {
            let report = run_all(nodes, placement, ROUGH, Churn::OneAtATime);
            assert!(report.resumed >= 1_000 && report.changes >= 100, "{report:?}");
            // A node came or left while a session was being sent to its owners.
            assert!(report.excused * 200 <= report.resumed, "{report:?}");
        }
    }
}

#[test]
fn what_owners_cost_does_not_grow_with_the_cluster() {
    for nodes in [5, 50] {
        let lossy = run(1, nodes, Placement::Owner, CALM, Churn::None);
        assert!(lossy.put_messages <= 5 * lossy.put, "{lossy:?}");
        let quiet = run(1, nodes, Placement::Owner, QUIET, Churn::None);
        assert!(quiet.put_messages <= 4 * quiet.put, "two copies, two acknowledgements: {quiet:?}");
    }
    let push = run(1, 50, Placement::Push, QUIET, Churn::None);
    assert_eq!(push.put_messages, 2 * 49 * push.put, "a copy and an acknowledgement of each other");
}
