//! The keys of tickets.
//!
//! A **seed** is a secret that one node draws and gives to all others. From it follows a chain of states, one for each **epoch**
//! (a period of time, an hour say), by a function that cannot be inverted; from a state follows the key of its epoch:
//!
//! ```text
//!  seed --> state 7 --> state 8 --> state 9 --> ..
//!              |           |           |
//!            key 7       key 8       key 9
//! ```
//!
//! * A node keeps the state of now, the keys of epochs whose tickets are still good, and nothing older: yesterday's
//!   expired tickets cannot be opened with what it has in its memory today.
//! * Tickets are sealed with the newest seed, once everybody has had time to get it. So whoever stole the states of before a rotation
//!   opens none of the tickets after it; and two nodes that rotate at once agree as soon as each has heard of both.
//! * A ticket names its seed and its epoch. It moves nothing: states advance with the node's own clock alone, and the epochs
//!   before and after its own are known to a node, so that clocks may differ by a period.
//! * Each node seals with a key of its own, derived from the epoch's by the random name it has for that: no two nodes ever
//!   use one nonce with one key.

mod seed;
mod ticket;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use watari_wire::{SecretBytes, TICKET_SEEDS_MAX, TicketSeed, TicketSeedId};

use seed::Seed;
use ticket::Header;

/// All keys of tickets that a node knows.
pub struct Ring {
    settings: RingSettings,
    /// By what this node's tickets name their key.
    sealer: [u8; 12],
    epoch: u32,
    seeds: BTreeMap<TicketSeedId, Seed>,
}

/// How keys of tickets are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingSettings {
    /// How long a session can be resumed.
    pub lifetime: Duration,
    /// How long an epoch lasts, whole seconds, at least one: keys go on to the next, and those whose tickets have expired are destroyed. The
    /// same at all nodes.
    pub period: Duration,
    /// How long after a node got a seed it seals with it: the others shall have it then, too.
    pub ripening: Duration,
}

/// A session, and since when it may be resumed, in seconds of Unix time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dated<T> {
    /// When it was established.
    pub since: u64,
    /// What it is.
    pub session: T,
}

/// Why a ticket is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotOpened {
    /// Its key is not known here (any more).
    NoKey,
    /// It is too old.
    Expired,
    /// It was not sealed with the key it names, or for other terms.
    Forged,
}

/// There are more seeds with tickets that are still good than a ring holds: keys were rotated too often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "keys of tickets were rotated {TICKET_SEEDS_MAX} times within the lifetime of a ticket; the next time is when the first of them have expired"
)]
pub struct TooManySeeds;

/// So many random bytes make a seed, or a nonce.
pub const RANDOM_LEN: usize = 32;

/// The clock of a seed's maker may be so far ahead of ours, in seconds.
const AHEAD_MAX_S: u64 = 3600;

impl Ring {
    /// Without any seed, for a node that seals under this random name. `now` is in seconds of Unix time, here and everywhere, by a
    /// clock that does not jump.
    pub fn new(settings: RingSettings, sealer: [u8; 12], now: u64) -> Self {
        let mut ring = Self { settings, sealer, epoch: 0, seeds: BTreeMap::new() };
        ring.epoch = ring.epoch_of(now);
        ring
    }

    /// How many seeds there are.
    pub fn len(&self) -> usize {
        self.seeds.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.seeds.is_empty()
    }

    /// Whether it has a key to seal with.
    pub fn is_ready(&self) -> bool {
        self.newest().is_some()
    }

    /// How long a ticket of now is good.
    pub fn lifetime(&self) -> Duration {
        self.settings.lifetime
    }

    /// Makes a seed out of random bytes. It is newer than all others, and its secret is no worse than theirs: theirs are in it.
    pub fn rotate(&mut self, now: u64, random: &[u8; RANDOM_LEN]) -> Result<TicketSeedId, TooManySeeds> {
        self.advance(now);
        if self.seeds.len() >= TICKET_SEEDS_MAX {
            return Err(TooManySeeds);
        }
        let newest = self.newest().map(|(_, seed)| seed);
        let made = newest.map_or(now, |newest| now.max(newest.made() + 1));
        // An epoch earlier, for those whose clocks are behind.
        let (id, seed) = Seed::make(random, newest, self.epoch.saturating_sub(1), made, now);
        self.seeds.insert(id, seed);
        Ok(id)
    }

    /// Gives up the eldest seed, and what only it opens, if there would be no room for another.
    pub fn make_room(&mut self) {
        while self.seeds.len() >= TICKET_SEEDS_MAX {
            let eldest = self.seeds.iter().map(|(id, seed)| (seed.made(), *id)).min();
            let Some((_, eldest)) = eldest else { return };
            self.seeds.remove(&eldest);
        }
    }

    /// When the newest seed was made, by its maker's clock.
    pub fn newest_made(&self) -> Option<u64> {
        self.newest().map(|(_, seed)| seed.made())
    }

    /// Goes on to the epoch of `now`, and destroys what is not needed any more.
    pub fn advance(&mut self, now: u64) {
        self.epoch = self.epoch.max(self.epoch_of(now));
        let first_good = self.epoch.saturating_sub(self.epochs_good());
        self.retire(now);
        for seed in self.seeds.values_mut() {
            // A neighbour whose clock is behind seals with the key before.
            seed.advance(self.epoch.saturating_sub(1), first_good);
        }
        self.seeds.retain(|_, seed| seed.is_of_use());
    }

    /// Seals a session with the key of now, under `terms`. The nonce is random. `None`: there is no key.
    pub fn seal(&self, terms: &[u8], session: Dated<&[u8]>, nonce: [u8; 12], now: u64) -> Option<Vec<u8>> {
        let (id, seed) = self.sealing(now)?;
        let epoch = self.epoch.max(seed.first_epoch()?);
        let header = Header { seed: *id, epoch, sealer: self.sealer, nonce };
        Some(ticket::seal(&seed.key(epoch)?, &header, terms, session))
    }

    /// Opens what any node sealed under the same terms.
    pub fn open(&self, terms: &[u8], ticket: &[u8], now: u64) -> Result<Dated<SecretBytes>, NotOpened> {
        let (header, sealed) = Header::read(ticket).ok_or(NotOpened::Forged)?;
        let seed = self.seeds.get(&header.seed).ok_or(NotOpened::NoKey)?;
        if !self.may_be_good(&header) {
            return Err(NotOpened::NoKey);
        }
        let key = seed.key(header.epoch).ok_or(NotOpened::NoKey)?;
        let session = ticket::open(&key, &header, terms, sealed).ok_or(NotOpened::Forged)?;
        let expires = session.since.saturating_add(self.settings.lifetime.as_secs());
        if now < expires { Ok(session) } else { Err(NotOpened::Expired) }
    }

    /// Whether this node sealed `ticket`, if anybody did.
    pub fn is_own(&self, ticket: &[u8]) -> bool {
        Header::read(ticket).is_some_and(|(header, _)| header.sealer == self.sealer)
    }

    /// The seed of `ticket`, if that is one and its seed is not known here.
    pub fn missing(&self, ticket: &[u8]) -> Option<TicketSeedId> {
        let (header, _) = Header::read(ticket)?;
        (self.may_be_good(&header) && !self.knows(&header.seed)).then_some(header.seed)
    }

    /// Whether it has this seed.
    pub fn knows(&self, id: &TicketSeedId) -> bool {
        self.seeds.contains_key(id)
    }

    /// The seeds as another node is told of them.
    pub fn share(&self) -> Vec<TicketSeed> {
        self.seeds.iter().map(|(id, seed)| seed.share(*id)).collect()
    }

    /// One of them.
    pub fn share_one(&self, id: &TicketSeedId) -> Option<TicketSeed> {
        self.seeds.get(id).map(|seed| seed.share(*id))
    }

    /// Takes what another node knows; what it knows already, stays. Returns how many seeds were new. Seeds of the future are
    /// passed over, and those that there is no room for.
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
        let seed = if self.seeds.len() < TICKET_SEEDS_MAX { Seed::learned(shared, now) } else { None };
        seed.map(|seed| self.seeds.insert(id, seed)).is_some()
    }

    fn is_credible(&self, shared: &TicketSeed, now: u64) -> bool {
        let keys_max = self.epochs_good() as usize + 4;
        let last = shared.keys.iter().map(|key| key.epoch).max();
        shared.made <= now.saturating_add(AHEAD_MAX_S)
            && shared.keys.len() <= keys_max
            && shared.state.as_ref().is_none_or(|state| self.is_near(state.epoch))
            // Whoever is an epoch ahead keeps the key of the next for others who are ahead of it.
            && last.is_none_or(|last| last <= self.epoch + 2)
    }

    /// Whether a seed may be that far: from one whose tickets have all expired there would be nothing but many steps to go.
    fn is_near(&self, epoch: u32) -> bool {
        let first = self.epoch.saturating_sub(self.epochs_good() + 2);
        (first..=self.epoch + 1).contains(&epoch)
    }

    /// Seeds whose successor everybody has by now lose their states.
    fn retire(&mut self, now: u64) {
        let grace = self.settings.ripening.as_secs() + self.settings.period.as_secs();
        let settled = self.seeds.iter().filter(|(_, seed)| seed.since() + grace <= now);
        let Some(successor) = settled.map(|(id, seed)| (seed.made(), *id, seed.since())).max() else { return };
        // Until then others may have sealed with them, by clocks that are ahead.
        let last_epoch = self.epoch_of(successor.2 + grace) + 1;
        for (id, seed) in &mut self.seeds {
            if (seed.made(), *id) < (successor.0, successor.1) {
                seed.retire(last_epoch);
            }
        }
    }

    /// The newest seed that has had time to get around; else the newest.
    fn sealing(&self, now: u64) -> Option<(&TicketSeedId, &Seed)> {
        let ripening = self.settings.ripening.as_secs();
        let ripe = self.usable().filter(|(_, seed)| seed.since() + ripening <= now).max_by_key(order);
        ripe.or_else(|| self.newest())
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

    /// Whether a ticket of its epoch can be good now.
    fn may_be_good(&self, header: &Header) -> bool {
        header.epoch <= self.epoch + 1 && header.epoch + self.epochs_good() >= self.epoch
    }

    /// For so many epochs after its own a ticket is good: it was sealed anywhere in it, and by a clock that may be an epoch off.
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

/// Who is newer. Everybody agrees, also where two were made at once.
fn order((id, seed): &(&TicketSeedId, &Seed)) -> (u64, TicketSeedId) {
    (seed.made(), **id)
}

#[cfg(test)]
mod tests;
