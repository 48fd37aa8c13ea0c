//! `[agent.sessions]`: how sessions are shared.

use std::time::Duration;

use watari_agent::{Mode, Sharing};

use super::check::{Check, Wrong};
use super::raw::{RawSessions, SessionMode};

/// Shorter, and clients would hardly come back in time.
const LIFETIME_MIN: Duration = Duration::from_mins(1);
/// RFC 8446, section 4.6.1.
const LIFETIME_MAX: Duration = Duration::from_hours(7 * 24);
/// Seeds are kept as long as their tickets are good; there is room for twice as many, made by order.
const ROTATIONS_MAX: f64 = 24.0;
/// Each costs the client some memory, and a handshake some time.
const TICKETS_MAX: usize = 10;

impl Check<'_> {
    pub(super) fn sharing(&self, raw: &RawSessions) -> Result<Sharing, Wrong> {
        let mut sharing = Sharing::default();
        sharing.mode = match raw.mode {
            None => sharing.mode,
            Some(SessionMode::Private) => Mode::Private,
            Some(SessionMode::Tickets) => Mode::Tickets,
            Some(SessionMode::Push) => Mode::Push,
            Some(SessionMode::Owner) => Mode::Owner,
        };
        if let Some(lifetime) = &raw.lifetime {
            sharing.lifetime = lifetime.get_ref().get();
            if !(LIFETIME_MIN..=LIFETIME_MAX).contains(&sharing.lifetime) {
                return self
                    .wrong(lifetime, "a session can be resumed for one minute at least, and seven days at most");
            }
        }
        sharing.rotation = raw.rotation.as_ref().map_or(sharing.lifetime / 2, |rotation| rotation.get_ref().get());
        if let Some(rotation) = &raw.rotation
            && (sharing.rotation.is_zero() || sharing.lifetime.div_duration_f64(sharing.rotation) > ROTATIONS_MAX)
        {
            return self.wrong(rotation, "ticket keys are rotated at most 24 times in the lifetime of a session");
        }
        if let Some(tickets) = &raw.tickets {
            sharing.tickets_per_handshake = *tickets.get_ref();
            if !(1..=TICKETS_MAX).contains(&sharing.tickets_per_handshake) {
                return self.wrong(tickets, format!("a handshake gives 1 to {TICKETS_MAX} tickets"));
            }
        }
        sharing.memory_bytes = raw.memory_mib.map_or(sharing.memory_bytes, |mib| mib.get().saturating_mul(1 << 20));
        Ok(sharing)
    }
}
