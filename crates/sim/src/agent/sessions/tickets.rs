//! The ticket keys of an agent. Mirrors `sessions/tickets.rs` of `crates/agent`, with virtual time and the randomness of
//! the seed.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use watari_handshake::{Found, Miss, PolicyId, SessionSource, Tickets};
use watari_session::{Dated, NotOpened, RANDOM_LEN, Ring, RingSettings, TicketSeed};
use watari_values::TicketSeedId;

use crate::random::Random;

/// Epochs are short, so that keys change within a run.
const SETTINGS: RingSettings = RingSettings {
    lifetime: super::LIFETIME,
    period: Duration::from_secs(5),
    activation_delay: Duration::from_secs(1),
};

pub(super) struct TicketRing {
    ring: Mutex<Ring>,
    random: Mutex<Random>,
    /// Unix time in seconds, as the agent's clock has it.
    now: AtomicU64,
}

impl TicketRing {
    pub(super) fn new(mut random: Random, now: u64) -> Self {
        let sealer = bytes(&mut random);
        let ring = Mutex::new(Ring::new(SETTINGS, sealer, now));
        Self { ring, random: Mutex::new(random), now: AtomicU64::new(now) }
    }

    pub(super) fn set_time(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
    }

    /// Makes a seed, if there is room.
    pub(super) fn rotate(&self) -> Option<TicketSeedId> {
        let random = bytes::<RANDOM_LEN>(&mut lock(&self.random));
        self.ring().rotate(self.now(), &random).ok()
    }

    pub(super) fn advance(&self) {
        self.ring().advance(self.now());
    }

    /// Whether there is no key, or the newest is older than `rotation`.
    pub(super) fn is_due(&self, rotation: Duration) -> bool {
        let made = self.ring().newest_made();
        made.is_none_or(|made| made + rotation.as_secs() <= self.now())
    }

    pub(super) fn share(&self) -> Vec<TicketSeed> {
        self.ring().share()
    }

    pub(super) fn share_one(&self, seed: TicketSeedId) -> Vec<TicketSeed> {
        self.ring().share_one(&seed).into_iter().collect()
    }

    /// Returns how many seeds were new.
    pub(super) fn merge(&self, seeds: Vec<TicketSeed>) -> usize {
        self.ring().merge(seeds, self.now())
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ring().is_ready()
    }

    pub(super) fn knows(&self, seed: TicketSeedId) -> bool {
        self.ring().knows(&seed)
    }

    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        lock(&self.ring)
    }
}

impl Tickets for TicketRing {
    fn seal(&self, policy_id: &PolicyId, session: &[u8]) -> Option<Vec<u8>> {
        let (now, nonce) = (self.now(), bytes(&mut lock(&self.random)));
        self.ring().seal(policy_id.as_bytes(), Dated { since: now, session }, nonce, now)
    }

    fn open(&self, policy_id: &PolicyId, ticket: &[u8]) -> Result<Found, Miss> {
        let ring = self.ring();
        let opened = ring.open(policy_id.as_bytes(), ticket, self.now());
        let source = if ring.is_own(ticket) { SessionSource::Here } else { SessionSource::Elsewhere };
        opened.map(|Dated { session, .. }| Found { session, source }).map_err(|cause| match cause {
            NotOpened::NoKey => Miss::NoKey,
            NotOpened::Expired => Miss::Expired,
            NotOpened::Forged => Miss::Forged,
        })
    }

    fn missing_seed(&self, ticket: &[u8]) -> Option<TicketSeedId> {
        self.ring().missing(ticket)
    }
}

impl fmt::Debug for TicketRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ring().fmt(f)
    }
}

fn bytes<const LEN: usize>(random: &mut Random) -> [u8; LEN] {
    std::array::from_fn(|_| random.next() as u8)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
