//! `[agent.sessions]`: how sessions are shared.

use watari_agent::{DatabaseFile, Mode, RedisServer, Sharing};
use watari_values::setting::Span;

use super::check::{Check, Wrong};
use super::raw::{DATABASE_MIB, LIFETIME, REDIS_TIMEOUT, ROTATIONS_MAX, RawSessions, SessionMode, TICKETS_MAX};
use super::spanned::Spanned;
use super::value::FilePath;

impl Check<'_> {
    pub(super) fn sharing(&self, raw: &RawSessions) -> Result<Sharing, Wrong> {
        let mut sharing = Sharing::default();
        sharing.mode = match raw.mode.as_ref().map(|mode| *mode.get_ref()) {
            None => sharing.mode,
            Some(SessionMode::Private) => Mode::Private,
            Some(SessionMode::Tickets) => Mode::Tickets,
            Some(SessionMode::Push) => Mode::Push,
            Some(SessionMode::Owner) => Mode::Owner,
            Some(SessionMode::Redis) => Mode::Redis,
        };
        if let Some(lifetime) = &raw.lifetime {
            sharing.lifetime = lifetime.get_ref().get();
            if !LIFETIME.contains(&sharing.lifetime) {
                return self.wrong(lifetime, "lifetime must be from 10m to 7d");
            }
        }
        sharing.rotation = raw.rotation.as_ref().map_or(sharing.lifetime / 2, |rotation| rotation.get_ref().get());
        if let Some(rotation) = &raw.rotation
            && (sharing.rotation.is_zero()
                || sharing.lifetime.div_duration_f64(sharing.rotation) > f64::from(ROTATIONS_MAX))
        {
            return self.wrong(rotation, "rotation must be at least 1/24 of lifetime");
        }
        if let Some(tickets) = &raw.tickets {
            sharing.tickets_per_handshake = *tickets.get_ref();
            if !(1..=TICKETS_MAX).contains(&sharing.tickets_per_handshake) {
                return self.wrong(tickets, format!("tickets must be from 1 to {TICKETS_MAX}"));
            }
        }
        sharing.single_use = raw.single_use.as_ref().is_some_and(|single_use| *single_use.get_ref());
        if let Some(single_use) = &raw.single_use
            && sharing.single_use
            && !matches!(sharing.mode, Mode::Push | Mode::Owner | Mode::Redis)
        {
            return self
                .wrong(single_use, "single_use needs a mode that stores sessions: \"owner\", \"push\" or \"redis\"");
        }
        sharing.early_data = raw.early_data.as_ref().is_some_and(|early_data| *early_data.get_ref());
        if let Some(early_data) = &raw.early_data
            && sharing.early_data
            && !matches!(sharing.mode, Mode::Push | Mode::Owner)
        {
            return self
                .wrong(early_data, "early_data needs a mode in which agents store sessions: \"owner\" or \"push\"");
        }
        sharing.keys_file = raw.keys_file.as_ref().map(|path| self.path(path).value);
        sharing.database = self.database(raw, sharing.mode)?;
        sharing.redis = self.redis(raw, sharing.mode)?;
        sharing.memory_bytes = raw.memory_mib.map_or(sharing.memory_bytes, |mib| mib.get().saturating_mul(1 << 20));
        Ok(sharing)
    }

    fn database(&self, raw: &RawSessions, mode: Mode) -> Result<Option<DatabaseFile>, Wrong> {
        match (&raw.database, &raw.database_mib) {
            (Some(path), _) if mode == Mode::Redis => {
                self.wrong(path, "database has no effect in mode \"redis\": agents store no sessions")
            }
            (None, Some(mib)) => self.wrong(mib, "database_mib has no effect without database"),
            (None, None) => Ok(None),
            (Some(path), mib) => {
                let mib = mib.as_ref().map_or(DATABASE_MIB, |mib| mib.get_ref().get());
                Ok(Some(DatabaseFile { path: self.path(path).value, bytes_max: u64::from(mib) << 20 }))
            }
        }
    }

    fn redis(&self, raw: &RawSessions, mode: Mode) -> Result<Option<RedisServer>, Wrong> {
        let server = match (&raw.redis, mode, &raw.mode) {
            (None, Mode::Redis, Some(mode)) => {
                return self.wrong(mode, "mode \"redis\" needs [agent.sessions.redis] with the url of the server");
            }
            (None, ..) => return Ok(None),
            (Some(redis), Mode::Redis, _) => redis.get_ref(),
            (Some(redis), ..) => {
                return self.wrong(redis, "[agent.sessions.redis] has no effect unless mode is \"redis\"");
            }
        };
        let certificate = self.identity(server.certificate.as_ref(), server.key.as_ref())?;
        if let (Some(name), None) = (&server.username, &server.password_file) {
            return self.wrong(name, "username needs password_file");
        }
        let path = |path: &Spanned<FilePath>| self.path(path).value;
        Ok(Some(RedisServer {
            url: server.url.clone(),
            username: server.username.as_ref().map(|name| name.get_ref().clone()),
            password_file: server.password_file.as_ref().map(path),
            ca: server.ca.as_ref().map(path),
            certificate: certificate.map(|(certificate, key)| (certificate.value, key.value)),
            timeout: server.timeout.map_or(REDIS_TIMEOUT, Span::get),
        }))
    }
}
