//! Ticket keys.
//!
//! A **seed** is a secret that one node draws and sends to all others. A one-way function derives from it a chain of
//! states, one for each **epoch** (a period, for example an hour). Each state yields the key of its epoch:
//!
//! ```text
//!  seed --> state 7 --> state 8 --> state 9 --> ..
//!              |           |           |
//!            key 7       key 8       key 9
//! ```
//!
//! * A node stores the current state, and the keys of epochs whose tickets have not expired. It stores nothing older,
//!   so its memory cannot open tickets that have expired.
//! * Nodes seal tickets with the newest seed, once all members have had time to get it. An attacker who stole the
//!   states from before a rotation cannot open the tickets after it. Two nodes that rotate at the same time agree as
//!   soon as each has both seeds.
//! * A ticket names its seed and its epoch. It does not change states: only the node's own clock advances them. A node
//!   also has the keys of the epochs before and after its own, so clocks may differ by a period.
//! * Each node seals with a key of its own, derived from the epoch's key and a random name of the node. So no two nodes
//!   use one nonce with one key.

mod seed;
mod ticket;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use watari_values::{SecretBytes, TicketSeedId};

pub use seed::{EpochSecret, RANDOM_LEN, TicketSeed};
pub use ticket::Dated;

use seed::Seed;
use ticket::Header;

/// The ticket keys that a node has.
pub struct Ring {
    settings: RingSettings,
    /// The node's random name: its tickets contain it, to name their key.
    sealer: [u8; 12],
    epoch: u32,
    seeds: BTreeMap<TicketSeedId, Seed>,
}

/// How long ticket keys are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingSettings {
    /// How long a session can be resumed.
    pub lifetime: Duration,
    /// How long an epoch lasts: whole seconds, at least one, the same at all nodes. At the end of an epoch, states
    /// advance to the next one, and keys whose tickets have expired are destroyed.
    pub period: Duration,
    /// The time from when a node gets a seed until it seals with it. In this time, the other nodes get the seed too.
    pub activation_delay: Duration,
}

/// Why a ticket was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotOpened {
    /// This node does not have its key (any more).
    NoKey,
    /// The session is older than its lifetime.
    Expired,
    /// It was not sealed with the key it names, or under another policy id.
    Forged,
}

/// The ring is full: keys were rotated more often than their tickets expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "ticket keys were rotated {SEEDS_MAX} times within the lifetime of a ticket; rotate again when the oldest have expired"
)]
pub struct TooManySeeds;

/// The most seeds of a ring.
pub const SEEDS_MAX: usize = 48;

/// The maximum time, in seconds, that the clock of the node that made a seed may be ahead of ours.
const AHEAD_MAX_S: u64 = 3600;

impl Ring {
    /// Makes a ring without seeds. `sealer` is the node's random name. `now`, here and in all methods, is in seconds of
    /// Unix time, by a clock that does not jump.
    pub fn new(settings: RingSettings, sealer: [u8; 12], now: u64) -> Self {
        let mut ring = Self { settings, sealer, epoch: 0, seeds: BTreeMap::new() };
        ring.epoch = ring.epoch_of(now);
        ring
    }

    /// The number of seeds.
    pub fn len(&self) -> usize {
        self.seeds.len()
    }

    /// Whether the ring has no seeds.
    pub fn is_empty(&self) -> bool {
        self.seeds.is_empty()
    }

    /// Whether the ring has a key to seal with.
    pub fn is_ready(&self) -> bool {
        self.newest().is_some()
    }

    /// The lifetime of a ticket that is sealed now.
    pub fn lifetime(&self) -> Duration {
        self.settings.lifetime
    }

    /// Makes a seed from random bytes, and from the newest seed. So its secret is not weaker than that one's, even if
    /// `random` is. The new seed is newer than all others.
    pub fn rotate(&mut self, now: u64, random: &[u8; RANDOM_LEN]) -> Result<TicketSeedId, TooManySeeds> {
        self.advance(now);
        if self.seeds.len() >= SEEDS_MAX {
            return Err(TooManySeeds);
        }
        let newest = self.newest().map(|(_, seed)| seed);
        let made = newest.map_or(now, |newest| now.max(newest.made() + 1));
        // An epoch earlier, for nodes whose clocks are behind.
        let (id, seed) = Seed::make(random, newest, self.epoch.saturating_sub(1), made, now);
        self.seeds.insert(id, seed);
        Ok(id)
    }

    /// Removes the oldest seeds, with the tickets that only they open, until there is room for another.
    pub fn make_room(&mut self) {
        while self.seeds.len() >= SEEDS_MAX {
            let eldest = self.seeds.iter().map(|(id, seed)| (seed.made(), *id)).min();
            let Some((_, eldest)) = eldest else { return };
            self.seeds.remove(&eldest);
        }
    }

    /// The time when the newest seed was made, by the clock of the node that made it.
    pub fn newest_made(&self) -> Option<u64> {
        self.newest().map(|(_, seed)| seed.made())
    }

    /// Advances to the epoch of `now`, and destroys keys whose tickets have expired.
    pub fn advance(&mut self, now: u64) {
        self.epoch = self.epoch.max(self.epoch_of(now));
        let first_good = self.epoch.saturating_sub(self.epochs_good());
        self.retire(now);
        for seed in self.seeds.values_mut() {
            // A node whose clock is behind seals with the key of the epoch before.
            seed.advance(self.epoch.saturating_sub(1), first_good);
        }
        self.seeds.retain(|_, seed| seed.is_of_use());
    }

    /// Seals a session with the current key, under `policy_id`. The nonce must be random. `None`: there is no key.
    pub fn seal(&self, policy_id: &[u8], session: Dated<&[u8]>, nonce: [u8; 12], now: u64) -> Option<Vec<u8>> {
        let (id, seed) = self.sealing(now)?;
        let epoch = self.epoch.max(seed.first_epoch()?);
        let header = Header { seed: *id, epoch, sealer: self.sealer, nonce };
        Some(ticket::seal(&seed.key(epoch)?, &header, policy_id, session))
    }

    /// Opens a ticket that any node sealed under the same policy id.
    pub fn open(&self, policy_id: &[u8], ticket: &[u8], now: u64) -> Result<Dated<SecretBytes>, NotOpened> {
        let (header, sealed) = Header::read(ticket).ok_or(NotOpened::Forged)?;
        let seed = self.seeds.get(&header.seed).ok_or(NotOpened::NoKey)?;
        if !self.may_be_good(&header) {
            return Err(NotOpened::NoKey);
        }
        let key = seed.key(header.epoch).ok_or(NotOpened::NoKey)?;
        let session = ticket::open(&key, &header, policy_id, sealed).ok_or(NotOpened::Forged)?;
        let expires = session.since.saturating_add(self.settings.lifetime.as_secs());
        if now < expires { Ok(session) } else { Err(NotOpened::Expired) }
    }

    /// Whether the ticket names this node as its sealer. The ticket is not authenticated.
    pub fn is_own(&self, ticket: &[u8]) -> bool {
        Header::read(ticket).is_some_and(|(header, _)| header.sealer == self.sealer)
    }

    /// The id of the ticket's seed, if this ring does not have it. `None` for other tickets, and for bytes that are not
    /// a ticket.
    pub fn missing(&self, ticket: &[u8]) -> Option<TicketSeedId> {
        let (header, _) = Header::read(ticket)?;
        (self.may_be_good(&header) && !self.knows(&header.seed)).then_some(header.seed)
    }

    /// Whether the ring has this seed.
    pub fn knows(&self, id: &TicketSeedId) -> bool {
        self.seeds.contains_key(id)
    }

    /// All seeds, in the form that is sent to other nodes.
    pub fn share(&self) -> Vec<TicketSeed> {
        self.seeds.iter().map(|(id, seed)| seed.share(*id)).collect()
    }

    /// One seed, in the form that is sent to other nodes.
    pub fn share_one(&self, id: &TicketSeedId) -> Option<TicketSeed> {
        self.seeds.get(id).map(|seed| seed.share(*id))
    }

    /// Adds the seeds of another node. Seeds that the ring has keep their state, and get missing keys of earlier
    /// epochs. Returns the number of new seeds. Ignores seeds from the future, and those beyond the limit.
    pub fn merge(&mut self, shared: Vec<TicketSeed>, now: u64) -> usize {
        self.advance(now);
        let mut new = 0;
        for shared in shared {
            if self.is_credible(&shared, now) && self.merge_one(shared, now) {
                new += 1;
            }
        }
        self.advance(now);
        new
    }

    fn merge_one(&mut self, shared: TicketSeed, now: u64) -> bool {
        let id = shared.id;
        if let Some(known) = self.seeds.get_mut(&id) {
            known.learn(shared.keys);
            return false;
        }
        let seed = if self.seeds.len() < SEEDS_MAX { Seed::learned(shared, now) } else { None };
        seed.map(|seed| self.seeds.insert(id, seed)).is_some()
    }

    fn is_credible(&self, shared: &TicketSeed, now: u64) -> bool {
        let keys_max = self.epochs_good() as usize + 4;
        let last = shared.keys.iter().map(|key| key.epoch).max();
        shared.made <= now.saturating_add(AHEAD_MAX_S)
            && shared.keys.len() <= keys_max
            && shared.state.as_ref().is_none_or(|state| self.is_near(state.epoch))
            // A node that is an epoch ahead also sends the key of the next epoch, for nodes that are ahead of it.
            && last.is_none_or(|last| last <= self.epoch + 2)
    }

    /// Whether a seed's state is near the current epoch. A much older one has no tickets left, and would cost many
    /// steps to advance.
    fn is_near(&self, epoch: u32) -> bool {
        let first = self.epoch.saturating_sub(self.epochs_good() + 2);
        (first..=self.epoch + 1).contains(&epoch)
    }

    /// Destroys the states of seeds whose successor all nodes have by now.
    fn retire(&mut self, now: u64) {
        let grace = self.settings.activation_delay.as_secs() + self.settings.period.as_secs();
        let settled = self.seeds.iter().filter(|(_, seed)| seed.since() + grace <= now);
        let Some(successor) = settled.map(|(id, seed)| (seed.made(), *id, seed.since())).max() else { return };
        // Until then, nodes whose clocks are ahead may have sealed with them.
        let last_epoch = self.epoch_of(successor.2 + grace) + 1;
        for (id, seed) in &mut self.seeds {
            if (seed.made(), *id) < (successor.0, successor.1) {
                seed.retire(last_epoch);
            }
        }
    }

    /// The newest seed that is older than [`RingSettings::activation_delay`]; otherwise the newest.
    fn sealing(&self, now: u64) -> Option<(&TicketSeedId, &Seed)> {
        let activation_delay = self.settings.activation_delay.as_secs();
        let active = self.usable().filter(|(_, seed)| seed.since() + activation_delay <= now).max_by_key(order);
        active.or_else(|| self.newest())
    }

    fn newest(&self) -> Option<(&TicketSeedId, &Seed)> {
        self.usable().max_by_key(order)
    }

    fn usable(&self) -> impl Iterator<Item = (&TicketSeedId, &Seed)> {
        self.seeds.iter().filter(|(_, seed)| seed.first_epoch().is_some())
    }

    fn epoch_of(&self, now: u64) -> u32 {
        u32::try_from(now / self.settings.period.as_secs().max(1)).unwrap_or(u32::MAX - 1)
    }

    /// Whether a ticket of the header's epoch can be valid now.
    fn may_be_good(&self, header: &Header) -> bool {
        header.epoch <= self.epoch + 1 && header.epoch + self.epochs_good() >= self.epoch
    }

    /// The number of epochs after its own in which a ticket may be valid. It may have been sealed at the end of its
    /// epoch, and by a clock that is an epoch off.
    fn epochs_good(&self) -> u32 {
        let epochs = self.settings.lifetime.as_secs().div_ceil(self.settings.period.as_secs().max(1));
        u32::try_from(epochs).unwrap_or(u32::MAX / 2).saturating_add(1)
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seeds = self.seeds.len();
        f.debug_struct("Ring").field("epoch", &self.epoch).field("seeds", &seeds).finish_non_exhaustive()
    }
}

/// The order of seeds by age. All nodes compute the same, even for two seeds that were made at the same time.
fn order((id, seed): &(&TicketSeedId, &Seed)) -> (u64, TicketSeedId) {
    (seed.made(), **id)
}

#[cfg(test)]
mod tests;
