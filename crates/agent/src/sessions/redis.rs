//! Sessions at a Redis server, sealed with ticket keys.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use watari_handshake::Miss;
use watari_session::{FoundSession, Session, Source};
use watari_session_stores::{
    BadRedisSettings, Entry, Redis, RedisCounters, RedisCredentials, RedisError, RedisSettings,
};
use watari_values::{NodeName, SessionKey};

use super::clock::Clock;
use super::tickets::TicketRing;

/// The configuration of a Redis server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisServer {
    /// `redis://HOST:PORT/DATABASE`, or `rediss://` for TLS.
    pub url: String,
    /// The user name. `None`: the user `default`.
    pub username: Option<String>,
    /// The file with the password. `None`: no password.
    pub password_file: Option<PathBuf>,
    /// The file of CA certificates for the server's certificate. `None`: the CAs of the system.
    pub ca: Option<PathBuf>,
    /// The client certificate and its private key, if the server requires one.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// How long a handshake waits for an answer.
    pub timeout: Duration,
}

impl RedisServer {
    /// Reads the files that this configuration names.
    pub fn settings(&self) -> Result<RedisSettings, BadRedisSettings> {
        let certificate = self.certificate.as_ref().map(|(chain, key)| (chain.as_path(), key.as_path()));
        let mut settings = RedisSettings::from_url(&self.url, self.ca.as_deref(), certificate)?;
        let load = |path| RedisCredentials::load(self.username.clone(), path);
        settings.credentials = self.password_file.as_deref().map(load).transpose()?;
        settings.timeout = self.timeout;
        Ok(settings)
    }
}

/// The state of the connection to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedisStatus {
    /// Whether the agent can send requests now.
    pub connected: bool,
    /// Counts of requests, by result.
    pub counters: RedisCounters,
}

/// All sessions of the cluster, at the server. The server cannot read them: each is sealed under its key.
pub(super) struct SealedRedis {
    redis: Redis,
    ring: Arc<TicketRing>,
    me: NodeName,
    clock: Clock,
    single_use: bool,
}

impl SealedRedis {
    pub(super) fn new(
        settings: RedisSettings,
        ring: Arc<TicketRing>,
        me: NodeName,
        clock: Clock,
        single_use: bool,
    ) -> Self {
        Self { redis: Redis::connect(settings), ring, me, clock, single_use }
    }

    /// Stores sessions. Returns when the server confirms, or on failure.
    pub(super) async fn put(&self, sessions: &[(SessionKey, Session)]) {
        let entries = sessions.iter().filter_map(|(key, session)| {
            Some(Entry { key: *key, value: self.ring.seal_kept(key, session)?, expires: session.expires })
        });
        // The counters record a failure. The client then does a full handshake next time.
        let _ = self.redis.put(&entries.collect::<Vec<_>>(), self.clock.unix_s()).await;
    }

    /// Searches for sessions. Returns the reason if none was found.
    pub(super) async fn get(&self, keys: &[SessionKey]) -> (Vec<FoundSession>, Option<Miss>) {
        let now = self.clock.unix_s();
        let entries = if self.single_use { self.take_one(keys, now).await } else { self.redis.get(keys, now).await };
        let Ok(entries) = entries else { return (Vec::new(), Some(Miss::Unreachable)) };
        let found: Vec<_> = entries.iter().filter_map(|entry| self.open(entry)).collect();
        let miss = found.is_empty().then_some(if entries.is_empty() { Miss::Unknown } else { Miss::NoKey });
        (found, miss)
    }

    pub(super) fn status(&self) -> RedisStatus {
        RedisStatus { connected: self.redis.is_connected(), counters: self.redis.counters() }
    }

    /// Removes and returns the first stored session. The server gives it to one caller only.
    async fn take_one(&self, keys: &[SessionKey], now: u64) -> Result<Vec<Entry>, RedisError> {
        for key in keys {
            if let Some(entry) = self.redis.take(key, now).await? {
                return Ok(vec![entry]);
            }
        }
        Ok(Vec::new())
    }

    fn open(&self, entry: &Entry) -> Option<FoundSession> {
        let session = self.ring.open_kept(&entry.key, &entry.value)?;
        let source = if session.issuer == self.me { Source::Own } else { Source::Pulled };
        Some(FoundSession { key: entry.key, session, source })
    }
}
