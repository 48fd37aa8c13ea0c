#![allow(clippy::unwrap_used, clippy::cast_sign_loss)]

use proptest::prelude::*;

use super::*;

/// Agents with connections of equal load, and the rebalancer that moves them. Moves take effect at once.
struct Cluster {
    rebalancer: Rebalancer<usize>,
    connections: Vec<f64>,
    weights: Vec<u32>,
    moves: usize,
    now: Duration,
}

impl Cluster {
    fn new(agents: &[(f64, u32)]) -> Self {
        let (connections, weights) = agents.iter().copied().unzip();
        Self { rebalancer: Rebalancer::default(), connections, weights, moves: 0, now: Duration::ZERO }
    }

    /// Lets a second pass, in which the loads differ by these factors from the numbers of connections.
    fn pass(&mut self, kind: LoadKind, factors: &[f64]) -> Vec<Transfer<usize>> {
        self.now += Duration::from_secs(1);
        let agents: Vec<_> = (0..self.connections.len())
            .map(|name| AgentLoad {
                name,
                weight: self.weights[name],
                load: self.connections[name] * factors[name],
                connections: self.connections[name] as usize,
                room: usize::MAX,
            })
            .collect();
        let transfers = self.rebalancer.plan(self.now, kind, &agents);
        for Transfer { from, to, connections, .. } in &transfers {
            self.connections[*from] -= *connections as f64;
            self.connections[*to] += *connections as f64;
            self.moves += connections;
        }
        transfers
    }

    fn pass_s(&mut self, kind: LoadKind, seconds: usize) {
        let even = vec![1.0; self.connections.len()];
        for _ in 0..seconds {
            self.pass(kind, &even);
        }
    }

    /// The largest relative distance of an agent from its share.
    fn distance(&self) -> f64 {
        let total: f64 = self.connections.iter().sum();
        let weights: f64 = self.weights.iter().copied().map(f64::from).sum();
        let distance = |(connections, weight): (&f64, &u32)| {
            let share = total * f64::from(*weight) / weights;
            (connections - share).abs() / share
        };
        self.connections.iter().zip(&self.weights).map(distance).fold(0.0, f64::max)
    }
}

/// How long the dispatcher lets a connection stay after a move.
const STAY_MIN: Duration = Duration::from_mins(1);

/// The connections of two agents one by one. The planned transfers take the same ones first, as soon as they may move.
struct Individuals {
    rebalancer: Rebalancer<usize>,
    connections: Vec<Individual>,
}

#[derive(Clone, Default)]
struct Individual {
    agent: usize,
    moved: Option<Duration>,
    moves: usize,
}

impl Individuals {
    fn new(of_each_agent: usize) -> Self {
        let at = |agent| vec![Individual { agent, ..Individual::default() }; of_each_agent];
        Self { rebalancer: Rebalancer::default(), connections: [at(0), at(1)].concat() }
    }

    /// At `now`, each connection has the load of its agent.
    fn pass(&mut self, now: Duration, loads: [f64; 2]) {
        let agents = [0, 1].map(|name| {
            let connections = self.connections.iter().filter(|connection| connection.agent == name).count();
            AgentLoad { name, weight: 1, load: connections as f64 * loads[name], connections, room: usize::MAX }
        });
        for Transfer { from, to, connections, .. } in self.rebalancer.plan(now, LoadKind::Bytes, &agents) {
            let has_stayed = |moved: Option<Duration>| moved.is_none_or(|moved| moved + STAY_MIN <= now);
            let may_move = |each: &&mut Individual| each.agent == from && has_stayed(each.moved);
            let mut left = connections;
            for each in self.connections.iter_mut().filter(may_move).take(connections) {
                *each = Individual { agent: to, moved: Some(now), moves: each.moves + 1 };
                left -= 1;
            }
            self.rebalancer.take_back(left);
        }
    }
}

#[test]
fn seventy_to_thirty_is_even_after_thirty_seconds() {
    for kind in [LoadKind::Connections, LoadKind::Bytes] {
        for connections in [40.0, 1_000.0, 8_000.0] {
            let mut cluster = Cluster::new(&[(0.7 * connections, 1), (0.3 * connections, 1)]);
            cluster.pass_s(kind, 30);
            assert!(cluster.distance() <= 0.1, "{kind:?} {:?}", cluster.connections);
            assert!(cluster.moves as f64 <= 0.21 * connections, "{} moves", cluster.moves);
        }
    }
}

#[test]
fn shares_follow_the_weights() {
    let mut cluster = Cluster::new(&[(400.0, 1), (400.0, 3)]);
    cluster.pass_s(LoadKind::Connections, 30);
    assert!(cluster.distance() <= 0.1, "{:?}", cluster.connections);
}

#[test]
fn an_agent_that_joins_gets_its_share() {
    let mut cluster = Cluster::new(&[(500.0, 1), (500.0, 1), (0.0, 1)]);
    cluster.pass_s(LoadKind::Connections, 60);
    assert!(cluster.distance() <= 0.1, "{:?}", cluster.connections);
}

/// The budget follows the number of connections, which may have been small before.
#[test]
fn connections_that_come_later_move_as_well() {
    let mut cluster = Cluster::new(&[(0.0, 1), (0.0, 1)]);
    cluster.pass_s(LoadKind::Connections, 10);
    cluster.connections[0] = 40.0;
    cluster.pass_s(LoadKind::Connections, 30);
    assert!(cluster.distance() <= 0.1, "{:?}", cluster.connections);
}

#[test]
fn an_agent_at_its_limit_gets_nothing() {
    let agent = |name, load: f64, room| AgentLoad { name, weight: 1, load, connections: load as usize, room };
    let mut rebalancer = Rebalancer::default();
    let agents = [agent("a", 90.0, 9), agent("b", 10.0, 0), agent("c", 20.0, 3)];
    let plan = |rebalancer: &mut Rebalancer<&'static str>, s| {
        rebalancer.plan(Duration::from_secs(s), LoadKind::Connections, &agents)
    };
    assert!((0..3).all(|s| plan(&mut rebalancer, s).is_empty()), "it has to last");
    let transfers = plan(&mut rebalancer, 3);
    assert_eq!(transfers, [Transfer { from: "a", to: "c", connections: 3, load: 3.0 }]);
}

#[test]
fn few_connections_do_not_move_back_and_forth() {
    for (few, more) in [(0.0, 1.0), (1.0, 2.0), (1.0, 3.0), (0.0, 3.0)] {
        let mut cluster = Cluster::new(&[(few, 1), (more, 1)]);
        cluster.pass_s(LoadKind::Connections, 60);
        assert!(cluster.moves == 0, "{few} {more}: {}", cluster.moves);
    }
}

#[test]
fn connections_that_are_taken_back_do_not_count_to_the_budget() {
    let agent = |name, connections| AgentLoad { name, weight: 1, load: connections as f64, connections, room: 100 };
    let agents = [agent(0, 40), agent(1, 0)];
    let planned = |is_taken_back: bool| {
        let mut rebalancer = Rebalancer::default();
        let second = |second| {
            let transfers = rebalancer.plan(Duration::from_secs(second), LoadKind::Connections, &agents);
            let connections = transfers.iter().map(|transfer| transfer.connections).sum();
            if is_taken_back {
                rebalancer.take_back(connections);
            }
            connections
        };
        (0..60).map(second).sum::<usize>()
    };
    // Half of the connections, and a tenth of that in a minute.
    assert!((18..=22).contains(&planned(false)), "{}", planned(false));
    assert!(planned(true) > 100, "{}", planned(true));
}

proptest! {
    /// Noise of 15 % moves nothing within ten minutes.
    #[test]
    fn noise_moves_nothing(
        noise in prop::collection::vec(prop::array::uniform3(-0.15_f64..0.15), 600),
        kind in prop_oneof![Just(LoadKind::Connections), Just(LoadKind::Bytes)],
    ) {
        let mut cluster = Cluster::new(&[(1_000.0, 1), (1_000.0, 1), (2_000.0, 2)]);
        for factors in noise {
            let transfers = cluster.pass(kind, &factors.map(|factor| 1.0 + factor));
            prop_assert!(transfers.is_empty(), "{transfers:?}");
        }
    }

    /// A load that swings from one agent to the other moves at most what the budget permits.
    #[test]
    fn a_swinging_load_stays_within_the_budget(period_s in 2_usize..600, amplitude in 0.2_f64..0.9) {
        let mut cluster = Cluster::new(&[(1_000.0, 1), (1_000.0, 1)]);
        for second in 0..600 {
            let swing = amplitude * (std::f64::consts::TAU * f64::from(second) / period_s as f64).sin();
            cluster.pass(LoadKind::Bytes, &[1.0 + swing, 1.0 - swing]);
        }
        prop_assert!(cluster.moves <= 2_000, "{} moves", cluster.moves);
        // What changes sooner than an imbalance has to last moves nothing.
        prop_assert!(period_s > 6 || cluster.moves == 0, "{} moves at {period_s} s", cluster.moves);
    }

    /// In ten minutes, each connection moves once a minute at most, and all together by the budget and what comes back.
    #[test]
    fn a_slow_swing_moves_each_connection_a_few_times(period_s in 10_usize..600, amplitude in 0.3_f64..0.9) {
        let mut cluster = Individuals::new(100);
        for second in 0..600_u32 {
            let swing = amplitude * (std::f64::consts::TAU * f64::from(second) / period_s as f64).sin();
            cluster.pass(Duration::from_secs(second.into()), [1.0 + swing, 1.0 - swing]);
        }
        let moves = || cluster.connections.iter().map(|connection| connection.moves);
        prop_assert!(moves().all(|moves| moves <= 10), "{:?}", moves().max());
        prop_assert!(moves().sum::<usize>() <= 200, "{} moves", moves().sum::<usize>());
    }

    #[test]
    fn no_transfer_exceeds_what_is_there(
        loads in prop::collection::vec((0.0_f64..1e9, 0_usize..5_000, 1_u32..1_000, 0_usize..1_000), 1..8),
    ) {
        let agent = |(name, (load, connections, weight, room))| AgentLoad { name, weight, load, connections, room };
        let agents: Vec<_> = loads.into_iter().enumerate().map(agent).collect();
        let mut rebalancer = Rebalancer::default();
        for second in 0..10 {
            let transfers = rebalancer.plan(Duration::from_secs(second), LoadKind::Bytes, &agents);
            for agent in &agents {
                let sum = |of: &dyn Fn(&Transfer<usize>) -> bool| -> usize {
                    transfers.iter().filter(|transfer| of(transfer)).map(|transfer| transfer.connections).sum()
                };
                prop_assert!(sum(&|transfer| transfer.from == agent.name) <= agent.connections);
                prop_assert!(sum(&|transfer| transfer.to == agent.name) <= agent.room);
            }
            prop_assert!(transfers.iter().all(|transfer| transfer.from != transfer.to && transfer.load > 0.0));
        }
    }
}
