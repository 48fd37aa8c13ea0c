//! The agents: which of them are available, which of them gets a client, and connections (legs) to them.

mod settings;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::net::TcpStream;
use tokio::time::sleep;
use watari_balance::{AgentLoad, BulkPolicy, Candidate, Change, HandshakePolicy, LoadKind, by_client_address};
use watari_sys::tcp;
use watari_values::NodeName;
use watari_wire::LegKey;
use watari_wire::leg::{LegSigner, Preface};

use crate::config::Config;
use crate::drains::{AskedBy, Drains};
use crate::metrics::{InGauge, Metrics};
use crate::scheduler::{Place, QueuePosition, Schedule, Scheduler};
use crate::table::{Owned, Table};
pub(crate) use settings::Settings;
use settings::{Agent, Key};

/// How often a client without an agent looks for one.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The configured agents. An agent is available from the time it sends a leg key until its link is lost, unless its
/// checks fail, or it has left the configuration.
pub(crate) struct Agents {
    dispatcher: NodeName,
    /// Replaced as a whole by a reload.
    settings: RwLock<Arc<Settings>>,
    /// The keys of all linked peers, also of peers that the configuration does not list: a reload can add them.
    keys: Mutex<BTreeMap<NodeName, Key>>,
    scheduler: Arc<Scheduler>,
    pub(crate) drains: Drains,
}

/// The agents for a client, with a slot taken at each.
pub(crate) struct Assignment {
    /// The agent that does the handshake.
    pub(crate) handshake: Place,
    /// The agent that gets the connection after the handshake. `None`: the same agent.
    pub(crate) bulk: Option<Place>,
}

/// Why a client gets no agent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unassigned {
    /// No agent is available.
    NoAgent,
    /// All available agents are at their `connections_max`.
    AgentsFull,
    /// Other clients wait in the queue.
    NotItsTurn,
}

impl Unassigned {
    /// The reason as a metric label and log field.
    fn reason(self) -> &'static str {
        match self {
            Self::NoAgent => "no_agent",
            Self::AgentsFull => "agents_full",
            Self::NotItsTurn => "queue_full",
        }
    }
}

/// The configuration does not list the node as an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no such agent")]
pub struct UnknownAgent;

/// The status of an agent, as the dispatcher sees it.
#[derive(Debug, Clone, Serialize)]
pub struct AgentStatus {
    pub name: NodeName,
    /// The agent's listener for legs.
    pub legs: SocketAddr,
    /// Whether the dispatcher has a link and a leg key, the agent is in the configuration, and its checks do not fail.
    pub available: bool,
    /// The result of the checks since the link came up.
    pub healthy: bool,
    /// Whether the agent is being drained: it gets no new connections, and the dispatcher asks its connections to
    /// leave.
    pub draining: bool,
    /// The number of connections that it owns.
    pub connections: usize,
}

impl Agents {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            dispatcher: config.name.clone(),
            settings: RwLock::new(Arc::new(Settings::new(config))),
            keys: Mutex::default(),
            scheduler: Arc::default(),
            drains: Drains::default(),
        }
    }

    /// The settings in force. A later reload does not change the returned value.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the configuration. An agent that stays keeps its condition. An agent that is gone from the
    /// configuration is drained first.
    pub(crate) fn reload(&self, config: Config) {
        let now = Instant::now();
        let mut settings = self.settings.write().unwrap_or_else(PoisonError::into_inner);
        let reloaded = Arc::new(settings.reloaded(config, now));
        *settings = reloaded.clone();
        drop(settings);
        for (name, key) in &*self.keys() {
            if let Some(agent) = reloaded.agent(name).filter(|agent| !agent.is_linked()) {
                agent.set_key(key.clone(), now);
            }
        }
        for (name, agent) in reloaded.agents() {
            if agent.is_retired() {
                self.drains.begin(name, AskedBy::Configuration);
            } else {
                self.drains.end_if(name, AskedBy::Configuration);
            }
        }
        self.scheduler.retain(|name| reloaded.agent(name).is_some());
        self.scheduler.wake();
    }

    /// Removes the agents that have left the configuration and have no connections. Returns their names.
    pub(crate) fn forget_retired(&self, now: Instant) -> Vec<NodeName> {
        let mut settings = self.settings.write().unwrap_or_else(PoisonError::into_inner);
        let retired = settings.agents().filter(|(_, agent)| agent.may_be_forgotten(now)).map(|(name, _)| name);
        let forgotten: Vec<_> = retired.filter(|name| self.scheduler.connections(name) == 0).cloned().collect();
        if !forgotten.is_empty() {
            *settings = Arc::new(settings.without(&forgotten));
            for agent in &forgotten {
                self.drains.end(agent);
            }
            self.scheduler.retain(|name| settings.agent(name).is_some());
        }
        forgotten
    }

    /// Handles a leg key from `agent`: the dispatcher signs prefaces with it from now on.
    pub(crate) fn set_key(&self, agent: &NodeName, key: &LegKey) {
        let signer = Arc::new(LegSigner::new(self.dispatcher.clone(), agent, key));
        let key = Key { signer, handshakes: key.handshakes };
        self.keys().insert(agent.clone(), key.clone());
        if let Some(known) = self.settings().agent(agent) {
            known.set_key(key, Instant::now());
            self.scheduler.wake();
        }
    }

    /// Handles the loss of the link to `agent`: it gets no connections until it sends a leg key again.
    pub(crate) fn link_down(&self, agent: &NodeName) {
        self.keys().remove(agent);
        if let Some(known) = self.settings().agent(agent) {
            known.link_down(now());
        }
    }

    /// Ends the drain of `agent`, and returns whether there was one. An agent that has left the configuration counts as
    /// unknown: its connections still have to leave it.
    pub(crate) fn undrain(&self, agent: &NodeName) -> Result<bool, UnknownAgent> {
        let settings = self.settings();
        let known = settings.agent(agent).filter(|agent| !agent.is_retired()).ok_or(UnknownAgent)?;
        let was_draining = self.drains.end(agent);
        if was_draining {
            known.appears(Instant::now());
            self.scheduler.wake();
        }
        Ok(was_draining)
    }

    /// Handles the outcome of a check.
    pub(crate) fn checked(&self, agent: &NodeName, succeeded: bool) -> Option<Change> {
        let settings = self.settings();
        let change = settings.agent(agent)?.checked(succeeded, settings.config.checks.thresholds, Instant::now());
        if change == Some(Change::Rose) {
            self.scheduler.wake();
        }
        change
    }

    /// Selects the agents for a client. If none has a free slot, the client waits in the queue, if there is one. The
    /// error is a metric label.
    pub(crate) async fn place(&self, client: IpAddr, metrics: &Metrics) -> Result<Assignment, &'static str> {
        let settings = self.settings();
        let limits = &settings.config.limits;
        if limits.queue_max == 0 {
            return self.assign_soon(client, &[], QueuePosition::New).await.map_err(Unassigned::reason);
        }
        if let Ok(assignment) = self.assign(client, &[], QueuePosition::New) {
            return Ok(assignment);
        }
        let slot = self.scheduler.enter(limits.queue_max).ok_or("queue_full")?;
        let _waiting = InGauge::of(&metrics.queue_length, 1);
        let since = Instant::now();
        let waits = async {
            loop {
                if let Ok(assignment) = self.assign(client, &[], QueuePosition::Waits(&slot)) {
                    return assignment;
                }
                slot.called().await;
            }
        };
        let assignment = tokio::time::timeout(limits.queue_timeout, waits).await;
        metrics.queue_wait.observe(since.elapsed().as_secs_f64());
        assignment.map_err(|_| "queue_timeout")
    }

    /// Like [`Agents::assign`]. If no agent is available, waits for one that has lost its link just now.
    pub(crate) async fn assign_soon(
        &self,
        client: IpAddr,
        failed: &[NodeName],
        position: QueuePosition<'_>,
    ) -> Result<Assignment, Unassigned> {
        loop {
            match self.assign(client, failed, position) {
                Err(Unassigned::NoAgent) if self.may_one_return() => sleep(LOOK_INTERVAL).await,
                assigned => return assigned,
            }
        }
    }

    fn may_one_return(&self) -> bool {
        let now = now();
        self.settings().agents().any(|(name, agent)| agent.may_return(now) && !self.drains.contains(name))
    }

    /// Selects the agents for a client, and takes a slot at each. Skips the agents in `failed`.
    pub(crate) fn assign(
        &self,
        client: IpAddr,
        failed: &[NodeName],
        position: QueuePosition<'_>,
    ) -> Result<Assignment, Unassigned> {
        let settings = self.settings();
        let policies = &settings.config.policies;
        let client = policies.client_prefix.network(client);
        self.scheduler.with(|state| {
            if !state.is_turn_of(position) {
                return Err(Unassigned::NotItsTurn);
            }
            let shake_hands =
                self.with_room(&settings, state, |name, agent| agent.does_handshakes() && !failed.contains(name))?;
            let handshake = match policies.bulk {
                BulkPolicy::Off => by_client_address(client, &shake_hands),
                BulkPolicy::Stay | BulkPolicy::ClientAddress => {
                    policies.handshake.pick(&mut state.turns, client, &shake_hands)
                }
            };
            let handshake = &handshake.ok_or(Unassigned::NoAgent)?.name;
            let bulk = match policies.bulk {
                BulkPolicy::Off | BulkPolicy::Stay => None,
                BulkPolicy::ClientAddress => {
                    let all = self.with_room(&settings, state, |name, _| !failed.contains(name))?;
                    by_client_address(client, &all).map(|agent| agent.name.clone()).filter(|bulk| bulk != handshake)
                }
            };
            let bulk = bulk.map(|agent| state.take(&self.scheduler, &agent));
            Ok(Assignment { handshake: state.take(&self.scheduler, handshake), bulk })
        })
    }

    /// The agent to which a connection of `client` moves when its own agent is drained. Where the policy selects by
    /// address, it is the agent for the client's address. Otherwise it is the next agent in turn: a drain asks many
    /// connections to leave before the first has moved, so the agent with the fewest connections or the shortest
    /// response time would get all of them.
    pub(crate) fn successor(&self, client: IpAddr) -> Option<NodeName> {
        let settings = self.settings();
        let policies = &settings.config.policies;
        let client = policies.client_prefix.network(client);
        let policy = match (policies.bulk, policies.handshake) {
            (BulkPolicy::ClientAddress | BulkPolicy::Off, _) => HandshakePolicy::ClientAddress,
            (BulkPolicy::Stay, HandshakePolicy::LeastConnections | HandshakePolicy::ShortestResponse) => {
                HandshakePolicy::Weighted
            }
            (BulkPolicy::Stay, policy) => policy,
        };
        self.scheduler.with(|state| {
            let all = self.with_room(&settings, state, |_, _| true).ok()?;
            policy.pick(&mut state.turns, client, &all).map(|agent| agent.name.clone())
        })
    }

    /// Whether no agent can take connections of `agent` now, although another is configured and not being drained.
    pub(crate) fn hopes_for_target(&self, agent: &NodeName) -> bool {
        let settings = self.settings();
        let may_come =
            |(name, other): (&NodeName, &Agent)| name != agent && !other.is_retired() && !self.drains.contains(name);
        settings.agents().any(may_come)
            && self.scheduler.with(|state| self.with_room(&settings, state, |name, _| name != agent).is_err())
    }

    /// The loads of the agents among which connections may move: those that are available and not being drained.
    pub(crate) fn loads(&self, kind: LoadKind, owned: &HashMap<NodeName, Owned>) -> Vec<AgentLoad<NodeName>> {
        let settings = self.settings();
        let takes_part = |(name, agent): &(&NodeName, &Agent)| agent.is_available() && !self.drains.contains(name);
        #[expect(clippy::cast_precision_loss, reason = "counts of a second are far below 2^52")]
        let load = |(name, agent): (&NodeName, &Agent)| {
            let Owned { connections, bytes } = owned.get(name).copied().unwrap_or_default();
            AgentLoad {
                name: name.clone(),
                weight: agent.config.weight,
                load: match kind {
                    LoadKind::Connections => connections as f64,
                    LoadKind::Bytes => bytes as f64,
                },
                connections,
                room: agent.room(self.scheduler.connections(name)),
            }
        };
        settings.agents().filter(takes_part).map(load).collect()
    }

    /// Whether any agent can take connections now.
    pub(crate) fn any_available(&self) -> bool {
        self.settings().agents().any(|(_, agent)| agent.is_available())
    }

    /// Takes a slot at `agent` for a connection that it already has.
    pub(crate) fn place_at(&self, agent: &NodeName) -> Place {
        self.scheduler.place(agent)
    }

    fn keys(&self) -> MutexGuard<'_, BTreeMap<NodeName, Key>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `agent` can take connections now. `None`: it is neither configured nor being drained after its removal.
    pub(crate) fn availability(&self, agent: &NodeName) -> Option<bool> {
        self.settings().agent(agent).map(Agent::is_available)
    }

    /// Whether an agent is available, or connections are relayed to backends.
    pub(crate) fn can_serve(&self) -> bool {
        !self.settings().config.passthrough.is_empty() || self.any_available()
    }

    /// The available agents for which `wanted` returns true, that are not being drained and have a free slot, by name.
    fn with_room(
        &self,
        settings: &Settings,
        state: &Schedule,
        wanted: impl Fn(&NodeName, &Agent) -> bool,
    ) -> Result<Vec<Candidate<NodeName>>, Unassigned> {
        let now = Instant::now();
        let (mut any, mut candidates) = (false, Vec::new());
        for (name, agent) in settings.agents() {
            if !agent.is_available() || self.drains.contains(name) || !wanted(name, agent) {
                continue;
            }
            any = true;
            if agent.has_room_for_more_than(state.connections(name)) {
                let mut candidate = agent.candidate(settings.config.policies.slow_start, now);
                state.describe(&mut candidate, now);
                candidates.push(candidate);
            }
        }
        match (any, candidates.is_empty()) {
            (false, _) => Err(Unassigned::NoAgent),
            (true, true) => Err(Unassigned::AgentsFull),
            (true, false) => Ok(candidates),
        }
    }

    /// Opens a TCP connection to the leg listener of `agent`. Writes nothing.
    pub(crate) async fn connect(&self, agent: &NodeName) -> io::Result<TcpStream> {
        let settings = self.settings();
        let legs = settings.agent(agent).ok_or_else(unknown)?.config.legs;
        let leg = tokio::time::timeout(settings.config.limits.leg_timeout, TcpStream::connect(legs)).await??;
        tcp::prepare(&leg)?;
        Ok(leg)
    }

    /// The signed preface that opens a leg to `agent`.
    pub(crate) fn sign(&self, agent: &NodeName, preface: &Preface) -> io::Result<Vec<u8>> {
        self.settings().agent(agent).ok_or_else(unknown)?;
        Ok(self.signer(agent).ok_or_else(|| io::Error::other("the agent is not available"))?.sign(preface))
    }

    /// What signs prefaces for `agent`. Each link of the agent has another one. `None`: there is no link.
    pub(crate) fn signer(&self, agent: &NodeName) -> Option<Arc<LegSigner>> {
        self.settings().agent(agent)?.signer()
    }

    pub(crate) fn statuses(&self, table: &Table) -> Vec<AgentStatus> {
        let owned = table.connections_by_node();
        let settings = self.settings();
        let status = |(name, agent): (&NodeName, &Agent)| AgentStatus {
            name: name.clone(),
            legs: agent.config.legs,
            available: agent.is_available(),
            healthy: agent.is_healthy(),
            draining: self.drains.contains(name),
            connections: owned.get(name).copied().unwrap_or(0),
        };
        settings.agents().map(status).collect()
    }
}

/// The time of the runtime.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn unknown() -> io::Error {
    io::Error::other("no such agent in the configuration")
}
