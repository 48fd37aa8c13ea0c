//! Sends new sessions to the nodes that shall store them.

use std::collections::{BTreeMap, BTreeSet};

use watari_values::{NodeName, SessionKey};

use super::action::{Action, OWNERS, PENDING_MAX, Placement, PutId};
use super::message::{Request, SESSION_LEN_MAX, SESSIONS_MAX};
use super::pending::{Pending, id_of, request};
use super::ranks::{Ranks, first_other};
use super::turn::{Turn, Urgency};
use crate::store::Session;

/// All puts that wait for acknowledgements.
pub(super) struct Puts {
    placement: Placement,
    pending: Pending<Put>,
}

struct Put {
    id: u64,
    sessions: Vec<Placed>,
    copies: Vec<Copy>,
    /// The number of copies ever sent.
    serial: u64,
    /// Whether [`Action::Stored`] was returned.
    is_reported: bool,
}

struct Placed {
    key: SessionKey,
    session: Session,
    owners: Vec<NodeName>,
}

/// One message to one node.
struct Copy {
    request: u64,
    to: NodeName,
    /// The sessions of this message, as indices into those of the put.
    places: Vec<usize>,
    tries: u32,
    fate: Fate,
}

enum Fate {
    Waiting { again_ms: u64 },
    Acknowledged,
    GivenUp,
}

/// The state of a session at its owners, the worst first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum CopyState {
    /// No owner has it, and no try is left.
    Lost,
    Waiting,
    /// An owner has it, or this node is the only owner.
    Safe,
}

/// The number of times that a copy is sent,
const TRIES: u32 = 5;
/// and the milliseconds until the second time. Each pause is twice as long as the one before.
const PAUSE_MS: u64 = 50;

impl Puts {
    pub(super) fn new(placement: Placement) -> Self {
        Self { placement, pending: Pending::default() }
    }

    pub(super) fn start(&mut self, turn: &mut Turn<'_>, sessions: Vec<(SessionKey, Session)>) -> PutId {
        let id = self.pending.new_id();
        let mut put = Put::new(id, turn.ranks(), sessions);
        put.send_missing(turn, self.placement);
        if self.pending.len() < PENDING_MAX {
            self.go_on(turn, put);
        } else {
            turn.counters().puts_over_limit += 1;
            turn.actions.push(Action::Stored(PutId(id)));
        }
        PutId(id)
    }

    pub(super) fn on_stored(&mut self, turn: &mut Turn<'_>, from: &NodeName, request: u64) {
        if let Some(mut put) = self.pending.take(id_of(request)) {
            put.acknowledge(from, request);
            self.go_on(turn, put);
        }
    }

    pub(super) fn on_left(&mut self, turn: &mut Turn<'_>, left: &BTreeSet<NodeName>) {
        for id in self.pending.select(|put| put.concerns(left)) {
            if let Some(mut put) = self.pending.take(id) {
                put.replace(turn.ranks(), left);
                put.send_missing(turn, self.placement);
                self.go_on(turn, put);
            }
        }
    }

    pub(super) fn on_timer(&mut self, turn: &mut Turn<'_>) {
        while let Some(mut put) = self.pending.take_due(turn.now.ms) {
            put.send_due(turn);
            self.go_on(turn, put);
        }
    }

    pub(super) fn next_timer(&self) -> Option<u64> {
        self.pending.next_due()
    }

    /// Returns [`Action::Stored`] if the put is settled, and waits for the copies that have no response yet.
    fn go_on(&mut self, turn: &mut Turn<'_>, mut put: Put) {
        put.notify(turn);
        if let Some(due_ms) = put.due_ms() {
            self.pending.insert(put.id, due_ms, put);
        }
    }
}

impl Put {
    fn new(id: u64, ranks: &Ranks, sessions: Vec<(SessionKey, Session)>) -> Self {
        let placed = |(key, session)| Placed { key, session, owners: ranks.first(&key, OWNERS) };
        let sessions = sessions.into_iter().map(placed).collect();
        Self { id, sessions, copies: Vec::new(), serial: 0, is_reported: false }
    }

    /// Sends each session to those of its targets that no copy is on its way to.
    fn send_missing(&mut self, turn: &mut Turn<'_>, placement: Placement) {
        let mut missing: BTreeMap<NodeName, Vec<usize>> = BTreeMap::new();
        for (place, placed) in self.sessions.iter().enumerate() {
            for to in placed.targets(turn.ranks(), placement) {
                if !self.copies.iter().any(|copy| copy.to == to && copy.places.contains(&place)) {
                    missing.entry(to).or_default().push(place);
                }
            }
        }
        for (to, places) in &missing {
            for places in places.chunks(SESSIONS_MAX) {
                self.send_new(turn, to, places);
            }
        }
    }

    /// Whether the handshake waits for `to` rather than for another owner.
    fn is_awaited(&self, me: &NodeName, to: &NodeName, places: &[usize]) -> bool {
        places.iter().any(|place| first_other(&self.sessions[*place].owners, me) == Some(to))
    }

    fn send_new(&mut self, turn: &mut Turn<'_>, to: &NodeName, places: &[usize]) {
        self.serial += 1;
        let request = request(self.id, self.serial);
        let mut copy = Copy { request, to: to.clone(), places: places.to_vec(), tries: 0, fate: Fate::GivenUp };
        let urgency = if self.is_awaited(turn.ranks().me(), to, places) { Urgency::Now } else { Urgency::Soon };
        copy.send(turn, &self.sessions, urgency);
        self.copies.push(copy);
    }

    fn send_due(&mut self, turn: &mut Turn<'_>) {
        for copy in &mut self.copies {
            match copy.fate {
                Fate::Waiting { again_ms } if again_ms > turn.now.ms => {}
                Fate::Waiting { .. } if copy.tries < TRIES => copy.send(turn, &self.sessions, Urgency::Now),
                Fate::Waiting { .. } => copy.fate = Fate::GivenUp,
                Fate::Acknowledged | Fate::GivenUp => {}
            }
        }
    }

    fn acknowledge(&mut self, from: &NodeName, request: u64) {
        if let Some(copy) = self.copies.iter_mut().find(|copy| copy.request == request && copy.to == *from) {
            copy.fate = Fate::Acknowledged;
        }
    }

    fn concerns(&self, nodes: &BTreeSet<NodeName>) -> bool {
        self.copies.iter().any(|copy| nodes.contains(&copy.to))
            || self.sessions.iter().any(|placed| placed.is_at(nodes))
    }

    /// Selects new owners in place of nodes that have left.
    fn replace(&mut self, ranks: &Ranks, left: &BTreeSet<NodeName>) {
        self.copies.retain(|copy| !left.contains(&copy.to));
        for placed in self.sessions.iter_mut().filter(|placed| placed.is_at(left)) {
            placed.owners = ranks.first(&placed.key, OWNERS);
        }
    }

    fn notify(&mut self, turn: &mut Turn<'_>) {
        let me = turn.ranks().me();
        let standings: Vec<_> = (0..self.sessions.len()).map(|place| self.standing(me, place)).collect();
        if self.is_reported || standings.contains(&CopyState::Waiting) {
            return;
        }
        if standings.contains(&CopyState::Lost) {
            turn.counters().puts_not_acknowledged += 1;
        }
        self.is_reported = true;
        turn.actions.push(Action::Stored(PutId(self.id)));
    }

    fn standing(&self, me: &NodeName, place: usize) -> CopyState {
        let owners = &self.sessions[place].owners;
        if owners.iter().all(|owner| owner == me) {
            return CopyState::Safe;
        }
        let copies = self.copies.iter().filter(|copy| copy.places.contains(&place) && owners.contains(&copy.to));
        copies.map(Copy::standing).max().unwrap_or(CopyState::Lost)
    }

    fn due_ms(&self) -> Option<u64> {
        let waiting = self.copies.iter().filter_map(|copy| match copy.fate {
            Fate::Waiting { again_ms } => Some(again_ms),
            Fate::Acknowledged | Fate::GivenUp => None,
        });
        waiting.min()
    }
}

impl Placed {
    /// The nodes that shall store the session. One that is too long for a message stays at this node.
    fn targets(&self, ranks: &Ranks, placement: Placement) -> Vec<NodeName> {
        if self.session.secret.as_slice().len() > SESSION_LEN_MAX {
            return Vec::new();
        }
        match placement {
            Placement::Push => ranks.members().cloned().collect(),
            Placement::Owner => self.owners.iter().filter(|owner| *owner != ranks.me()).cloned().collect(),
        }
    }

    /// Whether one of `nodes` is an owner.
    fn is_at(&self, nodes: &BTreeSet<NodeName>) -> bool {
        self.owners.iter().any(|owner| nodes.contains(owner))
    }
}

impl Copy {
    fn send(&mut self, turn: &mut Turn<'_>, sessions: &[Placed], urgency: Urgency) {
        self.fate = Fate::Waiting { again_ms: turn.now.ms.saturating_add(PAUSE_MS << self.tries) };
        self.tries += 1;
        let placed = self.places.iter().map(|place| &sessions[*place]);
        let sessions = placed.map(|placed| turn.to_send(placed.key, &placed.session)).collect();
        turn.request(&self.to, self.request, Request::Put(sessions), urgency);
    }

    fn standing(&self) -> CopyState {
        match self.fate {
            Fate::Waiting { .. } => CopyState::Waiting,
            Fate::Acknowledged => CopyState::Safe,
            Fate::GivenUp => CopyState::Lost,
        }
    }
}
