//! The ticket keys, with a clock and randomness.

use std::fmt;
use std::io;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use watari_handshake::{Found, Miss, PolicyId, SessionSource, Tickets};
use watari_session::{Dated, NotOpened, RANDOM_LEN, Ring, RingSettings, Session, TicketSeed, TooManySeeds};
use watari_values::{NodeName, SecretBytes, SessionKey, TicketSeedId};
use zeroize::Zeroizing;

use super::clock::Clock;

/// Seals tickets, and opens those of all agents whose keys it has.
pub(super) struct TicketRing {
    ring: RwLock<Ring>,
    clock: Clock,
    /// How much later than the others this agent makes a key that is due, so that usually only one agent does. A
    /// fraction of the rotation interval.
    jitter: f64,
}

impl TicketRing {
    /// `lifetime`: how long a session can be resumed after its handshake.
    pub(super) fn new(lifetime: Duration, clock: Clock) -> io::Result<Self> {
        let period = (lifetime / EPOCHS).max(PERIOD_MIN);
        let settings = RingSettings { lifetime, period, activation_delay: ACTIVATION_DELAY };
        let (sealer, jitter) = (random()?, random::<2>()?);
        Ok(Self {
            ring: RwLock::new(Ring::new(settings, *sealer, clock.unix_s())),
            clock,
            jitter: f64::from(u16::from_be_bytes(*jitter)) / f64::from(u16::MAX) * JITTER_MAX,
        })
    }

    /// Makes a seed.
    pub(super) fn rotate(&self) -> Result<TicketSeedId, RotationError> {
        let random = random::<RANDOM_LEN>().map_err(|_| RotationError::NoRandomness)?;
        Ok(self.write().rotate(self.clock.unix_s(), &random)?)
    }

    pub(super) fn advance(&self) {
        self.write().advance(self.clock.unix_s());
    }

    /// Whether there is no key, or the newest is older than `rotation`.
    pub(super) fn is_due(&self, rotation: Duration) -> bool {
        let made = self.read().newest_made();
        let after = rotation.mul_f64(1.0 + self.jitter).as_secs();
        made.is_none_or(|made| made.saturating_add(after) <= self.clock.unix_s())
    }

    /// Whether the newest seed was made after this time, even if clocks differ by [`PERIOD_MIN`]. A seed with a date in
    /// the future does not count.
    pub(super) fn are_newer_than(&self, unix_s: u64) -> bool {
        let surely_later = unix_s.saturating_add(PERIOD_MIN.as_secs());
        self.read().newest_made().is_some_and(|made| (surely_later..=self.clock.unix_s()).contains(&made))
    }

    /// Drops the oldest seed if there is no room for another.
    pub(super) fn make_room(&self) {
        self.write().make_room();
    }

    /// The number of seeds, and the age of the newest.
    pub(super) fn seeds(&self) -> (usize, Option<Duration>) {
        let ring = self.read();
        let age = |made| Duration::from_secs(self.clock.unix_s().saturating_sub(made));
        (ring.len(), ring.newest_made().map(age))
    }

    pub(super) fn share(&self) -> Vec<TicketSeed> {
        self.read().share()
    }

    pub(super) fn share_one(&self, seed: TicketSeedId) -> Option<TicketSeed> {
        self.read().share_one(&seed)
    }

    /// Returns how many seeds were new.
    pub(super) fn merge(&self, seeds: Vec<TicketSeed>) -> usize {
        self.write().merge(seeds, self.clock.unix_s())
    }

    pub(super) fn is_ready(&self) -> bool {
        self.read().is_ready()
    }

    pub(super) fn knows(&self, seed: TicketSeedId) -> bool {
        self.read().knows(&seed)
    }

    /// Seals a session for storage outside the memory. The sealed session cannot be presented under another key, nor as
    /// a ticket: policy ids and keys are digests of different inputs.
    pub(super) fn seal_kept(&self, key: &SessionKey, session: &Session) -> Option<Vec<u8>> {
        let (now, nonce) = (self.clock.unix_s(), random().ok()?);
        let issuer = session.issuer.as_str().as_bytes();
        let secret = session.secret.as_slice();
        // Allocated once at full size: growing would leave copies of the secret behind.
        let mut content = Zeroizing::new(Vec::with_capacity(1 + issuer.len() + secret.len()));
        content.push(u8::try_from(issuer.len()).ok()?);
        content.extend_from_slice(issuer);
        content.extend_from_slice(secret);
        let ring = self.read();
        let since = session.expires.saturating_sub(ring.lifetime().as_secs());
        ring.seal(&key.0, Dated { since, session: &content }, *nonce, now)
    }

    /// Opens a session that any agent has sealed with [`Self::seal_kept`].
    pub(super) fn open_kept(&self, key: &SessionKey, sealed: &[u8]) -> Option<Session> {
        let ring = self.read();
        let opened = ring.open(&key.0, sealed, self.clock.unix_s()).ok()?;
        let (len, rest) = opened.session.as_slice().split_first()?;
        let (issuer, secret) = rest.split_at_checked(usize::from(*len))?;
        let issuer = NodeName::new(str::from_utf8(issuer).ok()?).ok()?;
        let expires = opened.since.saturating_add(ring.lifetime().as_secs());
        Some(Session { secret: SecretBytes::new(secret.to_vec()), expires, issuer })
    }

    fn read(&self) -> RwLockReadGuard<'_, Ring> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Ring> {
        self.ring.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Epochs of ticket keys in the lifetime of a session.
const EPOCHS: u32 = 12;
/// The shortest epoch. Clocks of nodes may differ by this much.
const PERIOD_MIN: Duration = Duration::from_mins(10);
/// The age from which a new key is used, so that all agents have it by then.
const ACTIVATION_DELAY: Duration = Duration::from_secs(5);
/// The most that an agent delays a new key, as a fraction of the rotation interval.
const JITTER_MAX: f64 = 0.1;

impl Tickets for TicketRing {
    fn seal(&self, policy_id: &PolicyId, session: &[u8]) -> Option<Vec<u8>> {
        let (now, nonce) = (self.clock.unix_s(), random().ok()?);
        self.read().seal(policy_id.as_bytes(), Dated { since: now, session }, *nonce, now)
    }

    fn open(&self, policy_id: &PolicyId, ticket: &[u8]) -> Result<Found, Miss> {
        let ring = self.read();
        let opened = ring.open(policy_id.as_bytes(), ticket, self.clock.unix_s());
        let source = if ring.is_own(ticket) { SessionSource::Here } else { SessionSource::Elsewhere };
        opened.map(|Dated { session, .. }| Found { session, source }).map_err(|cause| match cause {
            NotOpened::NoKey => Miss::NoKey,
            NotOpened::Expired => Miss::Expired,
            NotOpened::Forged => Miss::Forged,
        })
    }

    fn missing_seed(&self, ticket: &[u8]) -> Option<TicketSeedId> {
        self.read().missing(ticket)
    }
}

impl fmt::Debug for TicketRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}

fn random<const LEN: usize>() -> io::Result<Zeroizing<[u8; LEN]>> {
    let mut bytes = Zeroizing::new([0; LEN]);
    aws_lc_rs::rand::fill(&mut *bytes).map_err(|_| io::Error::other("the system gives no random bytes"))?;
    Ok(bytes)
}

/// The reason that ticket keys were not rotated.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    /// Too many seeds were made within a lifetime.
    #[error(transparent)]
    TooOften(#[from] TooManySeeds),
    /// The system provides no randomness.
    #[error("the system gives no random bytes")]
    NoRandomness,
    /// The mode needs no ticket keys.
    #[error("mode `{0}` has no ticket keys: a ticket only names a session that agents store")]
    NoKeys(&'static str),
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// An agent that restarts receives old evictions again.
    #[test]
    fn an_eviction_takes_new_keys_unless_it_is_older_than_they_are() {
        let clock = Clock::start();
        let tickets = TicketRing::new(Duration::from_hours(12), clock).unwrap();
        let (now, long) = (clock.unix_s(), PERIOD_MIN.as_secs());
        assert!(!tickets.are_newer_than(now - 10 * long));
        tickets.rotate().unwrap();
        assert!(tickets.are_newer_than(now - 2 * long));
        assert!(!tickets.are_newer_than(now), "clocks may differ");
    }
}
