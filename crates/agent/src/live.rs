//! A connection that this node owns, and the list of them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::net::TcpStream;
use tokio::sync::mpsc;
use watari_stream::Parts;
use watari_wire::{ConnectionId, ConnectionStatus, Epoch, Established, Leave, Message, NodeName, TlsInfo};

use crate::Shared;

/// What is known of a connection, apart from its bytes.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) id: ConnectionId,
    /// The epoch that made this node its owner.
    pub(crate) tenure: Epoch,
    /// The last epoch there was: of the tenure, or of an attempt to give the connection away that was aborted.
    pub(crate) last: Epoch,
    pub(crate) dispatcher: NodeName,
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) tls: TlsInfo,
    pub(crate) client_certificate: Option<Vec<u8>>,
    pub(crate) handshake_node: NodeName,
    pub(crate) moves: u32,
}

impl About {
    /// Tells the dispatcher that the handshake is done. A proposal to move takes it along.
    pub(crate) fn announce(&self, shared: &Shared) {
        let announced = Established { connection: self.id, tls: self.tls.clone() };
        shared.tell_soon(&self.dispatcher, &Message::Established(announced));
    }
}

/// A connection that this node owns: it may open and seal.
pub(crate) struct Live {
    pub(crate) about: About,
    pub(crate) parts: Parts<TcpStream>,
}

/// The connections that are this node's, being given away or not.
#[derive(Default)]
pub(crate) struct LiveTable {
    entries: Mutex<HashMap<ConnectionId, Known>>,
}

struct Known {
    about: About,
    /// Whether its handshake is done. Before that it is nobody else's business.
    is_established: bool,
    /// Boxed: a channel has room for 32 from the beginning, whatever its limit.
    leaves: mpsc::Sender<Box<Leave>>,
}

/// Requests to leave that may wait for one connection.
const LEAVES_LEN: usize = 2;

/// As long as it lives, the connection stands in the table.
pub(crate) struct Entry<'a> {
    table: &'a LiveTable,
    id: ConnectionId,
    tenure: Epoch,
}

impl LiveTable {
    /// Enters a connection; what it is asked to leave for comes out of the receiver.
    pub(crate) fn enter(&self, about: &About, is_established: bool) -> (Entry<'_>, mpsc::Receiver<Box<Leave>>) {
        let (leaves, receiver) = mpsc::channel(LEAVES_LEN);
        self.entries().insert(about.id, Known { about: about.clone(), is_established, leaves });
        (Entry { table: self, id: about.id, tenure: about.tenure }, receiver)
    }

    /// The handshake of a connection is done that was entered before: its dispatcher is told, and it is asked to leave for `bulk`.
    pub(crate) fn establish(&self, shared: &Shared, about: &About, bulk: Option<NodeName>) {
        if let Some(known) = self.entries().get_mut(&about.id) {
            known.is_established = true;
            let leave = bulk.map(|target| Leave { connection: about.id, target: Some(target), or_end: false });
            // Nobody has asked for anything else: there is room.
            let _ = leave.map(|leave| known.leaves.try_send(Box::new(leave)));
        }
        about.announce(shared);
    }

    /// Asks a connection to leave, if it is here and `from` is its dispatcher. What it has no time for is dropped: it will
    /// be asked again.
    pub(crate) fn leave(&self, from: &NodeName, leave: &Leave) {
        if let Some(known) = self.entries().get(&leave.connection).filter(|known| known.is_of(from)) {
            let _ = known.leaves.try_send(Box::new(leave.clone()));
        }
    }

    /// Tells a dispatcher that is linked (again) of all its connections: it may not have heard that their handshakes are
    /// done.
    pub(crate) fn announce_all(&self, shared: &Shared, dispatcher: &NodeName) {
        for known in self.entries().values().filter(|known| known.is_of(dispatcher)) {
            known.about.announce(shared);
        }
    }

    /// How many are of `dispatcher`.
    pub(crate) fn of(&self, dispatcher: &NodeName) -> usize {
        self.entries().values().filter(|known| known.about.dispatcher == *dispatcher).count()
    }

    /// Whether this node has, or had until now, a say in `epoch` of the connection or in a later one.
    pub(crate) fn knows(&self, id: ConnectionId, epoch: Epoch) -> bool {
        self.entries().get(&id).is_some_and(|known| known.about.last >= epoch)
    }

    /// Notes that an attempt to give the connection away begins.
    pub(crate) fn departs(&self, id: ConnectionId, tenure: Epoch, attempt: Epoch) {
        if let Some(known) = self.entries().get_mut(&id).filter(|known| known.about.tenure == tenure) {
            known.about.last = attempt;
        }
    }

    pub(crate) fn statuses(&self, node: &NodeName) -> Vec<ConnectionStatus> {
        let status = |Known { about, .. }: &Known| ConnectionStatus {
            id: about.id,
            client: about.client,
            tls: Some(about.tls.clone()),
            handshake_node: about.handshake_node.clone(),
            node: node.clone(),
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
    /// Whether it has a say in the connection.
    fn is_of(&self, dispatcher: &NodeName) -> bool {
        self.is_established && self.about.dispatcher == *dispatcher
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut entries = self.table.entries();
        // The connection may have left and come back while this entry was being given up.
        if entries.get(&self.id).is_some_and(|known| known.about.tenure == self.tenure) {
            entries.remove(&self.id);
        }
    }
}
