//! How many requests may be in progress at an origin, and who waits for a place there.

mod gate;
mod line;
mod lines;
#[cfg(test)]
mod model;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

use crate::{Pattern, RetryAfter};
use gate::Gate;
use line::Next;
use lines::Lines;
pub use settings::{Limits, QueueSettings, Rule};

/// Someone wants to be served.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The host that is asked, without port.
    pub host: &'a str,
    /// The path that is asked for, without query.
    pub path: &'a str,
    /// Who asks.
    pub client: IpAddr,
}

/// A request that waits or is in progress. No two have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entered {
    /// It begins.
    Now(Ticket),
    /// It waits.
    Waiting(Ticket),
    /// Too many wait already: 503 (RFC 9110, section 15.6.4).
    Refused(RetryAfter),
}

/// A request has waited too long: 503.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expired {
    /// The request's. It is given back.
    pub ticket: Ticket,
    /// When to come again.
    pub retry_after: RetryAfter,
}

/// How many requests of a kind there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Those at the origin.
    pub in_progress: usize,
    /// Those that wait for a place there.
    pub waiting: usize,
}

/// Lets requests through to an origin, as many at a time as it may have, and the others wait (`uri_ctl` of the cache
/// server in Nakayama's thesis, section 5).
///
/// ```text
///            no room
///   enter -----------> waiting ------------> given back    (leave: its client has gone; expire: it took too long)
///     |                   | another leaves
///     |  room             v
///     +--------------> in progress --------> given back    (leave)
/// ```
///
/// * A request needs a place under its rule's limit and one under the limit of all. Nobody waits who has both.
/// * Of those that could begin, the highest priority does; see [`QueueSettings::one_in`] for the others.
/// * Of the same priority, clients take turns, whatever rules their requests come under: between two turns of a client
///   that waits, nobody has more than one. A client whose requests cannot begin keeps its turn.
/// * Of the same client, the request that came first begins first, unless only a later one has a place.
///
/// The caller keeps each [`Ticket`] until its request is over, whether it ever began or not, and gives it back by
/// [`Queue::leave`]; it tells those that this lets begin, and calls [`Queue::expire`] when [`Queue::next_deadline`] says.
/// What is remembered grows only with tickets that are not given back.
#[derive(Debug)]
pub struct Queue {
    rules: Vec<Rule>,
    all: Gate,
    /// One for each rule, and then one for what no rule is about.
    gates: Vec<Gate>,
    /// Who waits.
    lines: Lines,
    tickets: BTreeMap<Ticket, Place>,
    deadlines: BTreeSet<(Instant, Ticket)>,
    last: Ticket,
}

/// Where a request is. `rule` is the index of its gate.
#[derive(Debug, Clone, Copy)]
enum Place {
    Waiting { rule: usize, client: IpAddr, deadline: Option<Instant> },
    InProgress { rule: usize, begun: Instant },
}

impl Queue {
    /// Nobody is there yet.
    pub fn new(settings: QueueSettings) -> Self {
        let lines = Lines::new(&settings);
        let QueueSettings { rules, all, .. } = settings;
        let limits = rules.iter().map(|rule| rule.limits).chain([Limits::default()]);
        Self {
            all: Gate::new(all),
            gates: limits.map(Gate::new).collect(),
            lines,
            rules,
            tickets: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            last: Ticket(0),
        }
    }

    /// Other settings hold from now on. A request stays under the rule with the same pattern; without one, no rule is about
    /// it any more. Who has begun goes on, and who waits does so as long as was meant for it; clients have their turns in
    /// the order in which they came. Returns those that may begin now.
    pub fn reconfigure(&mut self, settings: QueueSettings, now: Instant) -> Vec<Ticket> {
        let old = std::mem::replace(self, Self::new(settings));
        self.last = old.last;
        self.all.goes_on_from(&old.all);
        let new_rule = |rule: usize| {
            let pattern = old.rules.get(rule).map(|rule| &rule.pattern);
            self.rules.iter().position(|rule| Some(&rule.pattern) == pattern).unwrap_or(self.rules.len())
        };
        let new_rules: Vec<_> = (0..old.gates.len()).map(new_rule).collect();
        for (gate, rule) in old.gates.iter().zip(&new_rules) {
            self.gates[*rule].goes_on_from(gate);
        }
        for (ticket, place) in old.tickets {
            match place {
                Place::InProgress { rule, begun } => self.begin(ticket, new_rules[rule], begun),
                Place::Waiting { rule, client, deadline } => {
                    self.wait(Next { rule: new_rules[rule], client, ticket }, deadline);
                }
            }
        }
        std::iter::from_fn(|| self.begin_next(now)).collect()
    }

    /// A request comes.
    pub fn enter(&mut self, request: Request<'_>, now: Instant) -> Entered {
        let rule = self.rule_of(request);
        if self.has_room(rule) {
            let ticket = self.new_ticket();
            self.begin(ticket, rule, now);
            Entered::Now(ticket)
        } else if self.all.may_wait() && self.gates[rule].may_wait() {
            let who = Next { rule, client: request.client, ticket: self.new_ticket() };
            self.wait(who, self.deadline(rule, now));
            Entered::Waiting(who.ticket)
        } else {
            Entered::Refused(self.retry_after(rule))
        }
    }

    /// A request is over, or its client does not wait for it any more. Returns the request that may begin in its place; it
    /// is in progress already, also if nobody wants it any more, until it leaves, too. A ticket that was given back before
    /// means nothing.
    pub fn leave(&mut self, ticket: Ticket, now: Instant) -> Option<Ticket> {
        match self.tickets.remove(&ticket)? {
            Place::InProgress { rule, begun } => {
                let took = now.saturating_duration_since(begun);
                self.gates[rule].leaves(took);
                self.all.leaves(took);
                self.begin_next(now)
            }
            Place::Waiting { rule, client, deadline } => {
                self.stop_waiting(Next { rule, client, ticket }, deadline);
                None
            }
        }
    }

    /// Gives back the tickets of those that have waited too long.
    pub fn expire(&mut self, now: Instant) -> Vec<Expired> {
        let mut expired = Vec::new();
        while self.next_deadline().is_some_and(|deadline| deadline <= now) {
            let Some((_, ticket)) = self.deadlines.pop_first() else { break };
            if let Some(Place::Waiting { rule, client, deadline }) = self.tickets.remove(&ticket) {
                self.stop_waiting(Next { rule, client, ticket }, deadline);
                expired.push(Expired { ticket, retry_after: self.retry_after(rule) });
            }
        }
        expired
    }

    /// When somebody will have waited too long.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Which of [`Queue::loads`] a request counts in.
    pub fn rule_of(&self, request: Request<'_>) -> usize {
        let matching = self.rules.iter().position(|rule| rule.pattern.matches(request.host, request.path));
        matching.unwrap_or(self.rules.len())
    }

    /// All requests.
    pub fn load(&self) -> Load {
        self.all.load
    }

    /// The requests that each rule is about, in the rules' order, and then those that none is about.
    pub fn loads(&self) -> impl Iterator<Item = (Option<&Pattern>, Load)> {
        let patterns = self.rules.iter().map(|rule| Some(&rule.pattern)).chain([None]);
        patterns.zip(self.gates.iter().map(|gate| gate.load))
    }

    fn has_room(&self, rule: usize) -> bool {
        self.all.has_room() && self.gates[rule].has_room()
    }

    fn new_ticket(&mut self) -> Ticket {
        self.last.0 += 1;
        self.last
    }

    fn begin(&mut self, ticket: Ticket, rule: usize, now: Instant) {
        self.all.load.in_progress += 1;
        self.gates[rule].load.in_progress += 1;
        self.tickets.insert(ticket, Place::InProgress { rule, begun: now });
    }

    fn deadline(&self, rule: usize, now: Instant) -> Option<Instant> {
        let longest = [self.all.wait_max(), self.gates[rule].wait_max()].into_iter().flatten().min();
        now.checked_add(longest?)
    }

    fn wait(&mut self, who: Next, deadline: Option<Instant>) {
        let Next { rule, client, ticket } = who;
        self.all.load.waiting += 1;
        self.gates[rule].load.waiting += 1;
        self.lines.push(who);
        self.deadlines.extend(deadline.map(|deadline| (deadline, ticket)));
        self.tickets.insert(ticket, Place::Waiting { rule, client, deadline });
    }

    fn stop_waiting(&mut self, who: Next, deadline: Option<Instant>) {
        self.all.load.waiting -= 1;
        self.gates[who.rule].load.waiting -= 1;
        self.lines.remove(who);
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, who.ticket));
        }
    }

    /// Lets somebody begin who can.
    fn begin_next(&mut self, now: Instant) -> Option<Ticket> {
        if !self.all.has_room() {
            return None;
        }
        let next = self.lines.take_next(|rule| self.gates[rule].has_room())?;
        if let Some(Place::Waiting { deadline, .. }) = self.tickets.get(&next.ticket).copied() {
            self.stop_waiting(next, deadline);
        }
        self.begin(next.ticket, next.rule, now);
        Some(next.ticket)
    }

    /// How long it would take until a newcomer had its turn if all waited theirs.
    fn retry_after(&self, rule: usize) -> RetryAfter {
        RetryAfter(self.gates[rule].turn_in().max(self.all.turn_in()))
    }
}
