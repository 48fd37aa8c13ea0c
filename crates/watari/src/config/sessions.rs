//! `[agent.sessions]`: how sessions are shared.

use std::time::Duration;

use watari_agent::{DatabaseFile, Mode, RedisServer, Sharing};
use watari_values::setting::Span;

use super::check::{Check, Checked};
use super::load;
use super::outline::Outline;
use super::raw::{DATABASE_MIB, LIFETIME, REDIS_TIMEOUT, ROTATIONS_MAX, RawSessions, SessionMode, TICKETS_MAX};
use super::spanned::Spanned;
use super::value::FilePath;

impl Check<'_> {
    pub(super) fn sharing(&self, raw: &RawSessions) -> Option<Sharing> {
        let default = Sharing::default();
        let mode = raw.mode.as_ref().map_or(default.mode, |mode| Mode::from(*mode.get_ref()));
        let lifetime = self.lifetime(raw, default.lifetime);
        let rotation = lifetime.and_then(|lifetime| self.rotation(raw, lifetime));
        let tickets = self.tickets(raw, default.tickets_per_handshake);
        let single_use = self.single_use(raw, mode);
        let early_data = self.early_data(raw, mode);
        let (database, redis) = (self.database(raw, mode), self.redis(raw, mode));
        let sharing = Sharing {
            mode,
            lifetime: lifetime?,
            rotation: rotation?,
            tickets_per_handshake: tickets?,
            memory_bytes: raw.memory_mib.map_or(default.memory_bytes, |mib| mib.get().saturating_mul(1 << 20)),
            single_use: single_use?,
            early_data: early_data?,
            keys_file: raw.keys_file.as_ref().map(|path| self.path(path).value),
            database: database?,
            redis: redis?,
        };
        let (files, outline) = (sharing.clone(), Outline::of(self.text));
        self.later(move |file| load::session_files(file, &outline, &files));
        Some(sharing)
    }

    fn lifetime(&self, raw: &RawSessions, default: Duration) -> Option<Duration> {
        let Some(lifetime) = &raw.lifetime else { return Some(default) };
        let value = lifetime.get_ref().get();
        if LIFETIME.contains(&value) { Some(value) } else { self.wrong(lifetime, "lifetime must be from 10m to 7d") }
    }

    fn rotation(&self, raw: &RawSessions, lifetime: Duration) -> Option<Duration> {
        let Some(rotation) = &raw.rotation else { return Some(lifetime / 2) };
        let value = rotation.get_ref().get();
        if value.is_zero() || lifetime.div_duration_f64(value) > f64::from(ROTATIONS_MAX) {
            return self.wrong(rotation, "rotation must be at least 1/24 of lifetime");
        }
        Some(value)
    }

    fn tickets(&self, raw: &RawSessions, default: usize) -> Option<usize> {
        let Some(tickets) = &raw.tickets else { return Some(default) };
        if (1..=TICKETS_MAX).contains(tickets.get_ref()) {
            return Some(*tickets.get_ref());
        }
        self.wrong(tickets, format!("tickets must be from 1 to {TICKETS_MAX}"))
    }

    fn single_use(&self, raw: &RawSessions, mode: Mode) -> Option<bool> {
        match &raw.single_use {
            Some(set) if *set.get_ref() && !matches!(mode, Mode::Push | Mode::Owner | Mode::Redis) => {
                self.wrong(set, "single_use needs a mode that stores sessions: \"owner\", \"push\" or \"redis\"")
            }
            set => Some(set.as_ref().is_some_and(|set| *set.get_ref())),
        }
    }

    fn early_data(&self, raw: &RawSessions, mode: Mode) -> Option<bool> {
        match &raw.early_data {
            Some(set) if *set.get_ref() && !matches!(mode, Mode::Push | Mode::Owner) => {
                self.wrong(set, "early_data needs a mode in which agents store sessions: \"owner\" or \"push\"")
            }
            set => Some(set.as_ref().is_some_and(|set| *set.get_ref())),
        }
    }

    fn database(&self, raw: &RawSessions, mode: Mode) -> Checked<Option<DatabaseFile>> {
        match (&raw.database, &raw.database_mib) {
            (Some(path), _) if mode == Mode::Redis => {
                self.wrong(path, "database has no effect in mode \"redis\": agents store no sessions")
            }
            (None, Some(mib)) => self.wrong(mib, "database_mib has no effect without database"),
            (None, None) => Some(None),
            (Some(path), mib) => {
                let mib = mib.as_ref().map_or(DATABASE_MIB, |mib| mib.get_ref().get());
                Some(Some(DatabaseFile { path: self.path(path).value, bytes_max: u64::from(mib) << 20 }))
            }
        }
    }

    fn redis(&self, raw: &RawSessions, mode: Mode) -> Checked<Option<RedisServer>> {
        let server = match (&raw.redis, mode, &raw.mode) {
            (None, Mode::Redis, Some(mode)) => {
                return self.wrong(mode, "mode \"redis\" needs [agent.sessions.redis] with the url of the server");
            }
            (None, ..) => return Some(None),
            (Some(redis), Mode::Redis, _) => redis.get_ref(),
            (Some(redis), ..) => {
                return self.wrong(redis, "[agent.sessions.redis] has no effect unless mode is \"redis\"");
            }
        };
        let certificate = self.identity(server.certificate.as_ref(), server.key.as_ref());
        if let (Some(name), None) = (&server.username, &server.password_file) {
            return self.wrong(name, "username needs password_file");
        }
        let path = |path: &Spanned<FilePath>| self.path(path).value;
        Some(Some(RedisServer {
            url: server.url.clone(),
            username: server.username.as_ref().map(|name| name.get_ref().clone()),
            password_file: server.password_file.as_ref().map(path),
            ca: server.ca.as_ref().map(path),
            certificate: certificate?.map(|(certificate, key)| (certificate.value, key.value)),
            timeout: server.timeout.map_or(REDIS_TIMEOUT, Span::get),
        }))
    }
}

impl From<SessionMode> for Mode {
    fn from(mode: SessionMode) -> Self {
        match mode {
            SessionMode::Private => Self::Private,
            SessionMode::Tickets => Self::Tickets,
            SessionMode::Push => Self::Push,
            SessionMode::Owner => Self::Owner,
            SessionMode::Redis => Self::Redis,
        }
    }
}
