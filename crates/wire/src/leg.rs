//! The preface: the first bytes on each leg, by which an agent knows whose connection it carries.
//!
//! A leg is the TCP connection from a dispatcher to an agent. It opens with a PROXY protocol v2 header, so that any
//! tool that knows that protocol reads the client's and the server's address, with one type-length-value of our own:
//!
//! ```text
//!  PROXY v2 head | addresses | type 0xE5, length | version | postcard of the claim | authenticator
//!  |<------------------------ HMAC-SHA256 covers this -------------------------->|    32 bytes
//! ```
//!
//! The key is the agent's, which hands it to one dispatcher over the mesh ([`LegKey`]), so an authenticator is good for
//! one agent, one dispatcher and one key, and the nonce makes it good for one leg.
//!
//! A leg may carry another connection when its connection has moved away or has ended. The agent writes [`LEG_FREE`],
//! and the next bytes that the dispatcher writes are a preface again.

mod sign;
mod verify;

use std::net::SocketAddr;

use aws_lc_rs::hmac;
use serde::{Deserialize, Serialize};

pub use sign::LegSigner;
pub use verify::{Accepted, LegVerifier, Malformed, PrefaceError};

use crate::{ConnectionId, Epoch, LegKey, NodeName};

/// The longest preface, in bytes. An agent reads no further than this for one.
pub const PREFACE_LEN_MAX: usize = 512;

/// The byte that an agent writes on a leg that was left behind by a move, or by a connection that has ended. The agent has
/// then read all bytes of that connection, and reads a preface next. The byte belongs to no connection. After it, the
/// dispatcher may write that preface.
pub const LEG_FREE: u8 = 0xf7;

/// Type of the value; of those for private use.
const TLV_KIND: u8 = 0xe5;
/// Version of the value.
const VERSION: u8 = 1;
/// HMAC-SHA256.
const AUTHENTICATOR_LEN: usize = 32;
/// Tells this use of the key from any other.
const DOMAIN: &[u8] = b"watari leg preface v1\0";

/// What a dispatcher says of the connection that a leg carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preface {
    /// What the agent is to do.
    pub kind: Kind,
    /// The connection.
    pub connection: ConnectionId,
    /// 0 for a new connection, else the attempt that is committed.
    pub epoch: Epoch,
    /// The client's address.
    pub client: SocketAddr,
    /// The address the client connected to. Of the client's address family; else one of the two arrives as an
    /// IPv4-mapped IPv6 address.
    pub server: SocketAddr,
}

/// What the agent is to do with the connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A client just accepted: do its handshake.
    New {
        /// The agent its data shall go to after the handshake; `None`: it stays.
        bulk: Option<NodeName>,
    },
    /// The dispatcher has decided: the connection that the agent holds is its own.
    Commit {
        /// The client's stream goes on from here.
        rx_offset: u64,
        /// The client has been sent the stream up to here.
        tail_offset: u64,
    },
    /// There is none: the dispatcher wants to know whether the agent takes legs, and has a place for another
    /// connection. The agent ends the leg then, with nothing on it, and else resets it.
    Check,
}

/// What stands in the type-length-value.
#[derive(Debug, Serialize, Deserialize)]
struct Claim {
    dispatcher: NodeName,
    key_id: u32,
    nonce: u64,
    connection: ConnectionId,
    epoch: Epoch,
    kind: Kind,
}

/// One leg key with both names it is bound to.
struct BoundKey {
    id: u32,
    key: hmac::Key,
    /// What the authenticator covers before the preface itself.
    prefix: Vec<u8>,
}

impl BoundKey {
    fn new(agent: &NodeName, dispatcher: &NodeName, key: &LegKey) -> Self {
        let mut prefix = DOMAIN.to_vec();
        // Names hold no zero byte.
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
