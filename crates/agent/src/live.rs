//! A connection that this node owns, and the list of them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::net::TcpStream;
use watari_stream::Parts;
use watari_wire::{ConnectionId, ConnectionStatus, Epoch, NodeName, TlsInfo};

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

/// A connection that this node owns: it may open and seal.
pub(crate) struct Live {
    pub(crate) about: About,
    pub(crate) parts: Parts<TcpStream>,
}

/// The connections that are this node's, being given away or not.
#[derive(Default)]
pub(crate) struct LiveTable {
    entries: Mutex<HashMap<ConnectionId, About>>,
}

/// As long as it lives, the connection stands in the table.
pub(crate) struct Entry<'a> {
    table: &'a LiveTable,
    id: ConnectionId,
    tenure: Epoch,
}

impl LiveTable {
    pub(crate) fn enter(&self, about: &About) -> Entry<'_> {
        self.entries().insert(about.id, about.clone());
        Entry { table: self, id: about.id, tenure: about.tenure }
    }

    /// Whether this node has, or had until now, a say in `epoch` of the connection or in a later one.
    pub(crate) fn knows(&self, id: ConnectionId, epoch: Epoch) -> bool {
        self.entries().get(&id).is_some_and(|about| about.last >= epoch)
    }

    /// Notes that an attempt to give the connection away begins.
    pub(crate) fn departs(&self, id: ConnectionId, tenure: Epoch, attempt: Epoch) {
        if let Some(about) = self.entries().get_mut(&id).filter(|about| about.tenure == tenure) {
            about.last = attempt;
        }
    }

    pub(crate) fn statuses(&self, node: &NodeName) -> Vec<ConnectionStatus> {
        let status = |about: &About| ConnectionStatus {
            id: about.id,
            client: about.client,
            tls: Some(about.tls.clone()),
            handshake_node: about.handshake_node.clone(),
            node: node.clone(),
            moves: about.moves,
        };
        let mut statuses: Vec<_> = self.entries().values().map(status).collect();
        statuses.sort_by_key(|status| status.id);
        statuses
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<ConnectionId, About>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut entries = self.table.entries();
        // The connection may have left and come back while this entry was being given up.
        if entries.get(&self.id).is_some_and(|about| about.tenure == self.tenure) {
            entries.remove(&self.id);
        }
    }
}
