//! The settings that a configuration gives, and the condition of each agent.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use watari_balance::{Candidate, Change, Health, HealthThresholds};
use watari_values::NodeName;
use watari_wire::leg::LegSigner;

use crate::config::{AgentConfig, Config};
use crate::passthrough::Passthrough;

/// How long the dispatcher keeps an agent after it left the configuration. It is longer than any move to the agent may
/// take.
const RETIRED_MIN: Duration = Duration::from_secs(30);

/// How long after the loss of its link an agent may come back: a new process of it has taken over (`watari ctl
/// upgrade`). Usually that takes some milliseconds.
const RETURN_MAX: Duration = Duration::from_secs(2);

/// A configuration and its agents. It is immutable; a reload replaces it.
pub(crate) struct Settings {
    pub(crate) config: Config,
    pub(crate) passthrough: Arc<Passthrough>,
    known: BTreeMap<NodeName, Agent>,
}

/// An agent as configured. All settings that list the agent share its condition.
#[derive(Clone)]
pub(crate) struct Agent {
    pub(crate) config: AgentConfig,
    /// When the agent left the configuration.
    retired: Option<Instant>,
    condition: Arc<RwLock<Condition>>,
}

/// The data that the dispatcher has measured or received of an agent.
struct Condition {
    key: Option<Held>,
    /// When its link was lost.
    lost: Option<Instant>,
    health: Health,
    /// The start of `slow_start`: when the agent last became available.
    appeared: Instant,
}

/// The leg key that an agent sent. All prefaces under one key use one signer, because it counts them.
#[derive(Clone)]
pub(super) struct Key {
    pub(super) signer: Arc<LegSigner>,
    pub(super) handshakes: bool,
}

/// The leg key of an agent.
struct Held {
    key: Key,
    /// Whether the link that delivered the key is up. If it is not, the key still signs the prefaces of moves that are
    /// decided already.
    linked: bool,
}

impl Settings {
    pub(crate) fn new(config: Config) -> Self {
        let known = config.agents.iter().map(|agent| (agent.name.clone(), Agent::new(agent.clone()))).collect();
        Self { passthrough: Arc::new(Passthrough::new(&config.passthrough)), config, known }
    }

    /// The settings for a new `config`: agents that stay keep their condition, and agents that are gone are retired.
    pub(super) fn reloaded(&self, config: Config, now: Instant) -> Self {
        let mut new = Self::new(config);
        for (name, old) in &self.known {
            if let Some(agent) = new.known.get_mut(name) {
                agent.condition = old.condition.clone();
            } else {
                let retired = Agent { retired: old.retired.or(Some(now)), ..old.clone() };
                new.known.insert(name.clone(), retired);
            }
        }
        new
    }

    /// These settings without the agents in `forgotten`.
    pub(super) fn without(&self, forgotten: &[NodeName]) -> Self {
        let left = self.known.iter().filter(|(name, _)| !forgotten.contains(name));
        Self {
            config: self.config.clone(),
            passthrough: self.passthrough.clone(),
            known: left.map(|(name, agent)| (name.clone(), agent.clone())).collect(),
        }
    }

    /// All agents by name, including retired ones.
    pub(crate) fn agents(&self) -> impl Iterator<Item = (&NodeName, &Agent)> {
        self.known.iter()
    }

    pub(crate) fn agent(&self, name: &NodeName) -> Option<&Agent> {
        self.known.get(name)
    }
}

impl Agent {
    fn new(config: AgentConfig) -> Self {
        let condition = Condition { key: None, lost: None, health: Health::default(), appeared: Instant::now() };
        Self { config, retired: None, condition: Arc::new(RwLock::new(condition)) }
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.is_some()
    }

    pub(super) fn may_be_forgotten(&self, now: Instant) -> bool {
        self.retired.is_some_and(|since| now.duration_since(since) >= RETIRED_MIN)
    }

    pub(super) fn set_key(&self, key: Key, now: Instant) {
        let mut condition = self.condition_mut();
        if !condition.key.as_ref().is_some_and(|held| held.linked) {
            condition.appeared = now;
            // The agent has just sent the key. It may also be a new process, so the old checks do not count.
            condition.health = Health::default();
        }
        condition.key = Some(Held { key, linked: true });
        condition.lost = None;
    }

    pub(super) fn link_down(&self, now: Instant) {
        let mut condition = self.condition_mut();
        if let Some(held) = condition.key.as_mut() {
            held.linked = false;
            condition.lost = Some(now);
        }
    }

    /// Whether a new process of the agent may take its place soon.
    pub(super) fn may_return(&self, now: Instant) -> bool {
        let condition = self.condition();
        condition.health.is_healthy() && condition.lost.is_some_and(|lost| now.duration_since(lost) < RETURN_MAX)
    }

    pub(super) fn appears(&self, now: Instant) {
        self.condition_mut().appeared = now;
    }

    pub(super) fn checked(&self, succeeded: bool, thresholds: HealthThresholds, now: Instant) -> Option<Change> {
        let mut condition = self.condition_mut();
        let change = condition.health.checked(succeeded, thresholds);
        if change == Some(Change::Rose) {
            condition.appeared = now;
        }
        change
    }

    /// Whether the link is up and the agent has sent a leg key.
    pub(crate) fn is_linked(&self) -> bool {
        self.condition().key.as_ref().is_some_and(|held| held.linked)
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.condition().health.is_healthy()
    }

    pub(super) fn is_available(&self) -> bool {
        !self.is_retired() && self.is_linked() && self.is_healthy()
    }

    pub(super) fn does_handshakes(&self) -> bool {
        self.condition().key.as_ref().is_some_and(|held| held.key.handshakes)
    }

    pub(super) fn signer(&self) -> Option<Arc<LegSigner>> {
        self.condition().key.as_ref().map(|held| held.key.signer.clone())
    }

    pub(super) fn has_room_for_more_than(&self, connections: usize) -> bool {
        self.config.connections_max.is_none_or(|max| connections < NonZeroUsize::get(max))
    }

    /// The number of connections that it may get, if it has so many.
    pub(super) fn room(&self, connections: usize) -> usize {
        self.config.connections_max.map_or(usize::MAX, |max| max.get().saturating_sub(connections))
    }

    pub(super) fn candidate(&self, slow_start: Option<Duration>, now: Instant) -> Candidate<NodeName> {
        let appeared_ago = now.saturating_duration_since(self.condition().appeared);
        Candidate {
            weight: self.config.weight,
            slow_start: slow_start.map(|whole_after| (appeared_ago, whole_after)),
            ..Candidate::new(self.config.name.clone())
        }
    }

    fn condition(&self) -> RwLockReadGuard<'_, Condition> {
        self.condition.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn condition_mut(&self) -> RwLockWriteGuard<'_, Condition> {
        self.condition.write().unwrap_or_else(PoisonError::into_inner)
    }
}
