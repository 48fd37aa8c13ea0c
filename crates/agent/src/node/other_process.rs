//! Messages between the two processes of this node during an upgrade (`crate::upgrade`).
//!
//! ```text
//!  predecessor                                   successor
//!    Prepare, to this node  ──────────────────────▶  answers by Prepared, to this node
//!    once the successor has the links:
//!    messages to other nodes ─────────────────────▶  sends them
//!    handles them  ◀─────────────────────────────── messages of dispatchers, which may be about connections there,
//!                                                   and of agents about anchored streams with their ends there
//! ```
//!
//! Messages wait here until the node exchanges them. A process can have both a predecessor that ends and a successor
//! that begins.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use watari_values::NodeName;
use watari_wire::{AgentToAgent, AgentToDispatcher, Message};

/// The most messages that wait for one process. Further ones are dropped, as if they had been lost on the network.
const WAITING_MAX: usize = 4096;

/// The most messages that are exchanged at once: some MiB.
const EXCHANGED_MAX: usize = 256;

/// A message, and the node that gets it or has sent it.
pub(crate) type Addressed = (NodeName, Message);

/// What waits for the other processes.
#[derive(Default)]
pub(crate) struct OtherProcesses {
    waiting: Mutex<Waiting>,
    /// Notified when a message for the predecessor comes.
    answered: Notify,
}

#[derive(Default)]
struct Waiting {
    successor: Option<ForSuccessor>,
    predecessor: Option<Vec<Addressed>>,
}

#[derive(Default)]
struct ForSuccessor {
    has_links: bool,
    messages: Vec<Addressed>,
}

/// Where a message goes that this process sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Links,
    /// To another process, which has it now.
    Taken,
    /// To the successor, which has it now, and to the other role of this process.
    TakenAndLinks,
    /// There is no process for it.
    Nowhere,
}

impl OtherProcesses {
    pub(crate) fn begin_successor(&self) {
        self.waiting().successor = Some(ForSuccessor::default());
    }

    /// The successor has the links of this node from now on.
    pub(crate) fn hand_over_links(&self) {
        if let Some(successor) = &mut self.waiting().successor {
            successor.has_links = true;
        }
    }

    pub(crate) fn end_successor(&self) {
        self.waiting().successor = None;
    }

    pub(crate) fn begin_predecessor(&self) {
        self.waiting().predecessor = Some(Vec::new());
    }

    pub(crate) fn end_predecessor(&self) {
        self.waiting().predecessor = None;
    }

    pub(crate) fn has_predecessor(&self) -> bool {
        self.waiting().predecessor.is_some()
    }

    /// Whether this process has handed its links over.
    pub(crate) fn has_no_links(&self) -> bool {
        self.waiting().successor.as_ref().is_some_and(|successor| successor.has_links)
    }

    /// Takes a message that goes through another process. `own`: the name of this node.
    pub(crate) fn route(&self, own: &NodeName, to: &NodeName, message: &Message) -> Route {
        let mut waiting = self.waiting();
        let is_own = to == own;
        match message {
            Message::AgentToAgent(AgentToAgent::Prepare(_)) if is_own => {
                return put(waiting.successor.as_mut().map(|successor| &mut successor.messages), to, message);
            }
            Message::AgentToAgent(AgentToAgent::Prepared(_)) if is_own => {
                let put = put(waiting.predecessor.as_mut(), to, message);
                self.answered.notify_one();
                return put;
            }
            _ => {}
        }
        match &mut waiting.successor {
            Some(ForSuccessor { has_links: true, messages }) if is_of_connection(message) => {
                // The successor sends a message about an anchored stream back if the end is not there.
                let is_for_both = is_own && !matches!(message, Message::AgentToAgent(_));
                match put(Some(messages), to, message) {
                    Route::Taken if is_for_both => Route::TakenAndLinks,
                    put => put,
                }
            }
            Some(ForSuccessor { has_links: true, .. }) => Route::Nowhere,
            _ => Route::Links,
        }
    }

    /// Passes another node's message on, which may be about a connection of the predecessor.
    pub(crate) fn to_predecessor(&self, from: &NodeName, message: &Message) {
        put(self.waiting().predecessor.as_mut(), from, message);
    }

    pub(crate) fn has_for_successor(&self) -> bool {
        self.waiting().successor.as_ref().is_some_and(|successor| !successor.messages.is_empty())
    }

    pub(crate) fn take_for_successor(&self) -> Vec<Addressed> {
        self.waiting().successor.as_mut().map(|successor| take_some(&mut successor.messages)).unwrap_or_default()
    }

    /// Takes what waits for the predecessor, after so many answers to it or after `limit`.
    pub(crate) async fn take_for_predecessor(&self, answers: usize, limit: Duration) -> Vec<Addressed> {
        let deadline = Instant::now() + limit;
        let is_answer = |(_, message): &&Addressed| matches!(message, Message::AgentToAgent(AgentToAgent::Prepared(_)));
        loop {
            let count = |waiting: &Vec<Addressed>| waiting.iter().filter(is_answer).count() >= answers;
            if self.waiting().predecessor.as_ref().is_none_or(count)
                || timeout_at(deadline, self.answered.notified()).await.is_err()
            {
                return self.waiting().predecessor.as_mut().map(take_some).unwrap_or_default();
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a message is about a connection of the process that sends it. Others are those of the whole agent, such as its
/// keys, which the successor sends itself.
fn is_of_connection(message: &Message) -> bool {
    match message {
        Message::AgentToDispatcher(message) => {
            !matches!(message, AgentToDispatcher::LegKey(_) | AgentToDispatcher::Draining)
        }
        Message::AgentToAgent(message) => {
            use AgentToAgent::{Anchored, Rest, Ship, ShipInResponse};
            matches!(message, Ship(_) | ShipInResponse(_) | Rest(_) | Anchored(_))
        }
        Message::DispatcherToAgent(_) | Message::DispatcherToDispatcher(_) | Message::Takeover(_) => false,
    }
}

fn take_some(messages: &mut Vec<Addressed>) -> Vec<Addressed> {
    messages.drain(..messages.len().min(EXCHANGED_MAX)).collect()
}

fn put(waiting: Option<&mut Vec<Addressed>>, node: &NodeName, message: &Message) -> Route {
    match waiting {
        Some(waiting) if waiting.len() < WAITING_MAX => {
            waiting.push((node.clone(), message.clone()));
            Route::Taken
        }
        _ => Route::Nowhere,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use watari_values::ConnectionId;
    use watari_wire::Prepared;

    use super::*;

    fn name(text: &str) -> NodeName {
        NodeName::new(text).unwrap()
    }

    fn prepared() -> Message {
        let connection = ConnectionId { boot: 1, number: 1 };
        AgentToAgent::Prepared(Prepared { connection, number: 1, refused: None }).into()
    }

    #[tokio::test]
    async fn each_message_has_its_way() {
        let (own, other, processes) = (name("a"), name("d"), OtherProcesses::default());
        let tunnel = Message::from(AgentToDispatcher::Tunnel(ConnectionId { boot: 1, number: 1 }));
        let draining = Message::from(AgentToDispatcher::Draining);
        let route = |to: &NodeName, message: &Message| processes.route(&own, to, message);
        assert_eq!((route(&other, &tunnel), route(&own, &tunnel)), (Route::Links, Route::Links));
        assert_eq!(route(&own, &prepared()), Route::Nowhere, "there is no predecessor");
        processes.begin_successor();
        assert_eq!(route(&other, &tunnel), Route::Links, "the links are still here");
        processes.hand_over_links();
        assert!(processes.has_no_links());
        assert_eq!((route(&other, &tunnel), route(&own, &tunnel)), (Route::Taken, Route::TakenAndLinks));
        assert_eq!(route(&other, &draining), Route::Nowhere, "that is the successor's");
        assert_eq!(processes.take_for_successor().len(), 2);
        processes.begin_predecessor();
        assert_eq!(route(&own, &prepared()), Route::Taken);
        assert_eq!(processes.take_for_predecessor(1, Duration::from_mins(1)).await, [(own.clone(), prepared())]);
        assert!(processes.take_for_predecessor(1, Duration::from_millis(1)).await.is_empty());
        processes.end_predecessor();
        processes.end_successor();
        assert_eq!((route(&own, &prepared()), route(&other, &draining)), (Route::Nowhere, Route::Links));
    }
}
