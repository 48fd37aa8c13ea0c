//! Why a Redis server is of no use.

use std::time::Duration;

use ::redis::{ErrorKind, RedisError as ClientError};

/// Why a call failed. It is then unknown whether the server has the session. The caller continues without the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedisError {
    /// There is no connection at present. It is being made.
    #[error("no connection to the Redis server")]
    Away,
    /// The server did not respond in time.
    #[error("the Redis server did not answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The connection ended during the call.
    #[error("the connection to the Redis server was lost: {0}")]
    Lost(String),
    /// The server sent an error: for example, it has no room, or this user has no permission.
    #[error("the Redis server answered with an error: {0}")]
    Refused(String),
    /// The response has an unexpected type.
    #[error("the Redis server sent {found} instead of {expected}")]
    Garbage {
        /// The type of the response.
        found: &'static str,
        /// The expected type.
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
