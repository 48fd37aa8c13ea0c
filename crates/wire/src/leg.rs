//! The preface: the first bytes on a leg, which identify the connection that the leg carries.
//!
//! A leg is a TCP connection from a dispatcher to an agent. It begins with a PROXY protocol v2 header, so that any tool
//! with support for the protocol can read the client's and the server's address. The header has one type-length-value
//! of Watari:
//!
//! ```text
//!  PROXY v2 head | addresses | type 0xE5, length | version | postcard of the claim | authenticator
//!  |<------------------------ HMAC-SHA256 covers this -------------------------->|    32 bytes
//! ```
//!
//! The agent makes the key and sends it to one dispatcher over the mesh ([`LegKey`]). So an authenticator is valid for
//! one agent, one dispatcher and one key. The nonce makes it valid for one leg.
//!
//! A leg may carry another connection after its connection has moved away or ended. The agent writes [`LEG_FREE`], and
//! the next bytes of the dispatcher are a preface again.

mod sign;
mod verify;

use std::net::SocketAddr;

use aws_lc_rs::hmac;
use serde::{Deserialize, Serialize};
use watari_values::{ConnectionId, Epoch, NodeName};

pub use sign::LegSigner;
pub use verify::{Accepted, LegVerifier, Malformed, PrefaceError};

use crate::LegKey;

/// The longest preface, in bytes. An agent reads no further for one.
pub const PREFACE_LEN_MAX: usize = 512;

/// The byte that an agent writes on a leg after the leg's connection has moved away or ended. The agent has read all
/// bytes of that connection, and reads a preface next. The byte belongs to no connection. After it, the dispatcher may
/// write the preface.
pub const LEG_FREE: u8 = 0xf7;

/// The type of the value, from the range for private use.
const TLV_KIND: u8 = 0xe5;
/// The version of the value.
const VERSION: u8 = 1;
/// HMAC-SHA256.
const AUTHENTICATOR_LEN: usize = 32;
/// Separates this use of the key from any other.
const DOMAIN: &[u8] = b"watari leg preface v1\0";

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
}

/// The value of the type-length-value.
#[derive(Debug, Serialize, Deserialize)]
struct Claim {
    dispatcher: NodeName,
    key_id: u32,
    nonce: u64,
    connection: ConnectionId,
    epoch: Epoch,
    kind: Kind,
}

/// A leg key and the two names that it is bound to.
struct BoundKey {
    id: u32,
    key: hmac::Key,
    /// Bytes that the authenticator covers before the preface.
    prefix: Vec<u8>,
}

impl BoundKey {
    fn new(agent: &NodeName, dispatcher: &NodeName, key: &LegKey) -> Self {
        let mut prefix = DOMAIN.to_vec();
        // Names have no zero byte, so it separates them.
        for name in [agent, dispatcher] {
            prefix.extend_from_slice(name.as_str().as_bytes());
            prefix.push(0);
        }
        Self { id: key.id, key: hmac::Key::new(hmac::HMAC_SHA256, key.key.as_slice()), prefix }
    }

    fn authenticator(&self, signed: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&self.prefix);
        context.update(signed);
        context.sign()
    }
}

#[cfg(test)]
mod tests;
