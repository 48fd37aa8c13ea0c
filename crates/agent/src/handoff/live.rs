//! A connection that this node owns.

use std::net::SocketAddr;

use tokio::net::TcpStream;
use watari_stream::Parts;
use watari_values::{ConnectionId, Epoch, NodeName, StayReason, TlsInfo};
use watari_wire::{AgentToDispatcher, Established, Stays};

use crate::node::peers::Peers;

/// The properties of a connection, apart from its bytes.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) id: ConnectionId,
    /// The epoch whose commit made this node the owner.
    pub(crate) tenure: Epoch,
    /// The last epoch used: that of the tenure, or of an aborted attempt to give the connection away.
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
    /// Announces to the dispatcher that the handshake is done. The message may wait until a proposal to move is sent.
    pub(crate) fn announce(&self, peers: &Peers) {
        let announced = Established { connection: self.id, tls: self.tls.clone() };
        peers.send_soon(&self.dispatcher, AgentToDispatcher::Established(announced));
    }

    /// Reports to the dispatcher why the connection stays for now, although it was asked to leave.
    pub(crate) fn report_stay(&self, peers: &Peers, reason: StayReason) {
        let message = match reason {
            StayReason::Tunnel => AgentToDispatcher::Tunnel(self.id),
            reason => AgentToDispatcher::Stays(Stays { connection: self.id, reason }),
        };
        peers.send(&self.dispatcher, message);
    }
}

/// A connection that this node owns: it may open and seal.
pub(crate) struct Live {
    pub(crate) about: About,
    pub(crate) parts: Parts<TcpStream>,
}
