//! Sessions at a Redis server (6.2 or later), or at a server with its protocol (Valkey).
//!
//! ```text
//!   watari:session:KEY -> 1, expires, value       SET .. EX, MGET, GETDEL
//! ```
//!
//! There is one connection. If it is lost, it is made again in the background. Without a connection, every call fails
//! at once, so no handshake waits for a server that is not available.
//!
//! The server is not trusted: it may be compromised, or another client may have written to it. Received data has
//! bounded length, and is either a value as above or ignored. The server could send an old value, or that of another
//! key. So callers seal each value under its key, and date it.

mod counters;
mod error;
mod link;
mod protocol;
mod settings;
mod stream;

use std::fmt;
use std::sync::Arc;

use ::redis::{Pipeline, Value};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use watari_values::SessionKey;

use counters::Counters;
pub use counters::RedisCounters;
pub use error::RedisError;
use link::Link;
use protocol::Stored;
pub use settings::{BadRedisSettings, RedisCredentials, RedisSettings, RedisTls};

use crate::Entry;

/// Sessions at a Redis server.
pub struct Redis {
    settings: Arc<RedisSettings>,
    link: Arc<Link>,
    counters: Arc<Counters>,
    task: JoinHandle<()>,
}

impl Redis {
    /// Connects in the background until this value is dropped. Runs in the caller's tokio runtime.
    pub fn connect(settings: RedisSettings) -> Self {
        let (settings, link, counters) = (Arc::new(settings), Arc::<Link>::default(), Arc::<Counters>::default());
        let keep = link::keep(Arc::clone(&settings), Arc::clone(&link), Arc::clone(&counters));
        Self { settings, link, counters, task: tokio::spawn(keep) }
    }

    /// Stores entries until they expire, in place of others with their keys. Expired entries are not sent, and neither
    /// are values longer than [`VALUE_MAX`](crate::VALUE_MAX). After an error, some entries may be stored and others
    /// not.
    pub async fn put(&self, entries: &[Entry], now: u64) -> Result<(), RedisError> {
        let commands = protocol::put(entries, now);
        if commands.is_empty() {
            return Ok(());
        }
        self.ask(&commands, protocol::read_put).await
    }

    /// The entries with these keys that the server has and that have not expired.
    pub async fn get(&self, keys: &[SessionKey], now: u64) -> Result<Vec<Entry>, RedisError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let stored = self.ask(&protocol::get(keys), |answers| protocol::read_get(answers, keys)).await?;
        Ok(stored.into_iter().filter_map(|stored| self.entry(stored, now)).collect())
    }

    /// Removes and returns the entry with this key, if the server has it and it has not expired. If several nodes take
    /// it, one gets it.
    pub async fn take(&self, key: &SessionKey, now: u64) -> Result<Option<Entry>, RedisError> {
        let stored = self.ask(&protocol::take(key), |answers| protocol::read_take(answers, key)).await?;
        Ok(self.entry(stored, now))
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        self.link.connection().is_some()
    }

    pub fn counters(&self) -> RedisCounters {
        self.counters.now()
    }

    /// Sends commands and reads the responses. Fails at once without a connection. Closes the connection after an
    /// invalid response.
    async fn ask<T>(
        &self,
        commands: &Pipeline,
        read: impl FnOnce(Vec<Value>) -> Result<T, RedisError>,
    ) -> Result<T, RedisError> {
        let Some(mut connection) = self.link.connection() else {
            return Err(RedisError::Away).inspect_err(|error| self.counters.failed(error));
        };
        let asked = match timeout(self.settings.timeout, connection.send(commands)).await {
            Ok(answers) => answers.map_err(RedisError::from).and_then(read),
            Err(_) => Err(RedisError::TimedOut(self.settings.timeout)),
        };
        asked.inspect_err(|error| {
            self.counters.failed(error);
            if !matches!(error, RedisError::Refused(_)) {
                self.link.lose(&connection, error);
            }
        })
    }

    /// The entry of a stored value, if it is valid and has not expired.
    fn entry(&self, stored: Stored, now: u64) -> Option<Entry> {
        match stored {
            Stored::Entry(entry) => (now < entry.expires).then_some(entry),
            Stored::Nothing => None,
            Stored::Foreign => {
                self.counters.found_foreign();
                None
            }
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("settings", &self.settings).finish_non_exhaustive()
    }
}
