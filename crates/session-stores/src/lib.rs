//! Where sessions are kept besides a node's memory: in a file, and at a Redis server.
//!
//! * [`Database`]: a file of this node, which survives its restarts; [`Writer`] does the waiting for it.
//! * [`Redis`]: a server that all nodes share, for those who run one.
//!
//! Values are **sealed**: whoever hands them over has encrypted them, with keys that are kept elsewhere and destroyed in time. So
//! what is deleted from a file, or lingers in a server's memory or backup, cannot be opened later. Keys are digests.
//!
//! Neither is needed for a handshake to succeed: what is not found is a full handshake.

mod database;
mod redis;
mod writer;

use std::fmt;

use watari_wire::SessionKey;

pub use database::{Database, DatabaseError, EXPIRE_MAX, Usage};
pub use redis::{BadRedisSettings, Redis, RedisCounters, RedisCredentials, RedisError, RedisSettings, RedisTls};
pub use writer::{Writer, WriterCounters};

/// A sealed session.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// By what it is found.
    pub key: SessionKey,
    /// The session, as its owner sealed it; at most [`VALUE_MAX`] bytes.
    pub value: Vec<u8>,
    /// From when on it is not found any more, in seconds of Unix time.
    pub expires: u64,
}

/// The most bytes that a value may have: several times what a session with a client's chain of certificates takes.
pub const VALUE_MAX: usize = 64 * 1024;

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} until {} [{} bytes]", self.key, self.expires, self.value.len())
    }
}
