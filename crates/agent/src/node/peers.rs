//! Messages to other nodes.

use std::net::IpAddr;
use std::sync::Arc;

use watari_mesh::{Mesh, PeerStatus, SendError};
use watari_values::NodeName;
use watari_wire::Message;

use super::other_process::{OtherProcesses, Route};

/// This node's name, and its links to the other nodes. Clones share the links.
#[derive(Clone)]
pub(crate) struct Peers {
    name: NodeName,
    links: Arc<dyn Links>,
    other_processes: Arc<OtherProcesses>,
}

/// The links of a node. The mesh has them. Tests have links that record what is sent.
pub(crate) trait Links: Send + Sync {
    /// Sends a message at once.
    fn send(&self, to: &NodeName, message: &Message) -> Result<(), SendError>;

    /// Sends a message with the next one, or after some milliseconds.
    fn send_soon(&self, to: &NodeName, message: &Message) -> Result<(), SendError>;

    /// Sends a message that may be lost, unless the queue to the node is half full.
    fn send_bulk(&self, to: &NodeName, message: &Message) -> Result<(), SendError>;

    fn is_up(&self, peer: &NodeName) -> bool;

    /// All configured or known peers.
    fn statuses(&self) -> Vec<PeerStatus>;

    /// Whether nodes that are not configured may join.
    fn is_open(&self) -> bool;

    fn is_address_of_member(&self, address: IpAddr) -> bool;
}

impl Links for Mesh {
    fn send(&self, to: &NodeName, message: &Message) -> Result<(), SendError> {
        Self::send(self, to, message)
    }

    fn send_soon(&self, to: &NodeName, message: &Message) -> Result<(), SendError> {
        Self::send_soon(self, to, message)
    }

    fn send_bulk(&self, to: &NodeName, message: &Message) -> Result<(), SendError> {
        Self::send_bulk(self, to, message)
    }

    fn is_up(&self, peer: &NodeName) -> bool {
        Self::is_up(self, peer)
    }

    fn statuses(&self) -> Vec<PeerStatus> {
        self.peers()
    }

    fn is_open(&self) -> bool {
        Self::is_open(self)
    }

    fn is_address_of_member(&self, address: IpAddr) -> bool {
        Self::is_address_of_member(self, address)
    }
}

impl Peers {
    pub(crate) fn new(name: NodeName, links: impl Links + 'static) -> Self {
        Self { name, links: Arc::new(links), other_processes: Arc::default() }
    }

    /// The other processes of this node, during an upgrade.
    pub(crate) fn other_processes(&self) -> &OtherProcesses {
        &self.other_processes
    }

    /// The name of this node.
    pub(crate) fn name(&self) -> &NodeName {
        &self.name
    }

    /// Sends a message. Returns `false` if that is not possible now.
    pub(crate) fn send(&self, to: &NodeName, message: impl Into<Message>) -> bool {
        self.send_by(to, &message.into(), |links, message| links.send(to, message))
    }

    /// Sends a message that no peer waits for, without hurry.
    pub(crate) fn send_soon(&self, to: &NodeName, message: impl Into<Message>) {
        self.send_by(to, &message.into(), |links, message| links.send_soon(to, message));
    }

    /// Sends a message that may be lost. It leaves room in the queue for others.
    pub(crate) fn send_bulk(&self, to: &NodeName, message: impl Into<Message>) {
        self.send_by(to, &message.into(), |links, message| links.send_bulk(to, message));
    }

    fn send_by(
        &self,
        to: &NodeName,
        message: &Message,
        send: impl FnOnce(&dyn Links, &Message) -> Result<(), SendError>,
    ) -> bool {
        match self.other_processes.route(&self.name, to, message) {
            Route::Links => note_unsent(to, send(&*self.links, message)),
            Route::TakenAndLinks => {
                note_unsent(to, send(&*self.links, message));
                true
            }
            Route::Taken => true,
            Route::Nowhere => false,
        }
    }

    /// Whether there is a link to `peer`. Without links of its own, this process gives no connections away.
    pub(crate) fn is_up(&self, peer: &NodeName) -> bool {
        self.links.is_up(peer) && !self.other_processes.has_no_links()
    }

    pub(crate) fn statuses(&self) -> Vec<PeerStatus> {
        self.links.statuses()
    }

    /// Whether nodes that are not configured may join.
    pub(crate) fn is_open(&self) -> bool {
        self.links.is_open()
    }

    pub(crate) fn is_address_of_member(&self, address: IpAddr) -> bool {
        self.links.is_address_of_member(address)
    }
}

fn note_unsent(to: &NodeName, sent: Result<(), SendError>) -> bool {
    if let Err(error) = &sent {
        tracing::debug!(peer = %to, %error, "message not sent");
    }
    sent.is_ok()
}
