//! Who belongs to the cluster, as far as this node has heard. No sockets and no clocks: time is an argument.
//!
//! What is known is a set of statements, and whatever comes in is added to it ([`Members::merge`]):
//!
//! * what each node says of itself, of which the one with the greater `since` counts. Others only pass it on;
//! * an operator's verdicts, of which the later counts, and eviction where two are of the same second. They are about
//!   names, and hide what is said of a node without deleting it.
//!
//! So it does not matter in which order, how often and by way of whom something is heard: all nodes end up with the
//! same. A node that hears something false of itself says the truth anew, with a greater `since`.
//!
//! Each call returns an [`Outcome`]: who is a peer now and who is none any more, and the news, which are for all
//! others.

mod known;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod verdicts;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::Bound;
use std::time::{Duration, Instant};

use watari_wire::{Member, Members as Told, NodeName, Verdict};

use crate::Peer;
use known::{Known, Said};
use verdicts::Verdicts;

/// What one node knows of all.
pub(crate) struct Members {
    own: NodeName,
    said: Said,
    /// Whether others than the configured peers may be members.
    learns: bool,
    forget_after: Duration,
    known: BTreeMap<NodeName, Known>,
    verdicts: Verdicts,
    /// Who was told last in turn.
    turn: Option<NodeName>,
}

/// This moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) instant: Instant,
    /// In seconds.
    pub(crate) unix_s: u64,
}

/// What follows from a call.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) changes: Vec<Change>,
    /// For everybody but whom it came from, ahead of all that is said later.
    pub(crate) news: Told,
}

/// Something about a peer is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is a peer, and listens there.
    Peer(Peer),
    /// It is none any more.
    Gone(NodeName),
    /// It may not be one any more. It need not have been one, and may be this node itself.
    Evicted(Verdict),
}

/// Why a node is a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// It is one of the configured peers.
    Configured,
    /// It has come by itself, or others know it.
    Learned,
}

impl Source {
    /// The source as a metric label, and as an administrator sees it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Learned => "learned",
        }
    }
}

/// An operator's order about a member is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// The node would have to end its own links.
    #[error("a node cannot evict itself: give the order to another")]
    Own,
    /// There is no room for another verdict.
    #[error("{} nodes are evicted already, and no more can be remembered", Told::MAX)]
    TooMany,
}

impl Members {
    /// `advertised` is where this node listens for links, and takes legs, for others to know; `None`: its configured
    /// peers are all its members. Who was learned is forgotten when nobody has had a link to it for `forget_after`.
    pub(crate) fn new(
        own: NodeName,
        advertised: Option<(SocketAddr, Option<SocketAddr>)>,
        forget_after: Duration,
        now: Now,
    ) -> Self {
        let said = advertised.map(|(mesh, legs)| Said { since: now.unix_s, mesh, legs });
        Self {
            own,
            said: said.unwrap_or(Said::NOTHING),
            learns: said.is_some(),
            forget_after,
            known: BTreeMap::new(),
            verdicts: Verdicts::default(),
            turn: None,
        }
    }

    /// These are the configured peers from now on. This node itself may be among them and is passed over.
    pub(crate) fn configure(&mut self, peers: Vec<Peer>, now: Now) -> Outcome {
        let mut configured: BTreeMap<_, _> = peers.into_iter().map(|peer| (peer.name, peer.address)).collect();
        configured.remove(&self.own);
        let names: BTreeSet<_> = self.known.keys().chain(configured.keys()).cloned().collect();
        let mut outcome = Outcome::default();
        for name in names {
            self.change(&name, &mut outcome, |members, _| {
                let known = members.known.entry(name.clone()).or_insert_with(|| Known::new(now.instant));
                known.configured = configured.get(&name).copied();
                if known.is_nothing() {
                    members.known.remove(&name);
                }
            });
        }
        outcome
    }

    /// Adds what another node tells. What cannot be, or finds no room, is passed over.
    pub(crate) fn merge(&mut self, told: Told, now: Now) -> Outcome {
        let mut outcome = Outcome::default();
        for verdict in told.verdicts {
            // Where there is no room, the node may come until an operator hears of it.
            let _ = self.rule(verdict, now, &mut outcome);
        }
        if self.learns {
            for member in &told.members {
                self.hear(member, now, &mut outcome);
            }
        }
        outcome
    }

    /// The node is no member any more, whatever its certificate says; `keys_by` is to make new keys for tickets then.
    pub(crate) fn evict(
        &mut self,
        name: &NodeName,
        keys_by: Option<NodeName>,
        now: Now,
    ) -> Result<Outcome, OrderError> {
        if *name == self.own {
            return Err(OrderError::Own);
        }
        let mut outcome = Outcome::default();
        self.rule(self.verdicts.eviction(name, keys_by, now.unix_s), now, &mut outcome)?;
        Ok(outcome)
    }

    /// The node may be a member again.
    pub(crate) fn admit(&mut self, name: &NodeName, now: Now) -> Result<Outcome, OrderError> {
        let mut outcome = Outcome::default();
        if let Some(verdict) = self.verdicts.admission(name, now.unix_s) {
            self.rule(verdict, now, &mut outcome)?;
        }
        Ok(outcome)
    }

    /// A link is up, or not any more.
    pub(crate) fn linked(&mut self, name: &NodeName, is_up: bool, now: Now) {
        if let Some(known) = self.known.get_mut(name) {
            (known.linked, known.heard) = (is_up, now.instant);
        }
    }

    /// Forgets who was learned, and has not been heard of for long.
    pub(crate) fn forget(&mut self, now: Now) -> Outcome {
        let is_old = |known: &Known| known.may_go() && known.unheard_for(now) >= self.forget_after;
        let old: Vec<_> = self.known.iter().filter(|(_, known)| is_old(known)).map(|(name, _)| name.clone()).collect();
        let mut outcome = Outcome::default();
        for name in old {
            self.remove(&name, &mut outcome);
        }
        outcome
    }

    /// All that is known, for a node that there is a link to.
    pub(crate) fn all(&self, now: Now) -> Told {
        let verdicts = self.verdicts.all();
        if !self.learns {
            return Told { verdicts, members: Vec::new() };
        }
        let others = self.peers().filter_map(|(name, known)| {
            let unheard = known.unheard_for(now);
            let said = known.said.filter(|_| unheard < self.forget_after)?;
            Some(said.told(name, unheard))
        });
        let own = self.said.told(&self.own, Duration::ZERO);
        Told { verdicts, members: [own].into_iter().chain(others).take(Told::MAX).collect() }
    }

    /// Who is to be told all that is known, this time: those with links, in turn.
    pub(crate) fn next_in_turn(&mut self) -> Option<NodeName> {
        let linked = |(name, known): (&NodeName, &Known)| known.linked.then(|| name.clone());
        let after = self.turn.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.known.range((after, Bound::Unbounded)).find_map(linked);
        self.turn = next.or_else(|| self.known.iter().find_map(linked));
        self.turn.clone()
    }

    pub(crate) fn is_evicted(&self, name: &NodeName) -> bool {
        self.verdicts.is_evicted(name)
    }

    pub(crate) fn evicted(&self) -> impl Iterator<Item = &NodeName> {
        self.verdicts.evicted()
    }

    /// Why `name` is known, if it is.
    pub(crate) fn source(&self, name: &NodeName) -> Option<Source> {
        self.known.get(name).map(Known::source)
    }

    /// How many peers are known for this reason.
    pub(crate) fn count(&self, source: Source) -> usize {
        self.peers().filter(|(_, known)| known.source() == source).count()
    }

    /// Where agents say that they take legs, this node included.
    pub(crate) fn legs(&self) -> BTreeMap<NodeName, SocketAddr> {
        let others = self.peers().filter_map(|(name, known)| Some((name, known.said?)));
        let all = others.chain([(&self.own, self.said)]);
        all.filter_map(|(name, said)| Some((name.clone(), said.legs?))).collect()
    }

    fn peers(&self) -> impl Iterator<Item = (&NodeName, &Known)> {
        self.known.iter().filter(|(name, _)| !self.is_evicted(name))
    }

    /// Adds a verdict, if it is later than what is known.
    fn rule(&mut self, verdict: Verdict, now: Now, outcome: &mut Outcome) -> Result<(), OrderError> {
        if !self.verdicts.is_news(&verdict, now.unix_s) {
            return Ok(());
        }
        let was_evicted = self.is_evicted(&verdict.name);
        let before = self.peer(&verdict.name);
        self.verdicts.add(verdict.clone())?;
        if verdict.evicted && !was_evicted {
            outcome.changes.push(Change::Evicted(verdict.clone()));
        }
        self.changed(&verdict.name, before, outcome);
        outcome.news.verdicts.push(verdict);
        Ok(())
    }

    /// Adds what a node says of itself, by whichever way it has come.
    fn hear(&mut self, member: &Member, now: Now, outcome: &mut Outcome) {
        let said = Said::of(member);
        if !said.is_possible(now) {
            return;
        }
        if member.name == self.own {
            return self.refute(said, outcome);
        }
        let unheard = Duration::from_secs(member.heard_s.into());
        let heard = now.instant.checked_sub(unheard).unwrap_or(now.instant);
        let is_known = self.known.contains_key(&member.name);
        if !is_known && (unheard >= self.forget_after || !self.make_room(heard, outcome)) {
            return;
        }
        self.change(&member.name, outcome, |members, news| {
            let known = members.known.entry(member.name.clone()).or_insert_with(|| Known::new(heard));
            known.heard = known.heard.max(heard);
            if known.said.is_none_or(|known| known < said) {
                known.said = Some(said);
                news.members.push(member.clone());
            }
        });
    }

    /// Somebody has heard of this node what it does not say, or not any more.
    fn refute(&mut self, said: Said, outcome: &mut Outcome) {
        if said > self.said {
            let is_true = (said.mesh, said.legs) == (self.said.mesh, self.said.legs);
            self.said.since = if is_true { said.since } else { said.since.saturating_add(1) };
            outcome.news.members.push(self.said.told(&self.own, Duration::ZERO));
        }
    }

    /// Room for one who was heard of then: another who may go, and was heard of earlier, goes.
    fn make_room(&mut self, heard: Instant, outcome: &mut Outcome) -> bool {
        if self.known.len() < OTHERS_MAX {
            return true;
        }
        let earlier = self.known.iter().filter(|(_, known)| known.may_go() && known.heard < heard);
        let eldest = earlier.min_by_key(|(_, known)| known.heard).map(|(name, _)| name.clone());
        let Some(eldest) = eldest else { return false };
        self.remove(&eldest, outcome);
        true
    }

    fn remove(&mut self, name: &NodeName, outcome: &mut Outcome) {
        self.change(name, outcome, |members, _| {
            members.known.remove(name);
        });
    }

    /// Has something about `name` change.
    fn change(&mut self, name: &NodeName, outcome: &mut Outcome, change: impl FnOnce(&mut Self, &mut Told)) {
        let before = self.peer(name);
        change(self, &mut outcome.news);
        self.changed(name, before, outcome);
    }

    /// Says what a change means for who is a peer.
    fn changed(&self, name: &NodeName, before: Option<Peer>, outcome: &mut Outcome) {
        match (before, self.peer(name)) {
            (before, Some(peer)) if before.as_ref() != Some(&peer) => outcome.changes.push(Change::Peer(peer)),
            (Some(_), None) if !self.is_evicted(name) => outcome.changes.push(Change::Gone(name.clone())),
            _ => {}
        }
    }

    /// The node as a peer, if it is one.
    fn peer(&self, name: &NodeName) -> Option<Peer> {
        let known = self.known.get(name).filter(|_| !self.is_evicted(name))?;
        Some(Peer { name: name.clone(), address: known.address()? })
    }
}

/// With this node itself, as many as one message holds. Configured peers are not bounded by it.
const OTHERS_MAX: usize = Told::MAX - 1;

/// The clock of whoever says something may be so far ahead of ours, in seconds. Without a bound, a single false
/// statement could not be overridden any more.
const AHEAD_MAX_S: u64 = 3600;
