//! Purges of cached responses, which agents exchange.
//!
//! An agent sends its own orders to all linked agents, and passes new ones of others on. To an agent whose link comes up,
//! it sends all that it knows, in several messages or in an empty one, but not before it has loaded those that it has
//! stored. So an agent that was away knows all purges when it has a message from each.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use watari_cache::{Purge, PurgeId, Purges};
use watari_proxy::{CacheHandle, KnownPurges};
use watari_values::NodeName;
use watari_wire::{
    AgentToAgent, FOLDED_PURGES_MAX, OrderedPurge, PURGE_TEXT_LEN_MAX, PURGES_MAX, PurgeNumber, PurgeScope,
    PurgesMessage,
};

use crate::node::peers::Peers;
use crate::settings::current::CurrentSettings;
use crate::settings::site::Site;

/// How often an agent sends all purges to one of the others.
pub(crate) const REPEAT: Duration = Duration::from_secs(30);

/// How long an agent that starts waits for the purges of others, before it uses stored responses.
const EXCHANGE_MAX: Duration = Duration::from_secs(5);

/// What one agent remembers fits into the messages to others.
const _: () = assert!(Purge::TEXT_LEN_MAX <= PURGE_TEXT_LEN_MAX && Purges::FOLDED_MAX <= FOLDED_PURGES_MAX);

pub(crate) struct PurgeExchange {
    peers: Peers,
    settings: Arc<CurrentSettings>,
    agents: Mutex<Agents>,
    /// Incremented when an agent has sent its purges, or a link has changed.
    learned: watch::Sender<u64>,
}

#[derive(Default)]
struct Agents {
    linked: BTreeSet<NodeName>,
    /// Those that have sent their purges.
    heard: BTreeSet<NodeName>,
    /// The agent that got all purges last, see [`PurgeExchange::repeat`].
    reminded: Option<NodeName>,
}

impl PurgeExchange {
    pub(crate) fn new(peers: Peers, settings: Arc<CurrentSettings>) -> Self {
        Self { peers, settings, agents: Mutex::default(), learned: watch::channel(0).0 }
    }

    /// The agents with a link.
    pub(crate) fn linked(&self) -> BTreeSet<NodeName> {
        self.agents().linked.clone()
    }

    /// The link to an agent is up.
    pub(crate) fn link_up(&self, agent: &NodeName) {
        self.agents().linked.insert(agent.clone());
        if self.is_loaded() {
            self.send_all(agent);
        }
    }

    /// Sends all purges to all linked agents: those that this agent had stored, and others that it did not announce.
    pub(crate) fn announce(&self) {
        self.linked().iter().for_each(|agent| self.send_all(agent));
    }

    /// True if this agent knows the purges that it has stored.
    fn is_loaded(&self) -> bool {
        match &*self.settings.get().site {
            Site::Proxy(proxy) => !proxy.has_cache() || proxy.cache().is_loaded(),
            Site::Files(_) => true,
        }
    }

    /// An agent has sent its purges, or the link to a member has changed, whatever the roles of the member are.
    pub(crate) fn note_change(&self) {
        self.learned.send_modify(|learned| *learned += 1);
    }

    /// Sends all purges once more to one agent, another one each time: messages can be lost.
    pub(crate) fn repeat(&self) {
        let next = {
            let mut agents = self.agents();
            let after = agents.reminded.as_ref().and_then(|last| agents.linked.range(last.clone()..).nth(1));
            let next = after.or(agents.linked.first()).cloned();
            agents.reminded.clone_from(&next);
            next
        };
        if let Some(agent) = next.filter(|_| self.is_loaded()) {
            self.send_all(&agent);
        }
    }

    fn send_all(&self, agent: &NodeName) {
        let known = self.handle().map(|cache| cache.known_purges()).unwrap_or_default();
        let KnownPurges { generation, folded, purges } = known;
        let folded = folded.into_iter().map(to_number).collect();
        let mut parts = purges.chunks(PURGES_MAX);
        let first = PurgesMessage { generation, folded, purges: to_wire(parts.next().unwrap_or_default()) };
        self.peers.send(agent, AgentToAgent::Purges(first));
        for part in parts {
            let part = PurgesMessage { generation, folded: Vec::new(), purges: to_wire(part) };
            self.peers.send(agent, AgentToAgent::Purges(part));
        }
    }

    pub(crate) fn link_down(&self, node: &NodeName) {
        let mut agents = self.agents();
        agents.linked.remove(node);
        agents.heard.remove(node);
        drop(agents);
        self.note_change();
    }

    /// Another agent has sent purges.
    pub(crate) fn on_purges(&self, from: &NodeName, message: &PurgesMessage) {
        let Some(cache) = self.handle() else { return };
        let known = KnownPurges {
            generation: message.generation,
            folded: message.folded.iter().map(|number| of_number(*number)).collect(),
            purges: message.purges.iter().map(|purge| (of_number(purge.id), of_scope(&purge.scope))).collect(),
        };
        let new = cache.learn(known);
        self.send(&new, Some(from));
        self.agents().heard.insert(from.clone());
        self.note_change();
    }

    /// Sends purges to the linked agents, except to the one that has sent them.
    pub(crate) fn send(&self, purges: &[(PurgeId, Purge)], from: Option<&NodeName>) {
        let agents = self.agents().linked.clone();
        for part in purges.chunks(PURGES_MAX) {
            let message =
                AgentToAgent::Purges(PurgesMessage { generation: 0, folded: Vec::new(), purges: to_wire(part) });
            for agent in agents.iter().filter(|agent| Some(*agent) != from) {
                self.peers.send(agent, message.clone());
            }
        }
    }

    /// Waits until all members have links and all agents among them have sent their purges, for a limited time.
    pub(crate) async fn exchanged(&self) {
        let (deadline, mut learned) = (Instant::now() + EXCHANGE_MAX, self.learned.subscribe());
        while !self.is_complete() && matches!(timeout_at(deadline, learned.changed()).await, Ok(Ok(()))) {}
    }

    fn is_complete(&self) -> bool {
        let has_links = self.peers.statuses().iter().all(|peer| peer.up_for.is_some());
        let agents = self.agents();
        has_links && agents.linked.iter().all(|agent| agents.heard.contains(agent))
    }

    fn handle(&self) -> Option<CacheHandle> {
        match &*self.settings.get().site {
            Site::Proxy(proxy) => Some(proxy.cache().clone()),
            Site::Files(_) => None,
        }
    }

    fn agents(&self) -> MutexGuard<'_, Agents> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn to_wire(purges: &[(PurgeId, Purge)]) -> Vec<OrderedPurge> {
    let scope = |purge: &Purge| match purge {
        Purge::Everything => PurgeScope::Everything,
        Purge::Url(text) => PurgeScope::Url(text.to_string()),
        Purge::Prefix(text) => PurgeScope::Prefix(text.to_string()),
        Purge::Group(text) => PurgeScope::Group(text.to_string()),
        Purge::HostGroup(text) => PurgeScope::HostGroup(text.to_string()),
    };
    purges.iter().map(|(id, purge)| OrderedPurge { id: to_number(*id), scope: scope(purge) }).collect()
}

fn to_number(PurgeId { incarnation, number }: PurgeId) -> PurgeNumber {
    PurgeNumber { incarnation, number }
}

fn of_number(PurgeNumber { incarnation, number }: PurgeNumber) -> PurgeId {
    PurgeId { incarnation, number }
}

fn of_scope(scope: &PurgeScope) -> Purge {
    match scope {
        PurgeScope::Everything => Purge::Everything,
        PurgeScope::Url(text) => Purge::Url(text.as_str().into()),
        PurgeScope::Prefix(text) => Purge::Prefix(text.as_str().into()),
        PurgeScope::Group(text) => Purge::Group(text.as_str().into()),
        PurgeScope::HostGroup(text) => Purge::HostGroup(text.as_str().into()),
    }
}
