//! Why a Redis server is of no use.

use std::time::Duration;

use ::redis::{ErrorKind, RedisError as ClientError};

/// Why a session was neither found nor known to be missing, or is not kept. Whoever gets this goes on without the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedisError {
    /// There is no connection at the moment; one is being made.
    #[error("the Redis server is away")]
    Away,
    /// The server did not answer.
    #[error("the Redis server did not answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The connection ended while something was asked.
    #[error("the connection to the Redis server was lost: {0}")]
    Lost(String),
    /// The server answered that it will not: it has no room, say, or this user may not.
    #[error("the Redis server refuses: {0}")]
    Refused(String),
    /// The server answered with something else than was asked for.
    #[error("the Redis server answered {found} where {expected} was expected")]
    Garbage {
        /// What it is.
        found: &'static str,
        /// What it should be.
        expected: &'static str,
    },
}

impl From<ClientError> for RedisError {
    fn from(error: ClientError) -> Self {
        match error.kind() {
            ErrorKind::Server(_) | ErrorKind::Extension => Self::Refused(error.to_string()),
            _ => Self::Lost(error.to_string()),
        }
    }
}
