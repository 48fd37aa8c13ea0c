//! The members of the cluster, as far as this node knows. No sockets and no clocks: time is an argument.
//!
//! The state is a set of statements and verdicts, and each input is merged into it ([`Members::merge`]):
//!
//! * Each node's statement about itself. The one with the greater `since` counts. Other nodes only pass it on.
//! * An operator's verdicts. The later one counts, and of the same second an eviction. A verdict is about a name. It
//!   hides the statement of that node without deleting it.
//!
//! So the result does not depend on the order, the number or the path of the inputs: all nodes end up with the same. A
//! node that receives a wrong statement about itself sends a new one with a greater `since`.
//!
//! Each call returns an [`Outcome`]: the peers that were added or removed, and the news to send to all others.

mod known;
mod now;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod verdicts;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::Bound;
use std::time::{Duration, Instant};

use watari_values::NodeName;
use watari_wire::{Member, Members as MembersMessage, Verdict};

use crate::Peer;
pub use known::Source;
use known::{Known, Statement};
pub(crate) use now::Now;
pub use verdicts::OrderError;
use verdicts::Verdicts;

/// One node's state of all members.
pub(crate) struct Members {
    own: NodeName,
    statement: Statement,
    /// Whether nodes other than the configured peers can be members.
    learns: bool,
    forget_after: Duration,
    known: BTreeMap<NodeName, Known>,
    verdicts: Verdicts,
    /// The peer to which all members were last sent in turn.
    turn: Option<NodeName>,
}

/// The result of a call.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) changes: Vec<Change>,
    /// News for all peers except the sender, to be sent before all later messages.
    pub(crate) news: MembersMessage,
}

/// A change of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// The node is a peer, with this address.
    Peer(Peer),
    /// The node is no peer any more.
    Gone(NodeName),
    /// The node was evicted. It may not have been a peer before, and may be this node itself.
    Evicted(Verdict),
}

impl Members {
    /// `advertised` is the listener of this node for links, and for legs, to be sent to others. `None`: only the
    /// configured peers are members. A learned node is removed after `forget_after` without a link from any node.
    pub(crate) fn new(
        own: NodeName,
        advertised: Option<(SocketAddr, Option<SocketAddr>)>,
        forget_after: Duration,
        now: Now,
    ) -> Self {
        let statement = advertised.map(|(mesh, legs)| Statement { since: now.unix_s, mesh, legs });
        Self {
            own,
            statement: statement.unwrap_or(Statement::NOTHING),
            learns: statement.is_some(),
            forget_after,
            known: BTreeMap::new(),
            verdicts: Verdicts::default(),
            turn: None,
        }
    }

    /// Replaces the configured peers. Ignores an entry for this node.
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

    /// Merges another node's message. Ignores entries that are impossible or find no room.
    pub(crate) fn merge(&mut self, message: MembersMessage, now: Now) -> Outcome {
        let mut outcome = Outcome::default();
        for verdict in message.verdicts {
            // If there is no room, this node accepts the evicted one until an operator evicts it here.
            let _ = self.rule(verdict, now, &mut outcome);
        }
        if self.learns {
            for member in &message.members {
                self.merge_statement(member, now, &mut outcome);
            }
        }
        outcome
    }

    /// Evicts a node, even if its certificate is valid. `keys_by` then makes new ticket keys.
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

    /// Lets a node be a member again.
    pub(crate) fn admit(&mut self, name: &NodeName, now: Now) -> Result<Outcome, OrderError> {
        let mut outcome = Outcome::default();
        if let Some(verdict) = self.verdicts.admission(name, now.unix_s) {
            self.rule(verdict, now, &mut outcome)?;
        }
        Ok(outcome)
    }

    /// Records that the link to a peer is up or down.
    pub(crate) fn linked(&mut self, name: &NodeName, is_up: bool, now: Now) {
        if let Some(known) = self.known.get_mut(name) {
            (known.linked, known.last_linked) = (is_up, now.instant);
        }
    }

    /// Removes learned nodes without a link from any node for `forget_after`.
    pub(crate) fn forget(&mut self, now: Now) -> Outcome {
        let is_old = |known: &Known| known.may_go() && known.unlinked_for(now) >= self.forget_after;
        let old: Vec<_> = self.known.iter().filter(|(_, known)| is_old(known)).map(|(name, _)| name.clone()).collect();
        let mut outcome = Outcome::default();
        for name in old {
            self.remove(&name, &mut outcome);
        }
        outcome
    }

    /// All statements and verdicts, for a peer with a link.
    pub(crate) fn all(&self, now: Now) -> MembersMessage {
        let verdicts = self.verdicts.all();
        if !self.learns {
            return MembersMessage { verdicts, members: Vec::new() };
        }
        let others = self.peers().filter_map(|(name, known)| {
            let unlinked = known.unlinked_for(now);
            let statement = known.statement.filter(|_| unlinked < self.forget_after)?;
            Some(statement.member(name, unlinked))
        });
        let own = self.statement.member(&self.own, Duration::ZERO);
        MembersMessage { verdicts, members: [own].into_iter().chain(others).take(MembersMessage::MAX).collect() }
    }

    /// The next peer to send all members to: those with links, in turn.
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

    /// The reason that `name` is known. `None`: it is not.
    pub(crate) fn source(&self, name: &NodeName) -> Option<Source> {
        self.known.get(name).map(Known::source)
    }

    /// The number of peers that are members for this reason.
    pub(crate) fn count(&self, source: Source) -> usize {
        self.peers().filter(|(_, known)| known.source() == source).count()
    }

    /// The leg listeners of agents, including this node.
    pub(crate) fn legs(&self) -> BTreeMap<NodeName, SocketAddr> {
        let others = self.peers().filter_map(|(name, known)| Some((name, known.statement?)));
        let all = others.chain([(&self.own, self.statement)]);
        all.filter_map(|(name, statement)| Some((name.clone(), statement.legs?))).collect()
    }

    fn peers(&self) -> impl Iterator<Item = (&NodeName, &Known)> {
        self.known.iter().filter(|(name, _)| !self.is_evicted(name))
    }

    /// Adds a verdict, if it is later than the stored one.
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

    /// Adds a node's statement about itself, received directly or from another node.
    fn merge_statement(&mut self, member: &Member, now: Now, outcome: &mut Outcome) {
        let statement = Statement::of(member);
        if !statement.is_possible(now) {
            return;
        }
        if member.name == self.own {
            return self.refute(statement, outcome);
        }
        let unlinked = Duration::from_secs(member.unlinked_s.into());
        let last_linked = now.instant.checked_sub(unlinked).unwrap_or(now.instant);
        let is_known = self.known.contains_key(&member.name);
        if !is_known && (unlinked >= self.forget_after || !self.make_room(last_linked, outcome)) {
            return;
        }
        self.change(&member.name, outcome, |members, news| {
            let known = members.known.entry(member.name.clone()).or_insert_with(|| Known::new(last_linked));
            known.last_linked = known.last_linked.max(last_linked);
            if known.statement.is_none_or(|known| known < statement) {
                known.statement = Some(statement);
                news.members.push(member.clone());
            }
        });
    }

    /// Handles a statement about this node that differs from its own: replaces it with a newer one.
    fn refute(&mut self, statement: Statement, outcome: &mut Outcome) {
        if statement > self.statement {
            let is_true = (statement.mesh, statement.legs) == (self.statement.mesh, self.statement.legs);
            self.statement.since = if is_true { statement.since } else { statement.since.saturating_add(1) };
            outcome.news.members.push(self.statement.member(&self.own, Duration::ZERO));
        }
    }

    /// Makes room for a node that was last linked at `last_linked`: removes one with an earlier time that may go.
    /// Returns `false` if there is none.
    fn make_room(&mut self, last_linked: Instant, outcome: &mut Outcome) -> bool {
        if self.known.len() < OTHERS_MAX {
            return true;
        }
        let earlier = self.known.iter().filter(|(_, known)| known.may_go() && known.last_linked < last_linked);
        let eldest = earlier.min_by_key(|(_, known)| known.last_linked).map(|(name, _)| name.clone());
        let Some(eldest) = eldest else { return false };
        self.remove(&eldest, outcome);
        true
    }

    fn remove(&mut self, name: &NodeName, outcome: &mut Outcome) {
        self.change(name, outcome, |members, _| {
            members.known.remove(name);
        });
    }

    /// Calls `change`, and records its effect on `name` as a peer.
    fn change(&mut self, name: &NodeName, outcome: &mut Outcome, change: impl FnOnce(&mut Self, &mut MembersMessage)) {
        let before = self.peer(name);
        change(self, &mut outcome.news);
        self.changed(name, before, outcome);
    }

    /// Records the change of a peer from `before` to now.
    fn changed(&self, name: &NodeName, before: Option<Peer>, outcome: &mut Outcome) {
        match (before, self.peer(name)) {
            (before, Some(peer)) if before.as_ref() != Some(&peer) => outcome.changes.push(Change::Peer(peer)),
            (Some(_), None) if !self.is_evicted(name) => outcome.changes.push(Change::Gone(name.clone())),
            _ => {}
        }
    }

    /// The node as a peer. `None`: it is none.
    fn peer(&self, name: &NodeName) -> Option<Peer> {
        let known = self.known.get(name).filter(|_| !self.is_evicted(name))?;
        Some(Peer { name: name.clone(), address: known.address()? })
    }
}

/// The most other nodes: with this node, as many as one message holds. Configured peers are not limited by it.
const OTHERS_MAX: usize = MembersMessage::MAX - 1;
