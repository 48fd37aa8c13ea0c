//! An agent: connections that it serves, gives away, holds and ends.
//!
//! The decisions are those of `watari_handoff::{Source, Target}`, `watari_connection`, `watari_handover`,
//! `watari_anchor` and `watari_stream`. The glue mirrors `crates/agent`:
//!
//! | here | there |
//! | --- | --- |
//! | this file | `accept/legs.rs`, `node` |
//! | `handshaking` | `connection/handshake.rs` |
//! | `serving` | `connection/http1.rs` |
//! | `site`, `open_response` | `connection/site_service.rs`, `crates/proxy` |
//! | `preparations`, `tunnel` | the files of that name in `connection` |
//! | `sessions` | `sessions` |
//! | `anchors` | `handoff/anchors.rs`, `handoff/anchored_stream.rs` |
//! | `source`, `target`, `ending` | the files of that name in `handoff` |

mod anchors;
mod ending;
mod handshaking;
mod open_response;
mod owned;
mod preparations;
mod serving;
mod sessions;
mod site;
mod source;
mod target;
mod tunnel;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use watari_handoff::{SourceEvent, TargetEvent};
use watari_values::{ConnectionId, NodeName};
use watari_wire::leg::{Accepted, Kind, LEG_FREE, LegVerifier, PREFACE_LEN_MAX};
use watari_wire::{AgentToDispatcher, DispatcherToAgent, LegKept, LegKey};

use self::anchors::Anchors;
use self::handshaking::Handshaking;
use self::owned::{About, Owned, Step};
use self::preparations::Preparations;
pub(crate) use self::sessions::{Mode, SessionNames, Sessions, Sharing};
pub(crate) use self::site::Origins;
use self::site::SiteService;
use self::target::Arrival;
use self::tunnel::AnchorRelay;
use crate::ledger::Ledger;
use crate::message::Message;
use crate::network::{Network, NodeId};
use crate::sabotage::Sabotage;
use crate::socket::Socket;

/// The dispatcher's node.
pub(crate) const DISPATCHER: NodeId = 0;

/// The time between two copies of a message that waits for an answer.
const RETRY: Duration = Duration::from_millis(200);
/// The time from the fence to the loss of a connection without a decision. Longer than the dispatcher's limit.
const FENCE: Duration = Duration::from_secs(8);
/// The time that a target waits for a decision. Longer than [`FENCE`].
const HOLD: Duration = Duration::from_secs(12);

/// What the parts of an agent share.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) network: Network,
    pub(crate) node: NodeId,
    pub(crate) ledger: Ledger,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) origins: Origins,
    pub(crate) sessions: Rc<Sessions>,
    pub(crate) anchors: Rc<Anchors>,
    /// What this agent relays as an anchor.
    relays: Rc<RefCell<Vec<AnchorRelay>>>,
}

/// The address of a client, for prefaces.
pub(crate) fn client_address(number: u64) -> SocketAddr {
    ([192, 0, 2, 1], number as u16).into()
}

/// The name of a node.
pub(crate) fn name(node: NodeId) -> NodeName {
    NodeName::new(&if node == DISPATCHER { "d".to_owned() } else { format!("a{node}") }).expect("a letter and digits")
}

pub(crate) fn node(name: &NodeName) -> NodeId {
    name.as_str().trim_start_matches(['a', 'd']).parse().unwrap_or(DISPATCHER)
}

pub(crate) struct Agent {
    site: Site,
    verifier: LegVerifier,
    /// Legs without a complete preface, and the bytes of it.
    unidentified: Vec<(Socket, Vec<u8>)>,
    owned: Vec<Owned>,
    held: Vec<Arrival>,
    preparations: Preparations,
    /// The next wake-up that is scheduled.
    wakes: Option<Duration>,
}

impl Agent {
    pub(crate) fn new(site: Site) -> Self {
        let verifier = LegVerifier::new(name(site.node));
        Self {
            verifier,
            unidentified: Vec::new(),
            owned: Vec::new(),
            held: Vec::new(),
            preparations: Preparations::new(site.clone()),
            wakes: None,
            site,
        }
    }

    /// The key for the dispatcher's legs.
    pub(crate) fn set_key(&mut self, key: &LegKey) {
        self.verifier.rotate(&name(DISPATCHER), key);
    }

    pub(crate) fn link_up(&self, agent: NodeId) {
        self.site.sessions.link_up(agent);
    }

    pub(crate) fn link_down(&self, agent: NodeId) {
        self.site.sessions.link_down(agent);
    }

    pub(crate) fn accept(&mut self, leg: Socket) {
        self.unidentified.push((leg, Vec::new()));
    }

    pub(crate) fn on_message(&mut self, from: NodeId, message: &Message) {
        match message {
            Message::Prepare { connection, number, rest, anchor } => {
                self.preparations.on_prepare(from, *connection, *number, (rest, *anchor));
            }
            Message::Prepared { connection, number, is_refused } => {
                for owned in &mut self.owned {
                    if let Owned::Serving(serving) = owned
                        && serving.id() == *connection
                    {
                        serving.on_prepared(from, *number, *is_refused);
                    }
                }
            }
            Message::Ship(shipped) => self.on_ship(from, shipped),
            Message::Rest(rest) => {
                for arrival in self.held.iter_mut().filter(|arrival| arrival.id() == rest.connection) {
                    arrival.on_rest(rest);
                }
            }
            Message::ToAgent(message) => self.on_order(message),
            Message::TicketSeeds(seeds) => self.site.sessions.on_seeds(from, seeds),
            Message::TicketSeedWanted(seed) => self.site.sessions.on_wanted(from, *seed),
            Message::Session(message) => self.site.sessions.on_session_message(from, message),
            Message::Anchored(message) => self.site.anchors.on_message(from, message),
            Message::ToDispatcher(_) => {}
        }
        self.held.retain(Arrival::is_held);
    }

    fn on_order(&mut self, message: &DispatcherToAgent) {
        match message {
            DispatcherToAgent::Leave(leave) => {
                for owned in &mut self.owned {
                    if let (Owned::Serving(serving), Some(target)) = (owned, &leave.target)
                        && serving.id() == leave.connection
                    {
                        serving.leave(target.clone());
                    }
                }
            }
            DispatcherToAgent::Freeze(freeze) => {
                let event = SourceEvent::Freeze { epoch: freeze.epoch, rx_offset: freeze.rx_offset };
                self.tell_source(freeze.connection, &event);
            }
            DispatcherToAgent::Committed(decided) => {
                self.tell_source(decided.connection, &SourceEvent::Committed(decided.epoch));
            }
            DispatcherToAgent::LegKept(kept) => self.on_leg_kept(kept),
            DispatcherToAgent::Aborted(aborted) => {
                let (epoch, reason) = (aborted.epoch, aborted.reason);
                self.tell_source(aborted.connection, &SourceEvent::Aborted(epoch, reason));
                self.tell_target(aborted.connection, &TargetEvent::Aborted(epoch));
            }
            // Its dispatchers do not change.
            DispatcherToAgent::DetachLeg(_) | DispatcherToAgent::AttachLeg(_) => {}
            DispatcherToAgent::Gone(connection) => {
                self.tell_source(*connection, &SourceEvent::Gone);
                self.tell_target(*connection, &TargetEvent::Gone);
            }
        }
    }

    /// The end of a connection, or a move.
    fn on_leg_kept(&mut self, kept: &LegKept) {
        for owned in &mut self.owned {
            match owned {
                Owned::Ending(ending) if ending.about.id == kept.connection && ending.about.tenure == kept.epoch => {
                    return ending.cut(kept.rx_offset);
                }
                Owned::Fenced(departure) if departure.id() == kept.connection => departure.leg_kept(kept.rx_offset),
                _ => {}
            }
        }
        self.tell_source(kept.connection, &SourceEvent::Committed(kept.epoch));
    }

    /// The later departure replaces an earlier one of the same connection.
    fn tell_source(&mut self, id: ConnectionId, event: &SourceEvent) {
        let departures = self.owned.iter_mut().filter_map(|owned| match owned {
            Owned::Fenced(departure) if departure.id() == id => Some(departure),
            _ => None,
        });
        if let Some(departure) = departures.max_by_key(|departure| departure.tenure()) {
            departure.handle(event.clone());
        }
    }

    fn tell_target(&mut self, id: ConnectionId, event: &TargetEvent) {
        for arrival in self.held.iter_mut().filter(|arrival| arrival.id() == id) {
            arrival.handle(event);
        }
    }

    fn on_ship(&mut self, from: NodeId, shipped: &crate::message::Shipped) {
        let (id, epoch) = (shipped.ship.connection, shipped.ship.epoch);
        let is_held = self.held.iter().any(|arrival| arrival.id() == id && arrival.epoch() >= epoch);
        let is_owned = self.owned.iter().map(Owned::identity).any(|(owned, last)| owned == id && last >= epoch);
        if is_held || is_owned {
            return;
        }
        self.held.retain(|arrival| arrival.id() != id);
        let prepared = self.preparations.take(from, id, shipped.number);
        self.held.extend(Arrival::hold(&self.site, shipped, prepared));
    }

    /// Continues all connections as far as possible.
    pub(crate) fn step(&mut self) {
        self.site.sessions.step();
        self.read_prefaces();
        let mut cx = Context::from_waker(Waker::noop());
        let owned = std::mem::take(&mut self.owned);
        for owned in owned {
            let (owned, free) = owned.step(&mut cx);
            self.owned.extend(owned);
            if let Some(leg) = free.filter(|leg| leg.write(&[LEG_FREE]).is_ok_and(|written| written == 1)) {
                self.unidentified.push((leg, Vec::new()));
            }
        }
        for arrival in &mut self.held {
            arrival.expire();
        }
        self.held.retain(Arrival::is_held);
        self.preparations.step(&mut cx);
        self.relay(&mut cx);
        self.site.anchors.tick();
        self.schedule_wake();
    }

    /// Relays what this agent relays as an anchor.
    fn relay(&mut self, cx: &mut Context<'_>) {
        let relays = std::mem::take(&mut *self.site.relays.borrow_mut());
        for mut relay in relays {
            if relay.poll(cx).is_pending() {
                self.site.relays.borrow_mut().push(relay);
            }
        }
    }

    /// Whether no connection and no stream is left.
    pub(crate) fn is_idle(&self) -> bool {
        self.owned.is_empty() && self.site.relays.borrow().is_empty() && self.site.anchors.is_empty()
    }

    fn schedule_wake(&mut self) {
        let now = self.site.network.now();
        let deadlines = self.owned.iter().map(Owned::deadline).chain(self.held.iter().map(Arrival::deadline));
        let Some(first) = deadlines.chain(self.site.anchors.deadline()).chain(self.site.sessions.deadline()).min()
        else {
            return;
        };
        if self.wakes.is_none_or(|wakes| wakes <= now || first < wakes) {
            self.wakes = Some(first);
            self.site.network.wake_in(self.site.node, first.saturating_sub(now));
        }
    }

    fn read_prefaces(&mut self) {
        let waiting = std::mem::take(&mut self.unidentified);
        for (mut leg, mut received) in waiting {
            let has_ended = loop {
                match leg.read(PREFACE_LEN_MAX) {
                    Some(Ok(bytes)) if !bytes.is_empty() => received.extend(bytes),
                    Some(_) => break true,
                    None => break false,
                }
            };
            match self.verifier.verify(&received) {
                Ok(Some(accepted)) => {
                    leg.reset_on_close();
                    self.begin(leg, &accepted, &received[accepted.len..]);
                }
                Ok(None) if !has_ended => self.unidentified.push((leg, received)),
                Ok(None) => {}
                Err(error) => self.site.network.note(|| format!("{} refuses a leg: {error}", self.site.node)),
            }
        }
    }

    fn begin(&mut self, leg: Socket, Accepted { preface, .. }: &Accepted, surplus: &[u8]) {
        let id = preface.connection;
        match &preface.kind {
            Kind::New { bulk } => {
                let bulk = bulk.clone().filter(|target| *target != name(self.site.node));
                let about = (id, preface.client);
                let handshaking = Handshaking::new(self.site.clone(), about, bulk, leg, surplus);
                self.owned.push(Owned::Handshaking(Box::new(handshaking)));
            }
            Kind::Commit { rx_offset, tail_offset } => {
                let (epoch, rx_offset, tail_offset) = (preface.epoch, *rx_offset, *tail_offset);
                let committed = TargetEvent::Committed { epoch, rx_offset, tail_offset };
                let at = self.held.iter_mut().position(|arrival| arrival.id() == id && arrival.activates(&committed));
                match at.map(|at| self.held.remove(at)) {
                    Some(arrival) => {
                        self.site.network.note(|| format!("{} activates {id} {epoch}", self.site.node));
                        self.owned.push(Owned::Serving(Box::new(arrival.into_serving(leg, surplus))));
                    }
                    None => self.site.network.note(|| format!("{} does not hold {id} {epoch}", self.site.node)),
                }
            }
            Kind::Continue { .. } | Kind::Check => {}
        }
    }
}

impl Site {
    pub(crate) fn new(
        (network, node): (Network, NodeId),
        ledger: Ledger,
        sabotage: Option<Sabotage>,
        origins: Origins,
        sessions: Rc<Sessions>,
    ) -> Self {
        let anchors = Anchors::new(network.clone(), node, sabotage);
        Self { network, node, ledger, sabotage, origins, sessions, anchors, relays: Rc::default() }
    }

    fn service(&self) -> SiteService {
        SiteService { site: self.clone(), agreed: Rc::default() }
    }

    fn send(&self, to: NodeId, message: &Message) {
        self.network.send(self.node, to, message);
    }

    fn send_to_dispatcher(&self, message: AgentToDispatcher) {
        self.send(DISPATCHER, &Message::ToDispatcher(message));
    }
}
