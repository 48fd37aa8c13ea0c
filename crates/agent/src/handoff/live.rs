//! A connection that this node owns.

use std::net::SocketAddr;

use watari_record::{Connection, Fenced, ImportError, Side};
use watari_stream::Parts;
use watari_values::{ConnectionId, Epoch, NodeName, SecretBytes, StayReason, TlsInfo};
use watari_wire::{AgentToDispatcher, Established, Ship, Stays};

use crate::leg::{Carried, CurrentDispatcher, Leg};
use crate::node::peers::Peers;

/// The properties of a connection, apart from its bytes.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) id: ConnectionId,
    /// The epoch whose commit made this node the owner.
    pub(crate) tenure: Epoch,
    /// The last epoch used: that of the tenure, or of an aborted attempt to give the connection away.
    pub(crate) last: Epoch,
    pub(crate) dispatcher: CurrentDispatcher,
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) tls: TlsInfo,
    pub(crate) client_certificate: Option<Vec<u8>>,
    pub(crate) handshake_node: NodeName,
    pub(crate) moves: u32,
}

/// The bytes and positions of a fenced connection, as in [`Parts`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct FencedBytes<'a> {
    pub(crate) opened: &'a [u8],
    pub(crate) unopened: &'a [u8],
    pub(crate) unsent: &'a [u8],
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

/// The reason that a shipped state cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadShip {
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error("the state is that of a client, or has more bytes than the stream")]
    Impossible,
}

/// The record layer of a shipped connection.
pub(crate) fn import(ship: &Ship) -> Result<Connection, BadShip> {
    let connection = Connection::import(ship.state.as_slice())?;
    if connection.side() != Side::Server || ship.rest.as_slice().len() as u64 > ship.rx_offset {
        return Err(BadShip::Impossible);
    }
    Ok(connection)
}

impl About {
    /// The properties of a shipped connection. `last` and `moves`: those that it has where it continues.
    pub(crate) fn of_shipped(ship: &Ship, last: Epoch, moves: u32) -> Self {
        Self {
            id: ship.connection,
            tenure: ship.epoch,
            last,
            dispatcher: CurrentDispatcher::new(ship.dispatcher.clone()),
            client: ship.client,
            server: ship.server,
            tls: ship.tls.clone(),
            client_certificate: ship.client_certificate.clone(),
            handshake_node: ship.handshake_node.clone(),
            moves,
        }
    }

    /// The connection as its leg has it. `change`: the last change of its dispatcher. `received` and `sent`: the bytes of
    /// both streams before.
    pub(crate) fn carried(&self, change: u32, received: u64, sent: u64) -> Carried {
        Carried { id: self.id, tenure: self.tenure, dispatcher: self.dispatcher.clone(), change, received, sent }
    }

    /// Ships the connection, for `epoch`.
    pub(crate) fn ship(&self, epoch: Epoch, fenced: &Fenced, bytes: FencedBytes<'_>) -> Ship {
        let Self { id, dispatcher, client, server, tls, client_certificate, handshake_node, moves, .. } = self.clone();
        Ship {
            connection: id,
            epoch,
            dispatcher: dispatcher.get(),
            state: SecretBytes::new(fenced.state().to_vec()),
            tls,
            client_certificate,
            client,
            server,
            handshake_node,
            moves,
            opened: SecretBytes::new(bytes.opened.to_vec()),
            rx_offset: bytes.received,
            rest: SecretBytes::new(bytes.unopened.to_vec()),
            tail: bytes.unsent.to_vec(),
            tail_offset: bytes.sent,
        }
    }

    /// Announces to the dispatcher that the handshake is done. The message may wait until a proposal to move is sent.
    pub(crate) fn announce(&self, peers: &Peers) {
        let announced = Established { connection: self.id, tls: self.tls.clone() };
        peers.send_soon(&self.dispatcher.get(), AgentToDispatcher::Established(announced));
    }

    /// Reports to the dispatcher why the connection stays for now, although it was asked to leave.
    pub(crate) fn report_stay(&self, peers: &Peers, reason: StayReason) {
        let message = match reason {
            StayReason::Tunnel => AgentToDispatcher::Tunnel(self.id),
            reason => AgentToDispatcher::Stays(Stays { connection: self.id, reason }),
        };
        peers.send(&self.dispatcher.get(), message);
    }
}

/// A connection that this node owns: it may open and seal.
pub(crate) struct Live {
    pub(crate) about: About,
    pub(crate) parts: Parts<Leg>,
}
