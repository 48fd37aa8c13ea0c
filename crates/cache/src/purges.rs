//! Purges: which stored responses must not be used any more.
//!
//! A purge does not look for entries. It gets the next number of a sequence, and each entry has the number that was
//! current when its response was requested. A purge with a later number that matches the entry makes it unusable. So
//! purges reach entries on disks, of variants, and of responses that are on their way.
//!
//! The numbers are those of one node. Nodes exchange purges by their ids, and each node gives a purge a number of its
//! own when it learns of it. A node that was away thereby drops more than needed, and never less.
//!
//! **Folding.** A node remembers a limited number of purges. It folds the oldest ones: it forgets them, and refuses
//! every entry that was requested before the last of them. Of each process that ordered such purges, it keeps the
//! greatest number. Another node that lacks one of these purges drops everything.
//!
//! ```text
//!            order, learn                        too many
//!  unknown ----------------> remembered, by id ------------> folded: all up to (incarnation, number)
//!     |                                                             ^
//!     '--- merge folded ones: all entries until now are refused ----'
//! ```
//!
//! **Generations.** If too many processes have ordered folded purges, the node starts over with the next generation: it
//! forgets all, and orders a purge of everything. A node that hears of a greater generation does the same. So the
//! cluster forgets the processes of the past, and the exchange ends.
//!
//! **Invariant.** If a node knows a purge, by its id or as a folded one, it refuses all matching entries that it
//! requested before the purge was ordered. Folding, forgetting and exchanging never undo that.

mod index;
mod persisted;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use index::Index;

/// The id of a purge, unique in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PurgeId {
    /// The random number of the process that ordered it.
    pub incarnation: u64,
    /// The number of the order at this process: 1 for the first, without gaps.
    pub number: u64,
}

/// The entries that a purge is for. Hosts are in lower case; targets are as clients send them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Purge {
    Everything,
    /// `host/path?query`, with all variants.
    Url(Box<str>),
    /// All whose `host/path?query` begins with this text.
    Prefix(Box<str>),
    /// All entries of the group, of all hosts.
    Group(Box<str>),
    /// `host group`: the entries of the group of one host, as for Cache Groups
    /// ([RFC 9875](https://www.rfc-editor.org/rfc/rfc9875), section 2).
    HostGroup(Box<str>),
}

/// The purges that a node knows.
#[derive(Debug)]
pub struct Purges {
    /// The random number of this process.
    incarnation: u64,
    /// The number of the last order of this process.
    ordered: u64,
    /// The number of the last purge that this node learned.
    sequence: u64,
    /// The remembered purges, by the number of this node.
    remembered: BTreeMap<u64, (PurgeId, Purge)>,
    /// Their numbers.
    numbers: BTreeMap<PurgeId, u64>,
    /// The bytes of their texts.
    text_len: usize,
    /// Of each process with folded purges, the greatest number. It stands for all orders of this process until then.
    folded: BTreeMap<u64, u64>,
    generation: u64,
    folded_count: u64,
    missed_count: u64,
    index: Index,
    limits: Limits,
}

/// What a node remembers at most.
#[derive(Debug, Clone, Copy)]
struct Limits {
    purges: usize,
    /// Bytes of their texts.
    text_len: usize,
    /// Processes with folded purges.
    incarnations: usize,
}

impl Purge {
    /// The longest text of a purge, in bytes. A longer URL is purged by its beginning.
    pub const TEXT_LEN_MAX: usize = 8 << 10;

    /// Cuts a text that is too long. The purge then matches more entries. No entry has such a long group.
    fn bounded(self) -> Self {
        if self.text().len() <= Self::TEXT_LEN_MAX {
            return self;
        }
        match self {
            Self::Everything => Self::Everything,
            Self::Url(text) | Self::Prefix(text) => Self::Prefix(cut(&text)),
            Self::Group(text) => Self::Group(cut(&text)),
            Self::HostGroup(text) => Self::HostGroup(cut(&text)),
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Everything => "",
            Self::Url(text) | Self::Prefix(text) | Self::Group(text) | Self::HostGroup(text) => text,
        }
    }
}

impl Purges {
    /// Without any purge. `incarnation` is the random number of this process.
    pub fn new(incarnation: u64) -> Self {
        Self {
            incarnation,
            ordered: 0,
            sequence: 0,
            remembered: BTreeMap::new(),
            numbers: BTreeMap::new(),
            text_len: 0,
            folded: BTreeMap::new(),
            generation: 0,
            folded_count: 0,
            missed_count: 0,
            index: Index::default(),
            limits: LIMITS,
        }
    }

    /// The current number. Entries that are requested now get it.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The number of purges that this process has folded. When it grows, the node refuses more entries than ordered.
    pub fn folded_count(&self) -> u64 {
        self.folded_count
    }

    /// How often this process refused all entries, because another node had folded purges that it lacked.
    pub fn missed_count(&self) -> u64 {
        self.missed_count
    }

    /// Whether a purge with a number greater than `since` matches the entry. `url` is `host/path?query`.
    pub fn affects(&self, since: u64, url: &str, host: &str, groups: &[Box<str>]) -> bool {
        self.sequence > since && self.index.affects(since, url, host, groups)
    }

    /// A purge that an operator or a response orders at this node. Returns it in the form for other nodes.
    pub fn order(&mut self, purge: Purge) -> (PurgeId, Purge) {
        let (id, purge) = (self.next_id(), purge.bounded());
        if purge == Purge::Everything {
            // All earlier purges are of no more use here.
            self.fold(0);
        }
        self.remember(id, purge.clone());
        (id, purge)
    }

    /// Merges what another node has sent: its generation, all or none of its folded purges, and any of the purges that
    /// it remembers. Returns those that are new, for this node to pass on.
    pub fn merge(
        &mut self,
        generation: u64,
        folded: impl IntoIterator<Item = PurgeId>,
        purges: impl IntoIterator<Item = (PurgeId, Purge)>,
    ) -> Vec<(PurgeId, Purge)> {
        if generation > self.generation {
            self.start_over(generation);
        }
        if generation == self.generation {
            // A sender of an earlier generation will start over. The order that it then makes stands for these.
            folded.into_iter().for_each(|last| self.learn_folded(last));
        }
        purges.into_iter().filter(|(id, purge)| self.learn(*id, purge.clone())).collect()
    }

    /// A purge that another node has sent. Returns whether it is new, so that this node passes it on.
    pub fn learn(&mut self, id: PurgeId, purge: Purge) -> bool {
        if self.knows(id) {
            return false;
        }
        self.remember(id, purge.bounded());
        true
    }

    /// Grows when the node has started over. A node sends it with all purges. When it grows, the node sends
    /// [`Purges::folded`] to all peers, because it has ordered a purge of everything.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Of each process with folded purges, the last of them. At most [`Purges::FOLDED_MAX`]. A node sends them to a
    /// peer whose link comes up, together with all that it remembers.
    pub fn folded(&self) -> impl Iterator<Item = PurgeId> {
        self.folded.iter().map(|(&incarnation, &number)| PurgeId { incarnation, number })
    }

    /// The remembered purges with greater numbers than `number`, in the order in which this node learned them. 0: all.
    pub fn since(&self, number: u64) -> impl Iterator<Item = (PurgeId, &Purge)> {
        let later = self.remembered.range(number.saturating_add(1)..);
        later.map(|(_, (id, purge))| (*id, purge))
    }

    /// Of each process that has ordered purges, the last one that this node knows. A node that asks another one for an
    /// entry sends them. If the other node knows all of them ([`Purges::knows_all`]), then it has no entry that only
    /// the asking node refuses.
    pub fn latest(&self) -> BTreeMap<u64, u64> {
        let mut latest = self.folded.clone();
        for id in self.numbers.keys() {
            let number = latest.entry(id.incarnation).or_default();
            *number = id.number.max(*number);
        }
        latest
    }

    /// Whether this node knows all orders of a process up to this one.
    pub fn knows_all(&self, last: PurgeId) -> bool {
        let folded = self.folded_of(last.incarnation);
        let missing = last.number.saturating_sub(folded);
        if missing == 0 || self.is_own(last) {
            return true;
        }
        let first = PurgeId { number: folded + 1, ..last };
        missing <= self.numbers.len() as u64 && self.numbers.range(first..=last).count() as u64 == missing
    }

    /// The most ids of [`Purges::folded`].
    pub const FOLDED_MAX: usize = LIMITS.incarnations;

    /// Another node has folded the purges of a process, up to this one. If this node lacks one of them, it refuses all
    /// entries that were requested until now.
    fn learn_folded(&mut self, last: PurgeId) {
        if !self.knows_all(last) {
            self.missed_count += 1;
            self.sequence += 1;
            self.index.purge_everything(self.sequence);
            self.note_folded(last);
        }
    }

    fn next_id(&mut self) -> PurgeId {
        self.ordered += 1;
        PurgeId { incarnation: self.incarnation, number: self.ordered }
    }

    fn remember(&mut self, id: PurgeId, purge: Purge) {
        self.sequence += 1;
        self.index.insert(&purge, self.sequence);
        self.text_len += purge.text().len();
        self.numbers.insert(id, self.sequence);
        self.remembered.insert(self.sequence, (id, purge));
        if self.remembered.len() > self.limits.purges || self.text_len > self.limits.text_len {
            self.fold(2);
        }
    }

    /// Folds the oldest purges, until the rest takes one part of the limits. `parts` of 0: all.
    fn fold(&mut self, parts: usize) {
        let part = |limit: usize| limit.checked_div(parts).unwrap_or(0);
        let (purges, text_len) = (part(self.limits.purges), part(self.limits.text_len));
        let mut last = 0;
        while self.remembered.len() > purges || self.text_len > text_len {
            let Some((number, (id, purge))) = self.remembered.pop_first() else { break };
            last = number;
            self.text_len -= purge.text().len();
            self.numbers.remove(&id);
            self.folded_count += 1;
            // Orders of this process with lower numbers that this node lacks were ordered before `number` was learned.
            self.note_folded(id);
        }
        self.index.purge_everything(last);
    }

    fn note_folded(&mut self, last: PurgeId) {
        let number = self.folded.entry(last.incarnation).or_default();
        *number = last.number.max(*number);
        if self.folded.len() > self.limits.incarnations {
            self.start_over(self.generation.saturating_add(1));
        }
    }

    /// Replaces all purges by an order of this node to purge everything. It is folded at once: other nodes get it with
    /// the next exchange, and then refuse everything.
    fn start_over(&mut self, generation: u64) {
        self.generation = generation;
        self.sequence += 1;
        self.folded_count += self.remembered.len() as u64;
        self.remembered.clear();
        self.numbers.clear();
        self.text_len = 0;
        self.index.purge_everything(self.sequence);
        let id = self.next_id();
        self.folded = BTreeMap::from([(id.incarnation, id.number)]);
    }

    fn knows(&self, id: PurgeId) -> bool {
        id.number <= self.folded_of(id.incarnation) || self.numbers.contains_key(&id) || self.is_own(id)
    }

    /// Orders of this process that it does not know do not exist.
    fn is_own(&self, id: PurgeId) -> bool {
        id.incarnation == self.incarnation
    }

    fn folded_of(&self, incarnation: u64) -> u64 {
        self.folded.get(&incarnation).copied().unwrap_or(0)
    }
}

/// The first bytes of a text, up to [`Purge::TEXT_LEN_MAX`].
fn cut(text: &str) -> Box<str> {
    text[..text.floor_char_boundary(Purge::TEXT_LEN_MAX)].into()
}

const LIMITS: Limits = Limits { purges: 10_000, text_len: 2 << 20, incarnations: 1_024 };
