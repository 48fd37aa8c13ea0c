//! The sessions of an agent: ticket keys, stored sessions, and the search for what a client offers. Mirrors `sessions`
//! of `crates/agent`.

mod names;
mod tickets;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use watari_handshake::{Found, Miss, NewSession, Provided, SessionSource, Wanted};
use watari_session::{
    Action, Exchange, FoundSession, GetId, Message as SessionMessage, Now, Outcome, Placement, PutId, Request, Session,
    Source, Store, TicketSeed,
};
use watari_values::{NodeName, TicketSeedId};

pub(crate) use self::names::SessionNames;
use self::tickets::TicketRing;
use super::{name, node};
use crate::message::Message;
use crate::network::{Network, NodeId};
use crate::random::Random;
use crate::sabotage::Sabotage;

/// How long a session can be resumed. Longer than any client stays away.
const LIFETIME: Duration = Duration::from_mins(2);
/// The interval at which an agent makes a new seed of ticket keys.
const ROTATION: Duration = Duration::from_secs(7);
/// The interval at which keys are checked.
const KEEP: Duration = Duration::from_millis(250);
/// After this time, no client connects any more.
const KEEP_UNTIL: Duration = Duration::from_mins(1);
/// How long a handshake waits for a seed.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// How long a seed that no agent had is not requested again.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// How long an agent that starts waits for others.
const JOIN_MAX: Duration = Duration::from_secs(2);
/// Unix time at the start of a run, in seconds.
const START_S: u64 = 1_800_000_000;

/// How a cluster shares sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Tickets,
    Push,
    Owner,
}

/// The settings of sessions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sharing {
    pub(crate) mode: Mode,
    /// The memory for stored sessions at each agent, in bytes.
    pub(crate) memory_len: usize,
}

pub(crate) struct Sessions {
    network: Network,
    node: NodeId,
    sabotage: Option<Sabotage>,
    mode: Mode,
    names: Rc<SessionNames>,
    /// For handshakes.
    pub(super) offered: Arc<watari_handshake::Sessions>,
    ring: Arc<TicketRing>,
    exchange: RefCell<Exchange>,
    linked: RefCell<BTreeSet<NodeName>>,
    /// The number of agents in the cluster.
    agents: usize,
    started: Duration,
    /// Requested seeds, and when they were requested.
    asked: RefCell<BTreeMap<TicketSeedId, Duration>>,
    stored: RefCell<BTreeSet<PutId>>,
    found: RefCell<BTreeMap<GetId, (Vec<FoundSession>, Outcome)>>,
    next_keep: Cell<Duration>,
}

/// A search for the sessions or seeds that a handshake needs.
pub(super) enum Search {
    Seeds { wanted: Vec<TicketSeedId>, until: Duration },
    Sessions(GetId),
}

impl Sessions {
    pub(crate) fn new(
        (network, node): (Network, NodeId),
        (Sharing { mode, memory_len }, agents): (Sharing, usize),
        names: Rc<SessionNames>,
        sabotage: Option<Sabotage>,
    ) -> Rc<Self> {
        let random = Random::new(network.random(Random::next));
        let ring = Arc::new(TicketRing::new(random, START_S));
        let placement = if mode == Mode::Push { Placement::Push } else { Placement::Owner };
        let offered = Arc::new(watari_handshake::Sessions {
            tickets: (mode == Mode::Tickets).then(|| Arc::clone(&ring) as _),
            kept: true,
            lifetime: LIFETIME,
            tickets_per_handshake: 2,
            early_data: false,
        });
        let started = network.now();
        network.wake_in(node, Duration::ZERO);
        Rc::new(Self {
            exchange: RefCell::new(Exchange::new(name(node), placement, Store::new(memory_len))),
            network,
            node,
            sabotage,
            mode,
            names,
            offered,
            ring,
            linked: RefCell::default(),
            agents,
            started,
            asked: RefCell::default(),
            stored: RefCell::default(),
            found: RefCell::default(),
            next_keep: Cell::new(Duration::ZERO),
        })
    }

    pub(super) fn link_up(&self, agent: NodeId) {
        self.linked.borrow_mut().insert(name(agent));
        self.set_members();
        self.send_seeds(agent, self.ring.share());
    }

    pub(super) fn link_down(&self, agent: NodeId) {
        self.linked.borrow_mut().remove(&name(agent));
        self.set_members();
    }

    fn set_members(&self) {
        let members = self.linked.borrow().clone();
        let actions = self.exchange.borrow_mut().set_members(self.now(), &members);
        self.act(actions);
    }

    pub(super) fn on_session_message(&self, from: NodeId, message: &SessionMessage) {
        let actions = self.exchange.borrow_mut().on_message(self.now(), &name(from), message.clone());
        self.act(actions);
    }

    pub(super) fn on_seeds(&self, from: NodeId, seeds: &[TicketSeed]) {
        self.now();
        // If neither agent has a seed, the first by name makes one.
        if seeds.is_empty() && !self.ring.is_ready() && self.node < from {
            self.rotate();
        }
        let new = self.ring.merge(seeds.to_vec());
        self.network.count(|figures| figures.seeds_learned += new as u64);
    }

    pub(super) fn on_wanted(&self, from: NodeId, seed: TicketSeedId) {
        self.send_seeds(from, self.ring.share_one(seed));
    }

    /// Whether clients can get tickets, or do not need keys.
    pub(super) fn is_ready(&self) -> bool {
        self.mode != Mode::Tickets || self.ring.is_ready()
    }

    /// Starts to store the sessions of a handshake.
    pub(super) fn store(&self, made: Vec<NewSession>) -> PutId {
        let now = self.now();
        let expires = now.unix_s + LIFETIME.as_secs();
        let sessions = made.into_iter().map(|new| {
            let key = self.names.rename(&new.key);
            self.names.establish(key, &new.session);
            (key, Session { secret: new.session, expires, issuer: name(self.node) })
        });
        let (id, actions) = self.exchange.borrow_mut().put(now, sessions.collect());
        self.act(actions);
        id
    }

    pub(super) fn is_stored(&self, id: PutId) -> bool {
        self.stored.borrow_mut().remove(&id)
    }

    /// Starts to look for what a handshake needs.
    pub(super) fn look_for(&self, wanted: &Wanted) -> Search {
        let now = self.now();
        if wanted.sessions.is_empty() {
            let until = self.network.now() + LOOK_MAX;
            self.network.wake_in(self.node, LOOK_MAX);
            wanted.ticket_seeds.iter().for_each(|seed| self.ask(*seed));
            return Search::Seeds { wanted: wanted.ticket_seeds.clone(), until };
        }
        let keys = wanted.sessions.iter().map(|key| self.names.rename(key)).collect();
        let (id, actions) = self.exchange.borrow_mut().get(now, keys);
        self.act(actions);
        Search::Sessions(id)
    }

    /// The result, if the search has ended.
    pub(super) fn result(&self, search: &Search) -> Option<Provided> {
        match search {
            Search::Seeds { wanted, .. } if wanted.iter().all(|seed| self.ring.knows(*seed)) => {
                Some(Provided::default())
            }
            Search::Seeds { until, .. } => {
                let is_over = self.network.now() >= *until || self.linked.borrow().is_empty();
                is_over.then(|| Provided { miss: Some(Miss::Unreachable), ..Provided::default() })
            }
            Search::Sessions(id) => {
                let (found, outcome) = self.found.borrow_mut().remove(id)?;
                Some(self.provide(found, outcome))
            }
        }
    }

    fn provide(&self, found: Vec<FoundSession>, outcome: Outcome) -> Provided {
        let miss = match outcome {
            Outcome::Complete => None,
            Outcome::Unknown => Some(Miss::Unknown),
            Outcome::Unreachable => Some(Miss::Unreachable),
        };
        let found = found.into_iter().map(|FoundSession { key, session, source }| {
            let mut secret = session.secret;
            if !self.names.is_right(&key, &secret) {
                self.network.violation(format!("{} found another session under a key", self.node));
            }
            if self.sabotage == Some(Sabotage::OtherSessionFound) {
                secret = self.names.other(&key).unwrap_or(secret);
            }
            let source = match source {
                Source::Own => SessionSource::Here,
                Source::Here => SessionSource::Elsewhere,
                Source::Pulled => SessionSource::Pulled,
            };
            (self.names.original(&key), Found { session: secret, source })
        });
        Provided { found: found.collect(), miss, early_data: false }
    }

    /// Requests a seed from all agents, unless that was done recently.
    fn ask(&self, seed: TicketSeedId) {
        let now = self.network.now();
        let mut asked = self.asked.borrow_mut();
        asked.retain(|_, at| now < *at + ASK_AGAIN);
        if asked.insert(seed, now).is_none() {
            for agent in &*self.linked.borrow() {
                self.network.send(self.node, node(agent), &Message::TicketSeedWanted(seed));
            }
        }
    }

    fn send_seeds(&self, agent: NodeId, seeds: Vec<TicketSeed>) {
        if self.mode == Mode::Tickets && self.sabotage != Some(Sabotage::SeedsNotShared) {
            self.network.send(self.node, agent, &Message::TicketSeeds(seeds));
        }
    }

    fn rotate(&self) {
        let Some(seed) = self.ring.rotate() else { return };
        self.network.count(|figures| figures.rotations += 1);
        for agent in &*self.linked.borrow() {
            self.send_seeds(node(agent), self.ring.share_one(seed));
        }
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        let timer = self.exchange.borrow().next_timer().map(Duration::from_millis);
        let keep = Some(self.next_keep.get()).filter(|keep| self.mode == Mode::Tickets && *keep < KEEP_UNTIL);
        timer.into_iter().chain(keep).min()
    }

    /// Makes keys that are due, and repeats messages that were not answered.
    pub(super) fn step(&self) {
        let now = self.now();
        if self.exchange.borrow().next_timer().is_some_and(|due| due <= now.ms) {
            let actions = self.exchange.borrow_mut().on_timer(now);
            self.act(actions);
        }
        if self.mode != Mode::Tickets || self.network.now() < self.next_keep.get() {
            return;
        }
        self.next_keep.set(self.network.now() + KEEP);
        self.ring.advance();
        let is_joined = self.network.now() >= self.started + JOIN_MAX || self.linked.borrow().len() + 1 == self.agents;
        // The first agents of a cluster wait for each other's seeds.
        if (self.ring.is_ready() || is_joined && self.network.now() >= self.started + KEEP)
            && self.ring.is_due(ROTATION)
        {
            self.rotate();
        }
    }

    fn act(&self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(_, SessionMessage::Request(_, Request::Put(_)))
                | Action::SendSoon(_, SessionMessage::Request(_, Request::Put(_)))
                    if self.sabotage == Some(Sabotage::SessionNotSent) => {}
                Action::Send(to, message) | Action::SendSoon(to, message) => {
                    self.network.send(self.node, node(&to), &Message::Session(message));
                }
                Action::Stored(id) => {
                    self.stored.borrow_mut().insert(id);
                }
                Action::Found(id, sessions, outcome) => {
                    self.found.borrow_mut().insert(id, (sessions, outcome));
                }
                // No session of the simulation is for one use.
                Action::Spent(..) => {}
            }
        }
    }

    /// The agent's time. Clocks of agents differ by some seconds.
    fn now(&self) -> Now {
        let now = self.network.now();
        let unix_s = START_S + now.as_secs() + self.node as u64;
        self.ring.set_time(unix_s);
        Now { ms: now.as_millis() as u64, unix_s }
    }
}
