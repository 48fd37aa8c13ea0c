//! When connections move by themselves, from agents with more than their share of the load to agents with less.
//!
//! ```text
//!          an agent is BEGIN above its share for SETTLE
//!   Even -----------------------------------------------> Uneven: plans transfers
//!    ^                                                       |
//!    '------- no agent is more than END above its share -----'
//! ```
//!
//! Four things keep connections from moving back and forth. Loads are smoothed, if they vary. Begin and end differ
//! (hysteresis). An imbalance has to last before anything moves. And a budget bounds the moves of any ten minutes.
//!
//! A load that swings slowly still costs moves: by more than [`BEGIN`], and for longer than [`SETTLE`]. It moves half
//! of the connections at first, and then half of them in ten minutes. The caller lets each connection stay for a while
//! after a move: if that is a minute, no connection moves more than ten times in ten minutes.

// Numbers of connections are far below 2^52.
#![allow(clippy::cast_precision_loss)]

use std::collections::BTreeMap;
use std::time::Duration;

/// The excess over an agent's share at which moves begin and end: 20 % and 5 %. Loads that differ by 15 % from their
/// share do not move.
const BEGIN: f64 = 0.2;
const END: f64 = 0.05;

/// The least excess of an agent in connections. One connection more or less is no imbalance.
const CONNECTIONS_MIN: f64 = 2.0;

/// How long an imbalance has to last before anything moves.
const SETTLE: Duration = Duration::from_secs(3);

/// The most connections that move in a second, as a share of all, and at least so many.
const RATE_SHARE: f64 = 0.02;
const RATE_MIN: f64 = 10.0;

/// The budget of moves: a share of all connections, and at least so many. What is spent comes back within
/// [`BUDGET_PERIOD`], so that no period of that length has more than twice as many moves.
const BUDGET_SHARE: f64 = 0.5;
const BUDGET_MIN: f64 = 10.0;
const BUDGET_PERIOD: Duration = Duration::from_mins(10);

/// What the load of an agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadKind {
    /// The number of connections.
    Connections,
    /// The bytes of the last second.
    Bytes,
}

impl LoadKind {
    /// The weight of a new measurement in the smoothed load.
    fn weight_of_new(self) -> f64 {
        match self {
            Self::Connections => 1.0,
            Self::Bytes => 0.2,
        }
    }

    /// The share of the excess that one call moves. The load of the chosen connections may change after the move.
    fn gain(self) -> f64 {
        match self {
            Self::Connections => 1.0,
            Self::Bytes => 0.5,
        }
    }
}

/// An agent that may give connections away and get some: it is available and not drained.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentLoad<N> {
    pub name: N,
    /// Its share of the load in relation to others; not 0.
    pub weight: u32,
    /// In units of a [`LoadKind`].
    pub load: f64,
    pub connections: usize,
    /// The number of connections that it may get.
    pub room: usize,
}

/// Connections that are to move from one agent to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Transfer<N> {
    pub from: N,
    pub to: N,
    /// The most connections.
    pub connections: usize,
    /// The load that is to move, in units of a [`LoadKind`].
    pub load: f64,
}

/// Plans transfers. The caller asks once a second, and reports the loads as they are. Transfers are made by the next
/// call, or not at all.
#[derive(Debug)]
pub struct Rebalancer<N> {
    state: RebalancerState,
    smoothed: BTreeMap<N, f64>,
    /// The time of the last call.
    last: Option<Duration>,
    /// Connections that may move now, by the rate.
    rate: f64,
    /// Connections that have moved and are not forgotten yet. The budget bounds them.
    spent: f64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum RebalancerState {
    #[default]
    Even,
    /// An agent has too much since this time.
    Settling(Duration),
    Uneven,
}

/// An agent's distance from its share, in units of load.
struct Distance<'a, N> {
    agent: &'a AgentLoad<N>,
    /// The smoothed load.
    load: f64,
    excess: f64,
    share: f64,
}

impl<N> Default for Rebalancer<N> {
    fn default() -> Self {
        Self { state: RebalancerState::Even, smoothed: BTreeMap::new(), last: None, rate: 0.0, spent: 0.0 }
    }
}

impl<N: Ord + Clone> Rebalancer<N> {
    /// The transfers to begin at `now`, the time since any fixed moment.
    pub fn plan(&mut self, now: Duration, kind: LoadKind, agents: &[AgentLoad<N>]) -> Vec<Transfer<N>> {
        let connections: usize = agents.iter().map(|agent| agent.connections).sum();
        let allowed = self.allowed(now, connections as f64);
        self.smooth(kind, agents);
        let distances = distances(agents, &self.smoothed);
        self.follow(now, &distances);
        if self.state != RebalancerState::Uneven {
            return Vec::new();
        }
        let transfers = transfers(&distances, kind.gain(), allowed);
        let moved: usize = transfers.iter().map(|transfer| transfer.connections).sum();
        self.rate -= moved as f64;
        self.spent += moved as f64;
        for Transfer { from, to, load, .. } in &transfers {
            // The next measurements contain the transfer, so that the smoothed load has to.
            self.shift(from, -load);
            self.shift(to, *load);
        }
        transfers
    }

    /// Takes connections back out of the rate and the budget, which planned transfers did not need: fewer had the load.
    pub fn take_back(&mut self, connections: usize) {
        self.rate += connections as f64;
        self.spent -= connections as f64;
    }

    fn smooth(&mut self, kind: LoadKind, agents: &[AgentLoad<N>]) {
        self.smoothed.retain(|name, _| agents.iter().any(|agent| agent.name == *name));
        for AgentLoad { name, load, .. } in agents {
            let smoothed = self.smoothed.entry(name.clone()).or_insert(*load);
            *smoothed += kind.weight_of_new() * (load - *smoothed);
        }
    }

    fn shift(&mut self, name: &N, load: f64) {
        self.smoothed.entry(name.clone()).and_modify(|smoothed| *smoothed += load);
    }

    /// The number of connections that may move now, by the rate and by the budget.
    fn allowed(&mut self, now: Duration, connections: f64) -> usize {
        let (per_s, most) = ((connections * RATE_SHARE).max(RATE_MIN), (connections * BUDGET_SHARE).max(BUDGET_MIN));
        let elapsed = self.last.replace(now).map_or(1.0, |last| now.saturating_sub(last).as_secs_f64());
        self.rate = (self.rate + per_s * elapsed).min(per_s);
        self.spent = (self.spent - most * elapsed / BUDGET_PERIOD.as_secs_f64()).max(0.0);
        #[expect(clippy::cast_sign_loss, reason = "it is not below 0")]
        let allowed = self.rate.min(most - self.spent).max(0.0) as usize;
        allowed
    }

    fn follow(&mut self, now: Duration, distances: &[Distance<'_, N>]) {
        let is_above = |limit: f64| distances.iter().any(|distance| distance.is_above(limit));
        self.state = match self.state {
            RebalancerState::Uneven if is_above(END) => RebalancerState::Uneven,
            RebalancerState::Settling(since) if is_above(BEGIN) && now.saturating_sub(since) >= SETTLE => {
                RebalancerState::Uneven
            }
            RebalancerState::Settling(since) if is_above(BEGIN) => RebalancerState::Settling(since),
            RebalancerState::Even if is_above(BEGIN) => RebalancerState::Settling(now),
            _ => RebalancerState::Even,
        };
    }
}

impl<N> Distance<'_, N> {
    /// Whether the agent is above its share by more than `limit`, and by enough connections.
    fn is_above(&self, limit: f64) -> bool {
        self.excess > limit * self.share && self.in_connections(self.excess) >= CONNECTIONS_MIN
    }

    /// The number of this agent's connections, on average, that have this load.
    fn in_connections(&self, load: f64) -> f64 {
        load * self.agent.connections as f64 / self.load.max(f64::MIN_POSITIVE)
    }
}

fn distances<'a, N: Ord>(agents: &'a [AgentLoad<N>], smoothed: &BTreeMap<N, f64>) -> Vec<Distance<'a, N>> {
    let load = |agent: &AgentLoad<N>| smoothed.get(&agent.name).copied().unwrap_or(agent.load);
    let total: f64 = agents.iter().map(load).sum();
    let weights: f64 = agents.iter().map(|agent| f64::from(agent.weight)).sum();
    let shares = agents.iter().map(|agent| (agent, total * f64::from(agent.weight) / weights));
    shares.map(|(agent, share)| Distance { agent, load: load(agent), excess: load(agent) - share, share }).collect()
}

/// Pairs the agents with the largest excess with those that lack most, for at most `allowed` connections.
fn transfers<N: Clone>(distances: &[Distance<'_, N>], gain: f64, mut allowed: usize) -> Vec<Transfer<N>> {
    let mut givers: Vec<_> = distances.iter().filter(|distance| distance.excess > 0.0).collect();
    givers.sort_by(|a, b| b.excess.total_cmp(&a.excess));
    let mut takers: Vec<_> = distances
        .iter()
        .filter(|distance| distance.excess < 0.0)
        .map(|distance| (distance.agent, -distance.excess, distance.agent.room))
        .collect();
    takers.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut transfers = Vec::new();
    for giver in givers {
        let mut excess = giver.excess * gain;
        for (taker, lack, room) in &mut takers {
            let load = excess.min(*lack);
            #[expect(clippy::cast_sign_loss, reason = "no load is below 0")]
            let connections = (giver.in_connections(load).floor() as usize).min(*room).min(allowed);
            if connections == 0 {
                continue;
            }
            let load = load.min(connections as f64 * giver.load / giver.agent.connections as f64);
            excess -= load;
            *lack -= load;
            *room -= connections;
            allowed -= connections;
            transfers.push(Transfer { from: giver.agent.name.clone(), to: taker.name.clone(), connections, load });
        }
    }
    transfers
}

#[cfg(test)]
mod tests;
