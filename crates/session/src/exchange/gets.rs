//! Searches for sessions at other nodes.

use std::collections::{BTreeMap, BTreeSet};

use watari_values::{NodeName, SessionKey};

use super::action::{Action, FoundSession, GetId, Outcome, PENDING_MAX, Source};
use super::message::{Request, SESSIONS_MAX, SentSession};
use super::pending::{Pending, id_of, request};
use super::ranks::Ranks;
use super::turn::{Turn, Urgency};

/// All searches that wait for responses.
#[derive(Default)]
pub(super) struct Gets {
    pending: Pending<Get>,
}

struct Get {
    id: u64,
    until_ms: u64,
    /// The sessions that are not found yet.
    sought: Vec<Sought>,
    found: Vec<FoundSession>,
    /// Messages without a response.
    asks: Vec<Ask>,
    /// The number of messages ever sent.
    serial: u64,
}

struct Sought {
    key: SessionKey,
    /// The nodes that were asked, the last at the end.
    asked: Vec<NodeName>,
}

/// One message to one node.
#[derive(Clone)]
struct Ask {
    request: u64,
    to: NodeName,
    keys: Vec<SessionKey>,
    tries: u32,
    again_ms: u64,
}

/// Two owners, and a third node: one owner may have joined since the session was stored, and not have it.
const ASKED_RANKS: usize = 3;
/// The timeout of the first try, in milliseconds. Then the message is sent again, and the next node is asked, too. Each
/// timeout is twice as long as the one before.
const PATIENCE_MS: u64 = 100;
/// The timeout of a search, in milliseconds. Request and response may each be half a second late, and wait behind other
/// late messages. With a shorter timeout, sessions were not found on links that lose packets.
const SEARCH_MS: u64 = 3000;

impl Gets {
    pub(super) fn start(&mut self, turn: &mut Turn<'_>, keys: Vec<SessionKey>) -> GetId {
        let id = self.pending.new_id();
        let mut get = Get::new(id, turn.now.ms, keys);
        get.look_here(turn);
        if self.pending.len() < PENDING_MAX || get.sought.is_empty() {
            get.ask_next(turn, |_| true);
            self.go_on(turn, get);
        } else {
            turn.counters().gets_over_limit += 1;
            get.end(turn, Outcome::Unreachable);
        }
        GetId(id)
    }

    pub(super) fn on_found(&mut self, turn: &mut Turn<'_>, from: &NodeName, request: u64, sessions: Vec<SentSession>) {
        if let Some(mut get) = self.pending.take(id_of(request)) {
            get.on_answer(turn, from, request, sessions);
            self.go_on(turn, get);
        }
    }

    pub(super) fn on_left(&mut self, turn: &mut Turn<'_>, left: &BTreeSet<NodeName>) {
        for id in self.pending.select(|get| get.asks.iter().any(|ask| left.contains(&ask.to))) {
            if let Some(mut get) = self.pending.take(id) {
                let vain: Vec<Ask> = get.asks.extract_if(.., |ask| left.contains(&ask.to)).collect();
                get.look_here(turn);
                get.lead_on(turn, &vain);
                self.go_on(turn, get);
            }
        }
    }

    pub(super) fn on_timer(&mut self, turn: &mut Turn<'_>) {
        while let Some(mut get) = self.pending.take_due(turn.now.ms) {
            if turn.now.ms < get.until_ms {
                get.ask_again(turn);
            }
            self.go_on(turn, get);
        }
    }

    pub(super) fn next_timer(&self) -> Option<u64> {
        self.pending.next_due()
    }

    fn go_on(&mut self, turn: &mut Turn<'_>, get: Get) {
        match get.outcome(turn.now.ms) {
            Some(outcome) => get.end(turn, outcome),
            None => self.pending.insert(get.id, get.due_ms(), get),
        }
    }
}

impl Get {
    fn new(id: u64, now_ms: u64, keys: Vec<SessionKey>) -> Self {
        let mut sought: Vec<Sought> = Vec::new();
        for key in keys.into_iter().take(SESSIONS_MAX) {
            if !sought.iter().any(|known| known.key == key) {
                sought.push(Sought { key, asked: Vec::new() });
            }
        }
        let until_ms = now_ms.saturating_add(SEARCH_MS);
        Self { id, until_ms, sought, found: Vec::new(), asks: Vec::new(), serial: 0 }
    }

    /// Looks in the node's own store, because other nodes may have sent some of the sessions.
    fn look_here(&mut self, turn: &mut Turn<'_>) {
        self.sought.retain(|sought| {
            let found = turn.find_here(sought.key);
            let is_sought = found.is_none();
            self.found.extend(found);
            is_sought
        });
        self.forget_needless();
    }

    /// Asks the next node in rank for each session for which `wanted` returns true.
    fn ask_next(&mut self, turn: &mut Turn<'_>, wanted: impl Fn(&Sought) -> bool) {
        let mut next: BTreeMap<NodeName, Vec<SessionKey>> = BTreeMap::new();
        for sought in self.sought.iter_mut().filter(|sought| wanted(sought)) {
            if let Some(to) = sought.next(turn.ranks()) {
                sought.asked.push(to.clone());
                next.entry(to).or_default().push(sought.key);
            }
        }
        for (to, keys) in next {
            self.serial += 1;
            let mut ask = Ask { request: request(self.id, self.serial), to, keys, tries: 0, again_ms: 0 };
            ask.send(turn);
            self.asks.push(ask);
        }
    }

    fn ask_again(&mut self, turn: &mut Turn<'_>) {
        self.look_here(turn);
        let (mut silent, now_ms) = (Vec::new(), turn.now.ms);
        for ask in self.asks.iter_mut().filter(|ask| ask.again_ms <= now_ms) {
            ask.send(turn);
            silent.push(ask.clone());
        }
        self.lead_on(turn, &silent);
    }

    /// For the sessions of these messages, asks the node next in rank, unless that was done.
    fn lead_on(&mut self, turn: &mut Turn<'_>, vain: &[Ask]) {
        self.ask_next(turn, |sought| vain.iter().any(|ask| ask.is_last_for(sought)));
    }

    fn on_answer(&mut self, turn: &mut Turn<'_>, from: &NodeName, request: u64, sessions: Vec<SentSession>) {
        let answered = self.asks.iter().position(|ask| ask.request == request && ask.to == *from);
        let Some(ask) = answered.map(|at| self.asks.remove(at)) else { return };
        for sent in sessions {
            if ask.keys.contains(&sent.key) {
                self.take_in(turn, sent);
            }
        }
        self.look_here(turn);
        self.lead_on(turn, &[ask]);
    }

    fn take_in(&mut self, turn: &mut Turn<'_>, sent: SentSession) {
        let Some(at) = self.sought.iter().position(|sought| sought.key == sent.key) else { return };
        if let Some(found) = turn.keep_pulled(sent) {
            self.sought.remove(at);
            self.found.push(found);
        }
    }

    /// Stops waiting for messages whose sessions have all been found.
    fn forget_needless(&mut self) {
        for ask in &mut self.asks {
            ask.keys.retain(|key| self.sought.iter().any(|sought| sought.key == *key));
        }
        self.asks.retain(|ask| !ask.keys.is_empty());
    }

    fn outcome(&self, now_ms: u64) -> Option<Outcome> {
        if self.sought.is_empty() {
            Some(Outcome::Complete)
        } else if self.asks.is_empty() {
            Some(Outcome::Unknown)
        } else {
            (now_ms >= self.until_ms).then_some(Outcome::Unreachable)
        }
    }

    fn due_ms(&self) -> u64 {
        self.asks.iter().map(|ask| ask.again_ms).fold(self.until_ms, u64::min)
    }

    fn end(self, turn: &mut Turn<'_>, outcome: Outcome) {
        let counters = turn.counters();
        let here = self.found.iter().filter(|found| found.source != Source::Pulled).count() as u64;
        counters.found_here += here;
        counters.pulled += self.found.len() as u64 - here;
        match outcome {
            Outcome::Complete => {}
            Outcome::Unknown => counters.unknown += self.sought.len() as u64,
            Outcome::Unreachable => counters.unreachable += self.sought.len() as u64,
        }
        turn.actions.push(Action::Found(GetId(self.id), self.found, outcome));
    }
}

impl Sought {
    fn next(&self, ranks: &Ranks) -> Option<NodeName> {
        let first = ranks.first(&self.key, ASKED_RANKS);
        first.into_iter().find(|node| node != ranks.me() && !self.asked.contains(node))
    }
}

impl Ask {
    fn send(&mut self, turn: &mut Turn<'_>) {
        self.again_ms = turn.now.ms.saturating_add(PATIENCE_MS << self.tries);
        self.tries += 1;
        turn.request(&self.to, self.request, Request::Get(self.keys.clone()), Urgency::Now);
    }

    /// Whether `to` is the last node that was asked for this session.
    fn is_last_for(&self, sought: &Sought) -> bool {
        self.keys.contains(&sought.key) && sought.asked.last() == Some(&self.to)
    }
}
