//! The state of session resumption, as an operator sees it.

use std::time::Duration;

use super::database::DatabaseStatus;
use super::redis::RedisStatus;
use super::sharing::Sharing;
use crate::node::metrics::HandshakeCounts;

/// The state of session resumption, and counts since the agent started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStatus {
    pub sharing: Sharing,
    /// The number of seeds of ticket keys.
    pub seeds: usize,
    /// The age of the newest seed, by its maker's clock.
    pub newest_seed_age: Option<Duration>,
    /// Sessions stored in memory: their number, and their size in bytes.
    pub in_memory: (usize, usize),
    /// The state of the session file, if one is configured.
    pub database: Option<DatabaseStatus>,
    /// The state of the Redis server, if one is configured.
    pub redis: Option<RedisStatus>,
    /// By TLS version: `"1.2"`, `"1.3"`.
    pub handshakes: Vec<(&'static str, HandshakeCounts)>,
}
