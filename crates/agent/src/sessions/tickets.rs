//! The keys of tickets, with a clock and randomness.

use std::fmt;
use std::io;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use watari_handshake::{Found, Miss, Origin, Terms, Tickets};
use watari_session::{Dated, NotOpened, RANDOM_LEN, Ring, RingSettings};
use watari_wire::{TicketSeed, TicketSeedId};
use zeroize::Zeroizing;

use super::clock::Clock;
use super::{RotationError, Sharing};

/// Seals tickets, and opens those of all agents that it has keys of.
pub(super) struct TicketRing {
    ring: RwLock<Ring>,
    clock: Clock,
    /// So much later than the others this agent makes a key that is due, so that mostly one does: a share of the time between.
    patience: f64,
}

impl TicketRing {
    pub(super) fn new(sharing: &Sharing, clock: Clock) -> io::Result<Self> {
        let period = (sharing.lifetime / EPOCHS).max(PERIOD_MIN);
        let settings = RingSettings { lifetime: sharing.lifetime, period, ripening: RIPENING };
        let (sealer, patience) = (random()?, random::<2>()?);
        Ok(Self {
            ring: RwLock::new(Ring::new(settings, *sealer, clock.unix_s())),
            clock,
            patience: f64::from(u16::from_be_bytes(*patience)) / f64::from(u16::MAX) * PATIENCE_MAX,
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

    /// Whether there is no key, or it is time for new ones.
    pub(super) fn is_due(&self, rotation: Duration) -> bool {
        let made = self.read().newest_made();
        let after = rotation.mul_f64(1.0 + self.patience).as_secs();
        made.is_none_or(|made| made.saturating_add(after) <= self.clock.unix_s())
    }

    /// How many seeds there are, and how long ago the newest was made.
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

    fn read(&self) -> RwLockReadGuard<'_, Ring> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Ring> {
        self.ring.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// So many epochs of keys are in the lifetime of a session.
const EPOCHS: u32 = 12;
/// Clocks of nodes may differ by an epoch.
const PERIOD_MIN: Duration = Duration::from_mins(10);
/// How long a new key waits for all to have it.
const RIPENING: Duration = Duration::from_secs(5);
/// The most that an agent waits for others to make a key that is due, as a share of the time between two.
const PATIENCE_MAX: f64 = 0.1;

impl Tickets for TicketRing {
    fn lifetime(&self) -> Duration {
        self.read().lifetime()
    }

    fn seal(&self, terms: &Terms, session: &[u8], since: Option<u64>) -> Option<Vec<u8>> {
        let (now, nonce) = (self.clock.unix_s(), random().ok()?);
        let session = Dated { since: since.unwrap_or(now), session };
        self.read().seal(terms.as_bytes(), session, *nonce, now)
    }

    fn open(&self, terms: &Terms, ticket: &[u8]) -> Result<Found, Miss> {
        let ring = self.read();
        let opened = ring.open(terms.as_bytes(), ticket, self.clock.unix_s());
        let origin = if ring.is_own(ticket) { Origin::Here } else { Origin::Elsewhere };
        opened.map(|Dated { since, session }| Found { session, since, origin }).map_err(|cause| match cause {
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
    aws_lc_rs::rand::fill(&mut *bytes).map_err(|_| io::Error::other("there is no randomness to be had"))?;
    Ok(bytes)
}
