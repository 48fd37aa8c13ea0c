//! Limits the requests in progress at an origin, and keeps the order of those that wait.

mod gate;
mod id;
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
pub use gate::Load;
pub use id::AdmissionId;
use line::Next;
use lines::Lines;
pub use settings::{Limits, QueueSettings, Rule};

/// A request that asks for a slot.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The requested host, without port.
    pub host: &'a str,
    /// The requested path, without query.
    pub path: &'a str,
    /// The client, or the address that stands for its network.
    pub client: IpAddr,
}

/// The decision on a new request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entered {
    /// The request begins.
    Now(AdmissionId),
    /// The request waits.
    Waiting(AdmissionId),
    /// `waiting_max` requests wait already: respond with 503 (RFC 9110, section 15.6.4).
    Refused(RetryAfter),
}

/// A request reached its maximum wait: respond with 503.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expired {
    /// The request's. The queue has removed it.
    pub id: AdmissionId,
    /// The value for `Retry-After`.
    pub retry_after: RetryAfter,
}

/// Lets as many requests through to an origin as its limits allow, and queues the others (`uri_ctl` of the cache server
/// in Nakayama's thesis, section 5).
///
/// ```text
///            no slot
///   enter -----------> waiting ------------> removed    (leave: the client has gone; expire: maximum wait reached)
///     |                   | another leaves
///     |  slot             v
///     +--------------> in progress --------> removed    (leave)
/// ```
///
/// * A request needs a slot under its rule's limit and one under the limit of all. A request for which both are free
///   never waits.
/// * Of the requests that could begin, one of the highest priority begins; see [`QueueSettings::one_in`] for the
///   exception.
/// * Within a priority, clients take turns, whichever rules match their requests: between two turns of a client that
///   waits, no other client has more than one. A client whose requests cannot begin keeps its turn.
/// * Of one client's requests, the oldest that could begin does.
///
/// The caller
///
/// * keeps each [`AdmissionId`] until its request ends, whether or not the request began, and then passes it to
///   [`Queue::leave`],
/// * notifies the requests that these calls let begin, and
/// * calls [`Queue::expire`] at [`Queue::next_deadline`].
///
/// Memory grows only with tickets that have not left or expired.
#[derive(Debug)]
pub struct Queue {
    rules: Vec<Rule>,
    all: Gate,
    /// One for each rule, and a last one for requests that match no rule.
    gates: Vec<Gate>,
    /// The requests that wait.
    lines: Lines,
    ids: BTreeMap<AdmissionId, Place>,
    deadlines: BTreeSet<(Instant, AdmissionId)>,
    last: AdmissionId,
}

/// Where a request is. `rule` is the index of its gate.
#[derive(Debug, Clone, Copy)]
enum Place {
    Waiting { rule: usize, client: IpAddr, deadline: Option<Instant> },
    InProgress { rule: usize, begun: Instant },
}

impl Queue {
    /// An empty queue.
    pub fn new(settings: QueueSettings) -> Self {
        let lines = Lines::new(&settings);
        let QueueSettings { rules, all, .. } = settings;
        let limits = rules.iter().map(|rule| rule.limits).chain([Limits::default()]);
        Self {
            all: Gate::new(all),
            gates: limits.map(Gate::new).collect(),
            lines,
            rules,
            ids: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            last: AdmissionId(0),
        }
    }

    /// Replaces the settings. A request moves to the new rule with the same pattern, or to the requests without a rule
    /// if there is none. Requests in progress continue. Waiting requests keep their deadlines, and clients take turns
    /// in the order in which they arrived. Returns the requests that begin now.
    pub fn reconfigure(&mut self, settings: QueueSettings, now: Instant) -> Vec<AdmissionId> {
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
        for (id, place) in old.ids {
            match place {
                Place::InProgress { rule, begun } => self.begin(id, new_rules[rule], begun),
                Place::Waiting { rule, client, deadline } => {
                    self.wait(Next { rule: new_rules[rule], client, id }, deadline);
                }
            }
        }
        std::iter::from_fn(|| self.begin_next(now)).collect()
    }

    /// Adds a request: begins it, queues it, or refuses it.
    pub fn enter(&mut self, request: Request<'_>, now: Instant) -> Entered {
        let rule = self.rule_of(request);
        if self.has_room(rule) {
            let id = self.new_ticket();
            self.begin(id, rule, now);
            Entered::Now(id)
        } else if self.all.may_wait() && self.gates[rule].may_wait() {
            let who = Next { rule, client: request.client, id: self.new_ticket() };
            self.wait(who, self.deadline(rule, now));
            Entered::Waiting(who.id)
        } else {
            Entered::Refused(self.retry_after(rule))
        }
    }

    /// Removes a request that has ended, or whose client does not wait any more. Returns the request that begins in its
    /// place. That one counts as in progress until it leaves too, even if its client has gone. A ticket that has left
    /// or expired has no effect.
    pub fn leave(&mut self, id: AdmissionId, now: Instant) -> Option<AdmissionId> {
        match self.ids.remove(&id)? {
            Place::InProgress { rule, begun } => {
                let took = now.saturating_duration_since(begun);
                self.gates[rule].leaves(took);
                self.all.leaves(took);
                self.begin_next(now)
            }
            Place::Waiting { rule, client, deadline } => {
                self.stop_waiting(Next { rule, client, id }, deadline);
                None
            }
        }
    }

    /// Removes the requests that have reached their deadline.
    pub fn expire(&mut self, now: Instant) -> Vec<Expired> {
        let mut expired = Vec::new();
        while self.next_deadline().is_some_and(|deadline| deadline <= now) {
            let Some((_, id)) = self.deadlines.pop_first() else { break };
            if let Some(Place::Waiting { rule, client, deadline }) = self.ids.remove(&id) {
                self.stop_waiting(Next { rule, client, id }, deadline);
                expired.push(Expired { id, retry_after: self.retry_after(rule) });
            }
        }
        expired
    }

    /// The earliest deadline of a request that waits.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The index in [`Queue::loads`] that a request counts under.
    pub fn rule_of(&self, request: Request<'_>) -> usize {
        let matching = self.rules.iter().position(|rule| rule.pattern.matches(request.host, request.path));
        matching.unwrap_or(self.rules.len())
    }

    /// The load of all rules together.
    pub fn load(&self) -> Load {
        self.all.load
    }

    /// The load of each rule, in the order of the settings, and then of the requests that match no rule.
    pub fn loads(&self) -> impl Iterator<Item = (Option<&Pattern>, Load)> {
        let patterns = self.rules.iter().map(|rule| Some(&rule.pattern)).chain([None]);
        patterns.zip(self.gates.iter().map(|gate| gate.load))
    }

    fn has_room(&self, rule: usize) -> bool {
        self.all.has_room() && self.gates[rule].has_room()
    }

    fn new_ticket(&mut self) -> AdmissionId {
        self.last.0 += 1;
        self.last
    }

    fn begin(&mut self, id: AdmissionId, rule: usize, now: Instant) {
        self.all.load.in_progress += 1;
        self.gates[rule].load.in_progress += 1;
        self.ids.insert(id, Place::InProgress { rule, begun: now });
    }

    fn deadline(&self, rule: usize, now: Instant) -> Option<Instant> {
        let longest = [self.all.wait_max(), self.gates[rule].wait_max()].into_iter().flatten().min();
        now.checked_add(longest?)
    }

    fn wait(&mut self, who: Next, deadline: Option<Instant>) {
        let Next { rule, client, id } = who;
        self.all.load.waiting += 1;
        self.gates[rule].load.waiting += 1;
        self.lines.push(who);
        self.deadlines.extend(deadline.map(|deadline| (deadline, id)));
        self.ids.insert(id, Place::Waiting { rule, client, deadline });
    }

    fn stop_waiting(&mut self, who: Next, deadline: Option<Instant>) {
        self.all.load.waiting -= 1;
        self.gates[who.rule].load.waiting -= 1;
        self.lines.remove(who);
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, who.id));
        }
    }

    /// Begins the request whose turn it is, if one can begin.
    fn begin_next(&mut self, now: Instant) -> Option<AdmissionId> {
        if !self.all.has_room() {
            return None;
        }
        let next = self.lines.take_next(|rule| self.gates[rule].has_room())?;
        if let Some(Place::Waiting { deadline, .. }) = self.ids.get(&next.id).copied() {
            self.stop_waiting(next, deadline);
        }
        self.begin(next.id, next.rule, now);
        Some(next.id)
    }

    /// An estimate of the time until a request that is queued now would begin.
    fn retry_after(&self, rule: usize) -> RetryAfter {
        RetryAfter(self.gates[rule].turn_in().max(self.all.turn_in()))
    }
}
