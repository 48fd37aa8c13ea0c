//! Sessions at a Redis server (6.2 or later), or at one that speaks its protocol (Valkey).
//!
//! ```text
//!   watari:session:KEY -> 1, expires, value       SET .. EX, MGET, GETDEL
//! ```
//!
//! One connection is kept, and made again in the background when it is lost. While there is none, every call is an error at once:
//! nobody waits for a server that did not answer a moment ago.
//!
//! The server is not trusted: it may have been taken over, or somebody may have written to it. What it stores is bounded, and is
//! either a value as above or nothing. It could answer with an old value, or with another key's; so callers seal each value
//! under its key, and date it.

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
use watari_wire::SessionKey;

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
    /// Connects in the background, for as long as this is not dropped. Runs in the tokio runtime of whoever calls.
    pub fn connect(settings: RedisSettings) -> Self {
        let (settings, link, counters) = (Arc::new(settings), Arc::<Link>::default(), Arc::<Counters>::default());
        let keep = link::keep(Arc::clone(&settings), Arc::clone(&link), Arc::clone(&counters));
        Self { settings, link, counters, task: tokio::spawn(keep) }
    }

    /// Keeps entries until they expire, in place of others with their keys. Those that have expired, and those whose values are
    /// longer than [`VALUE_MAX`](crate::VALUE_MAX), are not sent. After an error some may be kept and others not.
    pub async fn put(&self, entries: &[Entry], now: u64) -> Result<(), RedisError> {
        let commands = protocol::put(entries, now);
        if commands.is_empty() {
            return Ok(());
        }
        self.ask(&commands, protocol::read_put).await
    }

    /// Those of the entries with these keys that are there and have not expired.
    pub async fn get(&self, keys: &[SessionKey], now: u64) -> Result<Vec<Entry>, RedisError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let stored = self.ask(&protocol::get(keys), |answers| protocol::read_get(answers, keys)).await?;
        Ok(stored.into_iter().filter_map(|stored| self.entry(stored, now)).collect())
    }

    /// Takes the entry with this key away, if it is there and has not expired. Of all who ask for it, one gets it.
    pub async fn take(&self, key: &SessionKey, now: u64) -> Result<Option<Entry>, RedisError> {
        let stored = self.ask(&protocol::take(key), |answers| protocol::read_take(answers, key)).await?;
        Ok(self.entry(stored, now))
    }

    /// Whether the server can be asked at the moment.
    pub fn is_connected(&self) -> bool {
        self.link.connection().is_some()
    }

    /// What has happened so far.
    pub fn counters(&self) -> RedisCounters {
        self.counters.now()
    }

    /// Asks the server, unless it is away; if it does not answer as servers do, it is away from now on.
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

    /// What is stored, if it is an entry and has not expired.
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
