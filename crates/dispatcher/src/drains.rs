//! The agents that are being drained, and the connections to ask.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use watari_values::{ConnectionId, NodeName};

/// The time after which the dispatcher repeats the request to a connection that has not left.
pub(crate) const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The agents that are being drained.
#[derive(Default)]
pub(crate) struct Drains {
    agents: Mutex<BTreeMap<NodeName, BTreeSet<AskedBy>>>,
    /// Notified when a drain begins.
    pub(crate) begun: Notify,
}

/// The source of a drain. It decides when the drain ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AskedBy {
    /// The agent, because it is about to end. The drain ends when the agent links again.
    Itself,
    /// An operator. The drain ends on an operator's command.
    Operator,
    /// The configuration, which does not list the agent any more. The drain ends when it lists the agent again.
    Configuration,
}

/// The connections of one draining agent, as they are asked. The table has the truth of each: an id here may be of a
/// connection that has ended or moved.
#[derive(Default)]
pub(crate) struct Leaving {
    /// Those to ask.
    pub(crate) found: Vec<ConnectionId>,
    /// Those that were asked and have not answered.
    pub(crate) about_to: Vec<ConnectionId>,
}

/// A connection to ask to leave, and the address of its client.
pub(crate) struct Leaver {
    pub(crate) id: ConnectionId,
    pub(crate) client: IpAddr,
}

impl Drains {
    /// Begins a drain. Returns whether the agent was not being drained before.
    pub(crate) fn begin(&self, agent: &NodeName, by: AskedBy) -> bool {
        let mut agents = self.agents();
        let is_new = !agents.contains_key(agent);
        agents.entry(agent.clone()).or_default().insert(by);
        self.begun.notify_one();
        is_new
    }

    /// Ends the drain of `agent`, for all sources. Returns whether there was one.
    pub(crate) fn end(&self, agent: &NodeName) -> bool {
        self.agents().remove(agent).is_some()
    }

    /// Ends the drain of `agent` for the source `by`. It goes on if another source also asked for it.
    pub(crate) fn end_if(&self, agent: &NodeName, by: AskedBy) {
        let mut agents = self.agents();
        if let Some(asked) = agents.get_mut(agent) {
            asked.remove(&by);
            if asked.is_empty() {
                agents.remove(agent);
            }
        }
    }

    /// Handles a new link. If the agent is still about to end, it sends `Draining` again.
    pub(crate) fn link_up(&self, agent: &NodeName) {
        self.end_if(agent, AskedBy::Itself);
    }

    pub(crate) fn contains(&self, agent: &NodeName) -> bool {
        self.agents().contains_key(agent)
    }

    pub(crate) fn all(&self) -> Vec<NodeName> {
        self.agents().keys().cloned().collect()
    }

    /// The agents that are being drained for the source `by`.
    pub(crate) fn asked_by(&self, by: AskedBy) -> Vec<NodeName> {
        self.agents().iter().filter(|(_, asked)| asked.contains(&by)).map(|(agent, _)| agent.clone()).collect()
    }

    fn agents(&self) -> MutexGuard<'_, BTreeMap<NodeName, BTreeSet<AskedBy>>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
