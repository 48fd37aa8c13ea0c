//! Stores sessions at several nodes of the cluster, and finds them there.
//!
//! Each session has **owners**: the first two nodes by rendezvous hashing of its key over all linked nodes. The node
//! that establishes a session stores it, and sends it to its owners (or to all members). The flight that announces the
//! session to the client waits until one owner has acknowledged it. From then on, any one node may fail. A node that
//! receives the key of a session that it does not store asks the owners, one after the other, and then a third node,
//! because members come and go.
//!
//! ```text
//!   put:  store here --> send to owners --> one acknowledged: Stored --> all acknowledged, or tries exhausted: removed
//!                            ^      |
//!                            +------+ no response, 5 tries; an owner leaves: the next in rank becomes one
//!
//!   get:  is it here? --> ask the first rank --> all found, all denied, or 3 s have passed: Found
//!                             ^      |
//!                             +------+ denied: ask the next; no response in 100 ms: ask again, and the next, too
//! ```
//!
//! A handshake waits for one acknowledgement. So only the copy for the owner that ranks first, and that owner's
//! response, are sent at once. Other copies and their responses are sent together with other messages. If nodes
//! disagree about the ranks, the response takes some milliseconds longer.
//!
//! The node that established a session can approve **one use** of it, as long as that node runs and stores the session.
//! Early data, and sessions that are good for one resumption, must not be used twice anywhere. The request is not
//! repeated: a node whose response is late or lost may have approved.
//!
//! ```text
//!   spend:  established here? --> ask the issuer --> granted, denied; no response in 500 ms, or no link: unreachable
//! ```
//!
//! Contract: after each call, the caller does all [`Action`]s in their order. It calls [`Exchange::on_timer`] when
//! [`Exchange::next_timer`] is reached. Messages may be lost, late, doubled and out of order.
//!
//! Guarantee: after `Stored`, every node finds the session within three seconds, even if any one node has left. There
//! are two exceptions:
//!
//! * Nodes disagree about the members at that moment.
//! * No owner acknowledged the session (the sender tries for 1.55 s).
//!
//! If two nodes that stored it have left, or have restarted empty, a session is found only where it is still stored.

mod action;
mod counters;
mod gets;
mod message;
mod pending;
mod puts;
mod ranks;
mod spends;
mod turn;

use std::collections::BTreeSet;

use watari_values::{NodeName, SessionKey};

pub use action::{Action, FoundSession, GetId, Now, Outcome, PENDING_MAX, Placement, PutId, Source, SpendId, Verdict};
pub use counters::ExchangeCounters;
pub use message::{Answer, Message, Request, SESSION_LEN_MAX, SESSIONS_MAX, SentSession};

use gets::Gets;
use puts::Puts;
use ranks::Ranks;
use spends::Spends;
use turn::{Node, Turn};

use crate::store::{Session, Store};

/// One node's part in storing and finding sessions.
pub struct Exchange {
    node: Node,
    puts: Puts,
    gets: Gets,
    spends: Spends,
}

impl Exchange {
    /// Makes the exchange of the node `me`, which stores sessions in `store`. It has no members yet.
    pub fn new(me: NodeName, placement: Placement, store: Store) -> Self {
        let node = Node { ranks: Ranks::new(me), store, counters: ExchangeCounters::default() };
        Self { node, puts: Puts::new(placement), gets: Gets::default(), spends: Spends::default() }
    }

    /// Sets the other nodes that are linked at present. Puts, gets and spends that waited for one that has left
    /// continue with the others.
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

    /// Stores sessions that were established here until they expire, at this node and at their owners or all members.
    pub fn put(&mut self, now: Now, sessions: Vec<(SessionKey, Session)>) -> (PutId, Vec<Action>) {
        let mut turn = Turn::new(now, &mut self.node);
        for (key, session) in &sessions {
            turn.keep(*key, session.clone(), true);
        }
        let id = self.puts.start(&mut turn, sessions);
        (id, turn.actions)
    }

    /// Searches sessions here, and then at other nodes. Ignores keys beyond [`SESSIONS_MAX`].
    pub fn get(&mut self, now: Now, keys: Vec<SessionKey>) -> (GetId, Vec<Action>) {
        let mut turn = Turn::new(now, &mut self.node);
        let id = self.gets.start(&mut turn, keys);
        (id, turn.actions)
    }

    /// Stores a session of an earlier time, such as from before a restart, at this node alone. The node approves no use
    /// of it, even if it established it: it may have approved one before.
    pub fn restore(&mut self, now: Now, key: SessionKey, session: Session) {
        if self.node.store.get(&key, now.unix_s).is_none() {
            self.node.store.put(key, session, false);
        }
    }

    /// Stores the sessions of another process of this node: those of [`Store::export`].
    pub fn import(&mut self, sessions: impl IntoIterator<Item = (SessionKey, Session, bool, bool)>) {
        for (key, session, is_own, is_spent) in sessions {
            self.node.store.import(key, session, is_own, is_spent);
        }
    }

    /// Removes expired sessions.
    pub fn expire(&mut self, now: Now) {
        self.node.store.expire(now.unix_s);
    }

    /// Asks the node that established a session to approve one use of it.
    pub fn spend(&mut self, now: Now, found: &FoundSession) -> (SpendId, Vec<Action>) {
        let mut turn = Turn::new(now, &mut self.node);
        let id = self.spends.start(&mut turn, found);
        (id, turn.actions)
    }

    /// Handles a message of a member. Ignores messages of other nodes.
    pub fn on_message(&mut self, now: Now, from: &NodeName, message: Message) -> Vec<Action> {
        if !self.node.ranks.is_member(from) || !message.is_within_bounds() {
            return Vec::new();
        }
        let mut turn = Turn::new(now, &mut self.node);
        match message {
            Message::Request(number, Request::Put(sessions)) => turn.on_put(from, number, sessions),
            Message::Request(number, Request::Get(keys)) => turn.on_get(from, number, &keys),
            Message::Request(number, Request::Spend(key)) => turn.on_spend(from, number, &key),
            Message::Answer(number, Answer::Stored) => self.puts.on_stored(&mut turn, from, number),
            Message::Answer(number, Answer::Found(sessions)) => {
                self.gets.on_found(&mut turn, from, number, sessions);
            }
            Message::Answer(number, Answer::Spent { granted }) => {
                self.spends.on_spent(&mut turn, from, number, granted);
            }
        }
        turn.actions
    }

    /// Repeats messages that had no response, and ends calls that reached their timeout.
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

    pub fn counters(&self) -> &ExchangeCounters {
        &self.node.counters
    }

    /// The sessions that this node stores.
    pub fn store(&self) -> &Store {
        &self.node.store
    }
}

#[cfg(test)]
mod tests;
