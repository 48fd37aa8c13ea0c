//! The linked agents, and how long this agent waits for them after its start.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use watari_values::{NodeName, Role};

use crate::node::peers::Peers;

/// How long an agent that starts waits for others: for their keys, before it makes the first, and for links to agents
/// that may have the sessions that clients offer.
const JOIN_MAX: Duration = Duration::from_secs(2);

/// The agents with which this one shares sessions.
pub(super) struct LinkedAgents {
    peers: Peers,
    /// Whether sessions are shared at all.
    is_sharing: bool,
    started: Instant,
    agents: Mutex<BTreeSet<NodeName>>,
    /// Incremented when seeds arrive or an agent links, for tasks that wait for either.
    learned: watch::Sender<u64>,
}

/// Waits for seeds or agents.
pub(super) struct News(watch::Receiver<u64>);

impl News {
    /// Returns `false` at the deadline.
    pub(super) async fn next(&mut self, deadline: Instant) -> bool {
        matches!(timeout_at(deadline, self.0.changed()).await, Ok(Ok(())))
    }
}

impl LinkedAgents {
    pub(super) fn new(peers: Peers, is_sharing: bool) -> Self {
        let (learned, _) = watch::channel(0);
        Self { peers, is_sharing, started: Instant::now(), agents: Mutex::default(), learned }
    }

    pub(super) fn all(&self) -> BTreeSet<NodeName> {
        self.agents().clone()
    }

    /// Changes the agents. Returns all of them if `change` returns that they have changed.
    pub(super) fn change(&self, change: impl FnOnce(&mut BTreeSet<NodeName>) -> bool) -> Option<BTreeSet<NodeName>> {
        let mut agents = self.agents();
        change(&mut agents).then(|| agents.clone())
    }

    /// Wakes the tasks that wait for seeds or agents.
    pub(super) fn notify_learned(&self) {
        self.learned.send_modify(|learned| *learned += 1);
    }

    /// The seeds and agents that come from now on.
    pub(super) fn news(&self) -> News {
        News(self.learned.subscribe())
    }

    /// The end of the time for which this agent waits for others after its start.
    pub(super) fn join_deadline(&self) -> Instant {
        self.started + JOIN_MAX
    }

    /// The end of the time for which a handshake that begins now waits for keys.
    pub(super) fn wait_deadline() -> Instant {
        Instant::now() + JOIN_MAX
    }

    /// Whether this agent has just started, and links are still missing.
    pub(super) fn is_joining(&self) -> bool {
        self.is_sharing
            && Instant::now() < self.join_deadline()
            && self.peers.statuses().iter().any(|peer| peer.up_for.is_none())
    }

    /// Whether all agents that may have keys had the time to send them, or there are none.
    pub(super) fn is_joined(&self) -> bool {
        self.started.elapsed() >= JOIN_MAX || self.has_no_agents_to_join()
    }

    /// Whether there is no other agent that could have keys.
    fn has_no_agents_to_join(&self) -> bool {
        let peers = self.peers.statuses();
        // In an open mesh, agents that this node does not know yet may join, and they may have keys.
        let may_be_alone = !peers.is_empty() || !self.peers.is_open();
        may_be_alone && peers.iter().all(|peer| peer.up_for.is_some() && !peer.roles.contains(&Role::Agent))
    }

    fn agents(&self) -> MutexGuard<'_, BTreeSet<NodeName>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
