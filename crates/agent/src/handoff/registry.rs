//! The registry of the connections that this node owns.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use watari_values::{ConnectionId, ConnectionStatus, Epoch, NodeName};
use watari_wire::{Leave, Prepared};

use super::live::About;
use crate::node::peers::Peers;

/// The connections that this node owns, including those that are being given away.
pub(crate) struct Registry {
    peers: Peers,
    entries: Mutex<HashMap<ConnectionId, Known>>,
}

struct Known {
    about: About,
    /// Whether the handshake is done. Until then the connection is not reported to dispatchers.
    is_established: bool,
    /// Boxed, because a channel allocates room for 32 messages at once, whatever its limit.
    orders: mpsc::Sender<Box<Order>>,
    /// Whether it was asked to pass to a successor of this process.
    is_passing: bool,
    /// What it was asked last when the process was about to end.
    ending: Option<Ending>,
}

/// Which connections end when their requests have ended, because the process ends soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Those that can never pass to a successor.
    Others,
    All,
}

/// What a connection that this node owns is asked, mostly by other nodes.
#[derive(Debug)]
pub(crate) enum Order {
    /// The dispatcher asks the connection to leave.
    Leave(Leave),
    /// An agent has answered whether it can continue the response in progress.
    Prepared(NodeName, Prepared),
    /// The connection passes to a successor of this process as soon as it can.
    PassOn(Undecided),
    /// The successor has failed.
    Stay,
    /// This process ends soon.
    End(Ending),
}

/// Held as long as it is open whether a connection passes, stays for now or has ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct Undecided(Arc<()>);

impl Undecided {
    /// Whether no connection holds it.
    pub(crate) fn is_decided(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

/// The orders for one connection.
pub(crate) type Orders = mpsc::Receiver<Box<Order>>;

/// Orders that may wait for one connection.
const ORDERS_LEN: usize = 4;

/// Keeps the connection in the table until this is dropped.
pub(crate) struct Entry<'a> {
    table: &'a Registry,
    id: ConnectionId,
    tenure: Epoch,
}

impl Registry {
    pub(crate) fn new(peers: Peers) -> Self {
        Self { peers, entries: Mutex::default() }
    }

    /// Adds a connection.
    pub(crate) fn enter(&self, about: &About, is_established: bool) -> (Entry<'_>, Orders) {
        let (orders, receiver) = mpsc::channel(ORDERS_LEN);
        self.entries()
            .insert(about.id, Known { about: about.clone(), is_established, orders, is_passing: false, ending: None });
        (Entry { table: self, id: about.id, tenure: about.tenure }, receiver)
    }

    /// Records that the handshake of a connection in the table is done. Announces it to the dispatcher, and asks the
    /// connection to leave for `bulk`.
    pub(crate) fn establish(&self, about: &About, bulk: Option<NodeName>) {
        if let Some(known) = self.entries().get_mut(&about.id) {
            known.is_established = true;
            let leave = bulk.map(|target| Leave { connection: about.id, target: Some(target), or_end: false });
            // No other request can precede this one, so the channel has room.
            let _ = leave.map(|leave| known.orders.try_send(Box::new(Order::Leave(leave))));
        }
        about.announce(&self.peers);
    }

    /// Asks a connection to leave, if it is here and `from` is its dispatcher. If its inbox is full, the request is
    /// dropped. The dispatcher repeats it.
    pub(crate) fn leave(&self, from: &NodeName, leave: &Leave) {
        if let Some(known) = self.entries().get(&leave.connection).filter(|known| known.is_of(from)) {
            let _ = known.orders.try_send(Box::new(Order::Leave(leave.clone())));
        }
    }

    /// Passes an agent's answer on to the connection, if it is here. If its inbox is full, the answer is dropped, and
    /// the connection stays until it is asked to leave again.
    pub(crate) fn on_prepared(&self, from: &NodeName, prepared: Prepared) {
        if let Some(known) = self.entries().get(&prepared.connection) {
            let _ = known.orders.try_send(Box::new(Order::Prepared(from.clone(), prepared)));
        }
    }

    /// Announces to a dispatcher with a new link all its connections: earlier announcements of their handshakes may be
    /// lost.
    pub(crate) fn announce_all(&self, dispatcher: &NodeName) {
        for known in self.entries().values().filter(|known| known.is_of(dispatcher)) {
            known.about.announce(&self.peers);
        }
    }

    /// Announces a connection to its dispatcher, if it is here and its handshake is done.
    pub(crate) fn announce(&self, id: ConnectionId) {
        if let Some(known) = self.entries().get(&id).filter(|known| known.is_established) {
            known.about.announce(&self.peers);
        }
    }

    /// The connections that were not asked to pass to a successor.
    pub(crate) fn not_passing(&self) -> Vec<ConnectionId> {
        let entries = self.entries();
        let left = entries.iter().filter(|(_, known)| known.is_established && !known.is_passing);
        left.map(|(id, _)| *id).collect()
    }

    /// Asks these connections to pass to a successor of this process. One whose inbox is full can be asked again.
    pub(crate) fn pass_on(&self, ids: &[ConnectionId], undecided: &Undecided) {
        let mut entries = self.entries();
        for id in ids {
            let Some(known) = entries.get_mut(id) else { continue };
            known.is_passing = known.orders.try_send(Box::new(Order::PassOn(undecided.clone()))).is_ok();
        }
    }

    /// Asks connections to end when their requests have ended, each once.
    pub(crate) fn end(&self, ending: Ending) {
        for known in self.entries().values_mut().filter(|known| known.ending != Some(ending)) {
            let is_asked = known.orders.try_send(Box::new(Order::End(ending))).is_ok();
            known.ending = is_asked.then_some(ending);
        }
    }

    /// The requests of a connection have ended, and it ends. It does not pass any more.
    pub(crate) fn ends(&self, id: ConnectionId, tenure: Epoch) {
        if let Some(known) = self.entries().get_mut(&id).filter(|known| known.about.tenure == tenure) {
            known.is_established = false;
        }
    }

    /// A connection has not passed, and can be asked again.
    pub(crate) fn may_pass_again(&self, id: ConnectionId) {
        if let Some(known) = self.entries().get_mut(&id) {
            known.is_passing = false;
        }
    }

    /// The upgrade has failed. Connections can be asked again.
    pub(crate) fn stay(&self) {
        for known in self.entries().values_mut().filter(|known| known.is_passing) {
            known.is_passing = false;
            // A full inbox has an earlier order, and this one only serves moves to other agents.
            let _ = known.orders.try_send(Box::new(Order::Stay));
        }
    }

    /// The dispatchers of the connections.
    pub(crate) fn dispatchers(&self) -> BTreeSet<NodeName> {
        self.entries().values().map(|known| known.about.dispatcher.get()).collect()
    }

    /// The number of connections of `dispatcher`.
    pub(crate) fn of(&self, dispatcher: &NodeName) -> usize {
        self.entries().values().filter(|known| known.about.dispatcher.is(dispatcher)).count()
    }

    /// Whether this node took part in `epoch` of the connection, or in a later one.
    pub(crate) fn knows(&self, id: ConnectionId, epoch: Epoch) -> bool {
        self.entries().get(&id).is_some_and(|known| known.about.last >= epoch)
    }

    /// Records the start of an attempt to give the connection away.
    pub(crate) fn departs(&self, id: ConnectionId, tenure: Epoch, attempt: Epoch) {
        if let Some(known) = self.entries().get_mut(&id).filter(|known| known.about.tenure == tenure) {
            known.about.last = attempt;
        }
    }

    pub(crate) fn statuses(&self) -> Vec<ConnectionStatus> {
        let status = |Known { about, .. }: &Known| ConnectionStatus {
            id: about.id,
            client: about.client,
            tls: Some(about.tls.clone()),
            handshake_node: about.handshake_node.clone(),
            node: self.peers.name().clone(),
            moves: about.moves,
            stays: None,
        };
        let mut statuses: Vec<_> = self.entries().values().filter(|known| known.is_established).map(status).collect();
        statuses.sort_by_key(|status| status.id);
        statuses
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<ConnectionId, Known>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Whether `dispatcher` may give orders about the connection.
    fn is_of(&self, dispatcher: &NodeName) -> bool {
        self.is_established && self.about.dispatcher.is(dispatcher)
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut entries = self.table.entries();
        // The connection may have moved away and back before this entry was dropped.
        if entries.get(&self.id).is_some_and(|known| known.about.tenure == self.tenure) {
            entries.remove(&self.id);
        }
    }
}
