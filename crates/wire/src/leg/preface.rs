//! The content of a preface, and its authenticator.

use std::net::SocketAddr;

use aws_lc_rs::hmac;
use serde::{Deserialize, Serialize};
use watari_values::{ConnectionId, Epoch, NodeName};

use crate::message::LegKey;

/// The longest preface, in bytes. An agent reads no further for one.
pub const PREFACE_LEN_MAX: usize = 512;

/// The type of the value, from the range for private use.
pub(super) const TLV_KIND: u8 = 0xe5;
/// The version of the value.
pub(super) const VERSION: u8 = 1;
/// HMAC-SHA256.
pub(super) const AUTHENTICATOR_LEN: usize = 32;
/// Separates this use of the key from any other.
pub(super) const DOMAIN: &[u8] = b"watari leg preface v1\0";

/// A dispatcher's description of the connection that a leg carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preface {
    /// The agent's task.
    pub kind: Kind,
    pub connection: ConnectionId,
    /// 0 for a new connection, otherwise the epoch of the committed attempt.
    pub epoch: Epoch,
    pub client: SocketAddr,
    /// The address that the client connected to. If the families of the two addresses differ, one of them arrives as an
    /// IPv4-mapped IPv6 address.
    pub server: SocketAddr,
}

/// The agent's task for the connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A new client: do its handshake.
    New {
        /// The agent that gets the connection after the handshake. `None`: it stays.
        bulk: Option<NodeName>,
    },
    /// The dispatcher has committed: the agent now owns the connection that it holds.
    Commit {
        /// The offset in the client's stream of the first byte on this leg.
        rx_offset: u64,
        /// The offset up to which the client was sent the stream to it.
        tail_offset: u64,
    },
    /// A health check without a connection: does the agent accept legs, and does it have a free slot? If so, the agent
    /// closes the leg without a byte. Otherwise it resets the leg.
    Check,
    /// The connection, which this agent owns, has changed its dispatcher. This leg replaces the one of the previous
    /// dispatcher. The epoch of the preface is the owner's tenure.
    Continue {
        /// The number of the change ([`DetachLeg`](crate::DetachLeg)).
        change: u32,
        /// The offset in the client's stream of the first byte on this leg. The bytes before it are on the previous leg.
        rx_offset: u64,
        /// The offset of the first byte that the agent writes on this leg.
        tx_offset: u64,
    },
}

/// The value of the type-length-value.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Claim {
    pub(super) dispatcher: NodeName,
    pub(super) key_id: u32,
    pub(super) nonce: u64,
    pub(super) connection: ConnectionId,
    pub(super) epoch: Epoch,
    pub(super) kind: Kind,
}

/// A leg key and the two names that it is bound to.
pub(super) struct BoundKey {
    pub(super) id: u32,
    pub(super) key: hmac::Key,
    /// Bytes that the authenticator covers before the preface.
    pub(super) prefix: Vec<u8>,
}

impl BoundKey {
    pub(super) fn new(agent: &NodeName, dispatcher: &NodeName, key: &LegKey) -> Self {
        let mut prefix = DOMAIN.to_vec();
        // Names have no zero byte, so it separates them.
        for name in [agent, dispatcher] {
            prefix.extend_from_slice(name.as_str().as_bytes());
            prefix.push(0);
        }
        Self { id: key.id, key: hmac::Key::new(hmac::HMAC_SHA256, key.key.as_slice()), prefix }
    }

    pub(super) fn authenticator(&self, signed: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&self.prefix);
        context.update(signed);
        context.sign()
    }
}
