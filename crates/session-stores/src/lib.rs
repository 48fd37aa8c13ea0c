//! Stores sessions outside a node's memory: in a file, and at a Redis server.
//!
//! * [`Database`]: a file of this node, which survives its restarts. [`Writer`] accesses it for callers that must not
//!   block.
//! * [`Redis`]: a server that all nodes share.
//!
//! Values are **sealed**: the caller encrypts them, with keys that are stored elsewhere and destroyed in time. So data
//! that is deleted from a file, or that stays in a server's memory or backup, cannot be opened later. Keys are digests.
//!
//! A handshake succeeds without either store: if a session is not found, the node does a full handshake.

mod database;
mod redis;
mod writer;

use std::fmt;

use watari_values::SessionKey;

pub use database::{Database, DatabaseError, EXPIRE_MAX, Usage};
pub use redis::{BadRedisSettings, Redis, RedisCounters, RedisCredentials, RedisError, RedisSettings, RedisTls};
pub use writer::{Writer, WriterCounters};

/// A sealed session.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: SessionKey,
    /// The session, as its owner sealed it; at most [`VALUE_MAX`] bytes.
    pub value: Vec<u8>,
    /// When the entry expires, in seconds of Unix time.
    pub expires: u64,
}

/// The maximum length of a value, in bytes: several times that of a session with a client's certificate chain.
pub const VALUE_MAX: usize = 64 * 1024;

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} until {} [{} bytes]", self.key, self.expires, self.value.len())
    }
}
