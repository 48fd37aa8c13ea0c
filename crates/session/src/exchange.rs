//! How nodes share the sessions that they keep.
//!
//! Each session has **owners**: the first two nodes by rendezvous hashing of its key over all nodes that are linked.
//! Whoever establishes a session keeps it and sends it to its owners (or to everybody), and the client is told of it
//! once one of them has it besides: from then on any one node may be lost. Whoever is offered a session that it does not keep asks the owners, one after the other,
//! and a third node because members come and go.
//!
//! ```text
//!   put:  keep here --> send to owners --> one has it: Stored --> all acknowledged, or tries exhausted: forgotten
//!                            ^      |
//!                            +------+ no answer, 5 tries; an owner leaves: the next in rank is one
//!
//!   get:  is it here? --> ask the first rank --> all found, all denied, or 3 s have passed: Found
//!                             ^      |
//!                             +------+ denied: ask the next; no answer in 100 ms: ask again, and the next, too
//! ```
//!
//! A handshake waits for one acknowledgement: only the copy for the owner that ranks first, and that owner's answer, go at once.
//! Other copies and their answers are sent together with other messages. Where nodes differ about the ranks, the answer takes some
//! milliseconds.
//!
//! A session can be approved for **one use** by who established it, as long as that node lives and keeps it: early data,
//! and sessions that are good for one resumption, must not be used twice anywhere. There is no second try: who does not
//! answer in time may have approved.
//!
//! ```text
//!   spend:  established here? --> ask who established it --> granted, denied; no answer in 500 ms, no link: unreachable
//! ```
//!
//! Contract: after each call do all [`Action`]s in their order, and call [`Exchange::on_timer`] when
//! [`Exchange::next_timer`] is reached. Messages may be lost, late, doubled and out of order.
//!
//! What is promised: from `Stored` on, every node finds the session within three seconds, whichever one node leaves, unless
//! nodes differ about who is a member at that moment, or no owner had acknowledged it (the sender tries for 1.55 s). When two
//! nodes that kept it have left, or come back with nothing, a session is found only where it is still kept.

mod counters;
mod gets;
mod pending;
mod puts;
mod ranks;
mod spends;
mod turn;

use std::collections::BTreeSet;

use watari_wire::{Message, NodeName, SessionKey};

pub use counters::ExchangeCounters;
use gets::Gets;
use puts::Puts;
use ranks::Ranks;
use spends::Spends;
use turn::{Node, Turn};

use crate::{Session, Store};

/// One node's part in sharing sessions.
pub struct Exchange {
    node: Node,
    puts: Puts,
    gets: Gets,
    spends: Spends,
}

/// To whom sessions are sent when they are established.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// To all members.
    Push,
    /// To its two owners.
    Owner,
}

/// A point of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of a clock that only goes on.
    pub ms: u64,
    /// Seconds of Unix time.
    pub unix_s: u64,
}

/// Names a call of [`Exchange::put`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PutId(u64);

/// Names a call of [`Exchange::get`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GetId(u64);

/// Names a call of [`Exchange::spend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpendId(u64);

/// What the driver shall do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send this message to this member.
    Send(NodeName, Message),
    /// The same for a message that no handshake waits for: it may go together with the next one to this member, or some
    /// milliseconds later.
    SendSoon(NodeName, Message),
    /// The flight may go that tells the client of these sessions: each is where it will be looked for, or no more can
    /// be done about it.
    Stored(PutId),
    /// The search has ended, with these sessions.
    Found(GetId, Vec<FoundSession>, Outcome),
    /// Whether the use of a session is approved.
    Spent(SpendId, Verdict),
}

/// A session that was sought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSession {
    /// Its key.
    pub key: SessionKey,
    /// What it is.
    pub session: Session,
    /// Where it was.
    pub source: Source,
}

/// Where a session was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// At this node, which established it.
    Own,
    /// At this node; another established it.
    Here,
    /// At another; now it is kept here, too.
    Pulled,
}

/// How a search has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All sessions were found.
    Complete,
    /// Those that are missing are not known to any node that was asked.
    Unknown,
    /// Some that were asked did not answer in time, or there were too many searches to ask anybody.
    Unreachable,
}

/// Whether a session may be used that is good for one use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may: this once.
    Granted,
    /// It was used before, or who established it does not know it (any more).
    Denied,
    /// Who established it does not answer.
    Unreachable,
}

/// So many puts, so many gets, and so many spends, wait for others at once; one beyond is done at once.
pub const PENDING_MAX: usize = 4096;

/// How many nodes keep a session for all others.
const OWNERS: usize = 2;

impl Exchange {
    /// For the node of this name, which keeps sessions in `store`, without members.
    pub fn new(me: NodeName, placement: Placement, store: Store) -> Self {
        let node = Node { ranks: Ranks::new(me), store, counters: ExchangeCounters::default() };
        Self { node, puts: Puts::new(placement), gets: Gets::default(), spends: Spends::default() }
    }

    /// Says which other nodes are linked at the moment. What waits for one that has left goes on with the others.
    pub fn set_members(&mut self, now: Now, members: &BTreeSet<NodeName>) -> Vec<Action> {
        let left = self.node.ranks.set_members(members);
        let mut turn = Turn::new(now, &mut self.node);
        if !left.is_empty() {
            self.puts.on_left(&mut turn, &left);
            self.gets.on_left(&mut turn, &left);
            self.spends.on_left(&mut turn, &left);
        }
        turn.actions
    }

    /// Keeps sessions that were established here until they expire, here and where others will look for them.
    pub fn put(&mut self, now: Now, sessions: Vec<(SessionKey, Session)>) -> (PutId, Vec<Action>) {
        let mut turn = Turn::new(now, &mut self.node);
        for (key, session) in &sessions {
            turn.keep(*key, session.clone(), true);
        }
        let id = self.puts.start(&mut turn, sessions);
        (id, turn.actions)
    }

    /// Looks for sessions: here, then where they should be. Keys beyond [`SESSIONS_MAX`](watari_wire::SESSIONS_MAX) are
    /// passed over.
    pub fn get(&mut self, now: Now, keys: Vec<SessionKey>) -> (GetId, Vec<Action>) {
        let mut turn = Turn::new(now, &mut self.node);
        let id = self.gets.start(&mut turn, keys);
        (id, turn.actions)
    }

    /// Keeps, here alone, a session that was kept elsewhere before, such as one from before a restart. Even of one that this
    /// node established it approves no use: it may have done so.
    pub fn restore(&mut self, now: Now, key: SessionKey, session: Session) {
        if self.node.store.get(&key, now.unix_s).is_none() {
            self.node.store.put(key, session, false);
        }
    }

    /// Forgets what has expired.
    pub fn expire(&mut self, now: Now) {
        self.node.store.expire(now.unix_s);
    }

    /// Asks for the one use of a session for which it can be approved.
    pub fn spend(&mut self, now: Now, found: &FoundSession) -> (SpendId, Vec<Action>) {
        let mut turn = Turn::new(now, &mut self.node);
        let id = self.spends.start(&mut turn, found);
        (id, turn.actions)
    }

    /// What a member says. Others are not heard.
    pub fn on_message(&mut self, now: Now, from: &NodeName, message: Message) -> Vec<Action> {
        if !self.node.ranks.is_member(from) || message.check_bounds().is_err() {
            return Vec::new();
        }
        let mut turn = Turn::new(now, &mut self.node);
        match message {
            Message::SessionPut(put) => turn.on_put(from, put),
            Message::SessionGet(get) => turn.on_get(from, &get),
            Message::SessionStored(stored) => self.puts.on_stored(&mut turn, from, stored.request),
            Message::SessionFound(found) => self.gets.on_found(&mut turn, from, found),
            Message::SessionSpend(spend) => turn.on_spend(from, &spend),
            Message::SessionSpent(spent) => self.spends.on_spent(&mut turn, from, &spent),
            _ => {}
        }
        turn.actions
    }

    /// Sends again what was not answered, and ends what has taken too long.
    pub fn on_timer(&mut self, now: Now) -> Vec<Action> {
        let mut turn = Turn::new(now, &mut self.node);
        self.puts.on_timer(&mut turn);
        self.gets.on_timer(&mut turn);
        self.spends.on_timer(&mut turn);
        turn.actions
    }

    /// When to call [`Self::on_timer`], by [`Now::ms`].
    pub fn next_timer(&self) -> Option<u64> {
        [self.puts.next_timer(), self.gets.next_timer(), self.spends.next_timer()].into_iter().flatten().min()
    }

    /// What has happened so far.
    pub fn counters(&self) -> &ExchangeCounters {
        &self.node.counters
    }

    /// The sessions that are kept here.
    pub fn store(&self) -> &Store {
        &self.node.store
    }
}

#[cfg(test)]
mod tests;
