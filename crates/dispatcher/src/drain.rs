//! Emptying an agent: its connections are asked to leave, a bounded number at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use watari_wire::{ConnectionId, Leave, Message, NodeName};

use crate::Shared;

/// How often is looked for connections that shall leave.
const INTERVAL: Duration = Duration::from_millis(10);

/// Connections of one agent that may be about to leave at the same time: as many as keep both ends busy, and no more than
/// a target can hold.
const LEAVING_MAX: usize = 256;

/// After how long a connection that has neither left nor said why is asked again.
pub(crate) const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The agents that are being emptied.
#[derive(Default)]
pub(crate) struct Drains {
    agents: Mutex<BTreeMap<NodeName, AskedBy>>,
}

/// Who wants an agent to be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AskedBy {
    /// The agent, because it is about to end. It is over when the agent comes anew.
    Itself,
    /// The operator, until told otherwise.
    Operator,
    /// The configuration, which does not know it any more, until it does.
    Configuration,
}

/// A connection that shall leave, and whose client it is.
pub(crate) struct Leaver {
    pub(crate) id: ConnectionId,
    pub(crate) client: std::net::IpAddr,
}

impl Drains {
    /// Whether this is new.
    pub(crate) fn begin(&self, agent: &NodeName, by: AskedBy) -> bool {
        let mut agents = self.agents();
        let known = agents.get(agent).copied();
        agents.insert(agent.clone(), known.map_or(by, |known| known.max(by)));
        known.is_none()
    }

    /// Whether it was being emptied.
    pub(crate) fn end(&self, agent: &NodeName) -> bool {
        self.agents().remove(agent).is_some()
    }

    /// Ends what `by` began, unless somebody else wants the agent to be empty too.
    pub(crate) fn end_if(&self, agent: &NodeName, by: AskedBy) {
        self.agents().retain(|draining, asked| draining != agent || *asked != by);
    }

    /// The agent is linked (again). If it is still about to end, it will say so again.
    pub(crate) fn link_up(&self, agent: &NodeName) {
        self.agents().retain(|draining, by| draining != agent || *by != AskedBy::Itself);
    }

    pub(crate) fn contains(&self, agent: &NodeName) -> bool {
        self.agents().contains_key(agent)
    }

    pub(crate) fn all(&self) -> Vec<NodeName> {
        self.agents().keys().cloned().collect()
    }

    fn agents(&self) -> MutexGuard<'_, BTreeMap<NodeName, AskedBy>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks connections to leave agents that are being emptied, until `shutdown`.
pub(crate) async fn run(shared: Arc<Shared>, shutdown: CancellationToken) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            () = shutdown.cancelled() => return,
        }
        for agent in shared.agents.drains.all() {
            ask_some(&shared, &agent);
        }
    }
}

fn ask_some(shared: &Shared, agent: &NodeName) {
    for Leaver { id, client } in shared.table.leavers(agent, LEAVING_MAX, Instant::now()) {
        let target = shared.agents.successor(client);
        shared.tell(agent, &Message::Leave(Leave { connection: id, target, or_end: true }));
    }
}
