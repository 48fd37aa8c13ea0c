//! The dispatchers of the addresses, and the table that follows from their states.
//!
//! Times are those of one clock since its start (`CLOCK_BOOTTIME`).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use watari_values::NodeName;
use watari_wire::{SteeringAdvert, SteeringState};

use crate::program::{Mac, key};
use crate::table::{Entry, Primaries, Slot, Table, mix};

/// A dispatcher that has not been heard for so long accepts no connections: its process stands still or is gone.
pub const SILENT_AFTER: Duration = Duration::from_millis(600);
/// How long a silent dispatcher may still have connections: its process may go on, or only the link to it has failed.
pub const SILENT_MAX: Duration = Duration::from_hours(1);
/// How long a new process is in doubt about connections: one that was silent when it started may have them.
pub const YOUNG_FOR: Duration = Duration::from_mins(1);
/// How long all dispatchers must have had one view before one of them may have no strays: packets that were sent by an
/// earlier view have arrived by then.
pub const AGREED_FOR: Duration = Duration::from_millis(500);

/// What one dispatcher knows of all.
///
/// A **stray** is a connection at a dispatcher that is not the primary of its slot. A dispatcher may have strays unless
/// it says that it has none, under the same view. The **view** is the set of dispatchers that accept connections: it
/// determines all primaries.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Members {
    me: Member,
    /// A number for the set of addresses.
    addresses: u64,
    can_serve: bool,
    started: Duration,
    state: SteeringState,
    /// Connections here whose primary is another.
    strays: usize,
    /// Since when all others have this dispatcher's view.
    agreed_since: Option<Duration>,
    /// When [`expire`](Self::expire) was called last.
    looked: Duration,
    others: BTreeMap<NodeName, Other>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Member {
    name: NodeName,
    hash: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Other {
    member: Member,
    advert: SteeringAdvert,
    heard: Duration,
    is_silent: bool,
}

impl Members {
    /// This dispatcher alone, which accepts no connections yet.
    pub fn new(me: NodeName, addresses: &BTreeSet<IpAddr>, now: Duration) -> Self {
        let addresses: Vec<_> = addresses.iter().flat_map(|address| key(*address)).collect();
        Self {
            me: Member::new(me),
            addresses: hash(&addresses),
            can_serve: false,
            started: now,
            state: SteeringState::Joining,
            strays: 0,
            agreed_since: None,
            looked: Duration::ZERO,
            others: BTreeMap::new(),
        }
    }

    pub fn state(&self) -> SteeringState {
        self.state
    }

    pub fn set_state(&mut self, state: SteeringState, now: Duration) {
        self.state = state;
        self.look_whether_agreed(now);
    }

    /// Sets the number of connections here that are strays.
    pub fn set_strays(&mut self, strays: usize) {
        self.strays = strays;
    }

    /// What this dispatcher tells the others. `mac`: of its interface.
    pub fn advert(&self, mac: Mac, now: Duration) -> SteeringAdvert {
        let has_strays = self.strays > 0 || !self.is_settled(now);
        let Self { state, addresses, can_serve, .. } = *self;
        SteeringAdvert { mac, state, addresses, can_serve, view: self.view(), has_strays }
    }

    /// Sets whether this dispatcher could serve a client.
    pub fn set_ability(&mut self, can_serve: bool) {
        self.can_serve = can_serve;
    }

    /// Whether another dispatcher accepts connections, and can serve them.
    pub fn has_able_other(&self) -> bool {
        self.others.values().any(|other| other.accepts() && other.advert.can_serve)
    }

    /// Whether an advert is of a dispatcher of the same addresses, and packets can be passed on to it.
    pub fn is_of_group(&self, advert: &SteeringAdvert) -> bool {
        /// Of addresses of several machines.
        const MULTICAST: u8 = 1;
        advert.addresses == self.addresses && advert.mac != Mac::default() && advert.mac[0] & MULTICAST == 0
    }

    /// Notes what another dispatcher of the same addresses tells.
    pub fn hear(&mut self, from: &NodeName, advert: SteeringAdvert, now: Duration) {
        let other = self.others.entry(from.clone());
        let other = other.or_insert_with(|| Other {
            member: Member::new(from.clone()),
            advert: advert.clone(),
            heard: now,
            is_silent: false,
        });
        (other.advert, other.heard, other.is_silent) = (advert, now, false);
        self.look_whether_agreed(now);
    }

    /// The link to another dispatcher is lost. One that had nothing, or that has left in order, is forgotten.
    pub fn lose(&mut self, name: &NodeName, now: Duration) {
        if let Some(other) = self.others.get_mut(name) {
            other.is_silent = true;
            other.heard = now;
            if other.has_none() {
                self.others.remove(name);
            }
        }
        self.look_whether_agreed(now);
    }

    /// Notes who has been silent for too long. To be called several times in [`SILENT_AFTER`]: a process that has stood
    /// still knows nothing for sure.
    pub fn expire(&mut self, now: Duration) {
        if now.saturating_sub(self.looked) > SILENT_AFTER / 2 {
            self.agreed_since = None;
        }
        self.looked = now;
        self.others.retain(|_, other| {
            let silent_for = now.saturating_sub(other.heard);
            other.is_silent |= silent_for > SILENT_AFTER;
            silent_for <= SILENT_MAX && !(other.is_silent && other.has_none())
        });
        self.look_whether_agreed(now);
    }

    /// Whether all dispatchers that are heard determine the same primaries.
    pub fn is_agreed(&self) -> bool {
        self.agreed_since.is_some()
    }

    /// Whether that has been so for [`AGREED_FOR`].
    pub fn is_settled(&self, now: Duration) -> bool {
        self.agreed_since.is_some_and(|since| now.saturating_sub(since) >= AGREED_FOR)
    }

    /// Whether a connection that none of the dispatchers seems to have is at none of them. One that was silent when this
    /// dispatcher started may have it.
    pub fn is_sure(&self, now: Duration) -> bool {
        self.is_settled(now) && now.saturating_sub(self.started) > YOUNG_FOR
    }

    fn look_whether_agreed(&mut self, now: Duration) {
        let view = self.view();
        let is_agreed = self.others.values().all(|other| other.is_silent || other.advert.view == view);
        self.agreed_since = is_agreed.then(|| self.agreed_since.unwrap_or(now));
    }

    /// The dispatchers that accept connections.
    pub fn serving(&self) -> BTreeSet<&NodeName> {
        self.candidates().map(|member| &member.name).collect()
    }

    /// All others, with their states. `None`: silent.
    pub fn others(&self) -> impl Iterator<Item = (&NodeName, Option<SteeringState>)> {
        self.others.iter().map(|(name, other)| (name, (!other.is_silent).then_some(other.advert.state)))
    }

    /// The link-layer address of another dispatcher.
    pub fn mac(&self, name: &NodeName) -> Option<Mac> {
        self.others.get(name).map(|other| other.advert.mac)
    }

    /// The primary of a slot, if any dispatcher accepts connections.
    pub fn primary(&self, slot: Slot) -> Option<&NodeName> {
        self.candidates().max_by_key(|member| member.rank(slot)).map(|member| &member.name)
    }

    /// The primaries of all slots.
    pub fn primaries(&self) -> Primaries {
        Primaries(Slot::all().map(|slot| self.primary(slot).cloned()).collect())
    }

    /// What this dispatcher's kernel does with the packets of each slot.
    pub fn table(&self) -> Table {
        let view = self.view();
        let strays: Vec<_> = self.others.values().filter(|other| other.may_have_strays(view)).collect();
        Table(Slot::all().map(|slot| self.entry(slot, &strays)).collect())
    }

    fn entry(&self, slot: Slot, strays: &[&Other]) -> Entry {
        let others = self.others.values().filter(|other| other.accepts());
        let best = others.max_by_key(|other| other.member.rank(slot));
        let i_accept = self.state == SteeringState::Serving;
        let is_mine = i_accept && best.is_none_or(|best| self.me.rank(slot) > best.member.rank(slot));
        let best_mac = best.map(|best| best.advert.mac);
        let strays =
            strays.iter().filter(|other| best.is_none_or(|best| is_mine || best.member.name != other.member.name));
        let my_rank = (true, self.me.rank(slot));
        let (mut next, mut after_next) = (None, None);
        for other in strays {
            // A silent one comes last: its kernel may answer with RST.
            let rank = (!other.is_silent, other.member.rank(slot));
            let ranked = (is_mine || rank < my_rank).then_some((rank, other.advert.mac));
            if ranked > next {
                (next, after_next) = (ranked, next);
            } else {
                after_next = after_next.max(ranked);
            }
        }
        let [next, after_next] = [next, after_next].map(|ranked| ranked.map(|(_, mac)| mac));
        Entry { first: best_mac.filter(|_| !is_mine), next, after_next, fallback: best_mac.filter(|_| is_mine) }
    }

    /// A number for the set of dispatchers that accept connections, which determines all primaries.
    pub fn view(&self) -> u64 {
        let mut names = Vec::new();
        for member in self.serving() {
            names.extend_from_slice(member.as_str().as_bytes());
            names.push(0);
        }
        hash(&names)
    }

    fn candidates(&self) -> impl Iterator<Item = &Member> {
        let me = (self.state == SteeringState::Serving).then_some(&self.me);
        me.into_iter().chain(self.others.values().filter(|other| other.accepts()).map(|other| &other.member))
    }
}

impl Member {
    fn new(name: NodeName) -> Self {
        let hash = hash(name.as_str().as_bytes());
        Self { name, hash }
    }

    /// The member with the highest rank comes first (rendezvous hashing). A member that joins or leaves does not change
    /// the order of any two others.
    fn rank(&self, slot: Slot) -> (u64, Reverse<&NodeName>) {
        (mix(self.hash ^ mix(u64::from(slot.number()) + 1)), Reverse(&self.name))
    }
}

impl Other {
    fn accepts(&self) -> bool {
        !self.is_silent && self.advert.state == SteeringState::Serving
    }

    fn may_have_strays(&self, view: u64) -> bool {
        !self.has_none() && (self.is_silent || self.advert.has_strays || self.advert.view != view)
    }

    /// It has no connections, yet or any more.
    fn has_none(&self) -> bool {
        matches!(self.advert.state, SteeringState::Joining | SteeringState::Left)
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let digest = digest(&SHA256, bytes);
    let head = digest.as_ref().first_chunk().expect("a SHA-256 hash is longer");
    u64::from_be_bytes(*head)
}

#[cfg(test)]
mod tests;
