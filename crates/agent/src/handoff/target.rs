//! The target of a handoff: holds the connections that other agents ship here until the dispatcher decides. Drives
//! [`watari_handoff::Target`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpStream;
use tokio::time::Instant;
use watari_handoff::{Target, TargetAction, TargetEvent};
use watari_record::Connection;
use watari_stream::Parts;
use watari_sys::tcp;
use watari_values::{AbortReason, ConnectionId, Epoch, NodeName};
use watari_wire::{self as wire, Aborted, AgentToDispatcher, Refused, Rest, Ship};

use super::live::{About, BadShip, Live, import};
use super::registry::Registry;
use crate::leg::{Leg, LegTable};
use crate::node::metrics::Metrics;
use crate::node::peers::Peers;
use crate::node::slots::{Slot, Slots};
use crate::settings::current::CurrentSettings;

/// `R` continues the response in which a connection was shipped.
pub(crate) struct Arrivals<R> {
    reports: Reports,
    settings: Arc<CurrentSettings>,
    /// Connections that this node owns already.
    registry: Arc<Registry>,
    leg_table: Arc<LegTable>,
    /// A slot for each connection.
    slots: Arc<Slots>,
    /// Whether this node holds no more connections, because a successor of this process takes over.
    is_paused: AtomicBool,
    held: Mutex<Held<R>>,
}

/// Reports to dispatchers what is held and what is not, and counts it.
struct Reports {
    peers: Peers,
    metrics: Arc<Metrics>,
}

struct Held<R> {
    arrivals: HashMap<ConnectionId, Arrival<R>>,
    /// Bytes of the held connections' streams, in both directions.
    bytes: usize,
}

/// A held connection. It must not seal yet.
struct Arrival<R> {
    target: Target,
    connection: Connection,
    about: About,
    opened: Vec<u8>,
    unopened: Vec<u8>,
    tail: Vec<u8>,
    rx_offset: u64,
    tail_offset: u64,
    digest: [u8; 32],
    expires: Instant,
    slot: Slot,
    response: Option<InResponse<R>>,
}

/// The response in which a connection was shipped.
pub(crate) struct InResponse<R> {
    /// The digest of the whole message.
    pub(crate) digest: [u8; 32],
    /// The bytes of the response that came with it.
    pub(crate) len: usize,
    pub(crate) response: R,
}

/// A connection that this node owns since a commit.
pub(crate) struct Activated<R> {
    pub(crate) live: Live,
    pub(crate) slot: Slot,
    /// The response that is in progress.
    pub(crate) response: Option<R>,
}

impl<R> Arrivals<R> {
    pub(crate) fn new(
        peers: Peers,
        settings: Arc<CurrentSettings>,
        metrics: Arc<Metrics>,
        (registry, leg_table): (Arc<Registry>, Arc<LegTable>),
        slots: Arc<Slots>,
    ) -> Self {
        let held = Mutex::new(Held { arrivals: HashMap::new(), bytes: 0 });
        let (reports, is_paused) = (Reports { peers, metrics }, AtomicBool::new(false));
        Self { reports, settings, registry, leg_table, slots, is_paused, held }
    }

    /// Refuses all connections that are shipped from now on, or takes them again.
    pub(crate) fn pause(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Relaxed)
    }

    /// The number of connections that wait for a decision.
    pub(crate) fn len(&self) -> usize {
        self.held().arrivals.len()
    }

    /// Handles a shipped connection: holds it, or refuses it. `response` is in progress.
    pub(crate) fn on_ship(&self, ship: &Ship, response: Option<InResponse<R>>) {
        let (id, epoch) = (ship.connection, ship.epoch);
        let mut held = self.held();
        let known = held.arrivals.get(&id).is_some_and(|arrival| arrival.target.epoch() >= epoch);
        if known || self.registry.knows(id, epoch) {
            tracing::debug!(connection = %id, %epoch, "message ignored: the connection was shipped before");
            return;
        }
        let response_len = response.as_ref().map_or(0, |response| response.len);
        let len = ship.opened.as_slice().len() + ship.rest.as_slice().len() + ship.tail.len() + response_len;
        if self.is_paused()
            || held.arrivals.len() >= self.settings.limits().held_max
            || held.bytes + len > self.settings.limits().held_bytes_max
        {
            return self.reports.refuse(&ship.dispatcher, id, epoch, AbortReason::Full);
        }
        let Some(slot) = self.slots.take() else {
            return self.reports.refuse(&ship.dispatcher, id, epoch, AbortReason::Full);
        };
        let expires = Instant::now() + self.settings.limits().hold_timeout;
        let mut actions = Vec::new();
        match Arrival::new(ship, response, slot, expires, &mut actions) {
            Ok(arrival) => {
                arrival.send_actions(&self.reports, &actions);
                held.insert(id, arrival);
                self.reports.count_held(&held);
            }
            Err(error) => {
                tracing::warn!(connection = %id, %error, "the shipped state cannot be used");
                self.reports.refuse(&ship.dispatcher, id, epoch, AbortReason::BadState);
            }
        }
    }

    /// Refuses a shipped connection that this node cannot serve.
    pub(crate) fn refuse(&self, ship: &Ship, reason: AbortReason) {
        self.reports.refuse(&ship.dispatcher, ship.connection, ship.epoch, reason);
    }

    /// Handles more of the client's stream for a held connection.
    pub(crate) fn on_rest(&self, rest: &Rest) {
        let mut held = self.held();
        let held = &mut *held;
        let Some(arrival) = held.arrivals.get_mut(&rest.connection) else { return };
        let (epoch, from_offset, len) = (rest.epoch, rest.from_offset, rest.bytes.len());
        if held.bytes + len > self.settings.limits().held_bytes_max {
            return self.reports.refuse(&arrival.about.dispatcher.get(), rest.connection, epoch, AbortReason::Full);
        }
        let mut actions = Vec::new();
        arrival.target.handle(&TargetEvent::Rest { epoch, from_offset, len: len as u64 }, &mut actions);
        if actions.contains(&TargetAction::Keep) {
            arrival.unopened.extend_from_slice(&rest.bytes);
            arrival.rx_offset += len as u64;
            held.bytes += len;
        }
        arrival.send_actions(&self.reports, &actions);
        if actions.contains(&TargetAction::Drop) {
            held.drop_arrival(&self.reports, rest.connection);
        }
    }

    pub(crate) fn on_aborted(&self, from: &NodeName, aborted: &Aborted) {
        self.decide(from, aborted.connection, &TargetEvent::Aborted(aborted.epoch));
    }

    pub(crate) fn on_gone(&self, from: &NodeName, connection: ConnectionId) {
        self.decide(from, connection, &TargetEvent::Gone);
    }

    /// Sends a dispatcher with a new link the list of connections held for it. It may have lost the previous messages.
    pub(crate) fn on_link_up(&self, dispatcher: &NodeName) {
        for arrival in self.held().arrivals.values().filter(|arrival| arrival.about.dispatcher.is(dispatcher)) {
            let (epoch, rx_offset, tail_offset) = (arrival.target.epoch(), arrival.rx_offset, arrival.tail_offset);
            arrival.send_actions(&self.reports, &[TargetAction::Held { epoch, rx_offset, tail_offset }]);
        }
    }

    /// Drops connections that have waited for a decision longer than `hold_timeout`.
    pub(crate) fn expire(&self) {
        let now = Instant::now();
        let mut held = self.held();
        let expired = |arrival: &Arrival<R>| arrival.expires <= now;
        let ids: Vec<_> = held.arrivals.iter().filter(|(_, arrival)| expired(arrival)).map(|(id, _)| *id).collect();
        for id in ids {
            tracing::info!(connection = %id, "hold ended: the dispatcher did not decide in time");
            held.handle(&self.reports, id, &TargetEvent::Expired);
        }
    }

    /// Handles the dispatcher's commit: this node now owns the connection. `surplus` has the bytes that followed the
    /// preface. Returns `None` and resets the leg if the connection is not held, or not as `committed` says.
    pub(crate) fn activate(
        &self,
        leg: TcpStream,
        surplus: &[u8],
        dispatcher: &NodeName,
        id: ConnectionId,
        committed: &TargetEvent,
    ) -> Option<Activated<R>> {
        let mut held = self.held();
        let fits = held.arrivals.get_mut(&id).is_some_and(|arrival| arrival.activates(dispatcher, committed));
        let arrival = fits.then(|| held.remove(id)).flatten();
        self.reports.count_held(&held);
        let Some(arrival) = arrival else {
            tracing::warn!(connection = %id, ?committed, "leg refused: the move is committed, but this agent does not hold the connection");
            self.reports.metrics.count_leg_refused("not_held");
            tcp::reset_on_close(&leg);
            return None;
        };
        tracing::debug!(connection = %id, from = %arrival.about.handshake_node, "connection moved to this agent");
        self.reports.metrics.moved_in.inc();
        Some(arrival.activate(leg, surplus, &self.leg_table))
    }

    fn decide(&self, from: &NodeName, id: ConnectionId, event: &TargetEvent) {
        let mut held = self.held();
        if held.arrivals.get(&id).is_some_and(|arrival| arrival.about.dispatcher.is(from)) {
            held.handle(&self.reports, id, event);
        }
    }

    fn held(&self) -> MutexGuard<'_, Held<R>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reports {
    fn refuse(&self, dispatcher: &NodeName, connection: ConnectionId, epoch: Epoch, reason: AbortReason) {
        tracing::info!(%connection, %epoch, reason = reason.as_str(), "refused to hold a connection");
        self.metrics.count_refused(reason);
        self.peers.send(dispatcher, AgentToDispatcher::Refused(Refused { connection, epoch, reason }));
    }

    fn count_held<R>(&self, held: &Held<R>) {
        self.metrics.set_held(held.arrivals.len());
    }
}

impl<R> Held<R> {
    fn insert(&mut self, id: ConnectionId, arrival: Arrival<R>) {
        self.remove(id);
        self.bytes += arrival.len();
        self.arrivals.insert(id, arrival);
    }

    fn remove(&mut self, id: ConnectionId) -> Option<Arrival<R>> {
        let arrival = self.arrivals.remove(&id)?;
        self.bytes -= arrival.len();
        Some(arrival)
    }

    fn handle(&mut self, reports: &Reports, id: ConnectionId, event: &TargetEvent) {
        let Some(arrival) = self.arrivals.get_mut(&id) else { return };
        let mut actions = Vec::new();
        arrival.target.handle(event, &mut actions);
        arrival.send_actions(reports, &actions);
        if actions.contains(&TargetAction::Drop) {
            self.drop_arrival(reports, id);
        }
    }

    fn drop_arrival(&mut self, reports: &Reports, id: ConnectionId) {
        self.remove(id);
        reports.count_held(self);
    }
}

impl<R> Arrival<R> {
    fn new(
        ship: &Ship,
        response: Option<InResponse<R>>,
        slot: Slot,
        expires: Instant,
        actions: &mut Vec<TargetAction>,
    ) -> Result<Self, BadShip> {
        let connection = import(ship)?;
        Ok(Self {
            target: Target::hold(ship.epoch, ship.rx_offset, ship.tail_offset, actions),
            connection,
            about: About::of_shipped(ship, ship.epoch, ship.moves.saturating_add(1)),
            opened: ship.opened.as_slice().to_vec(),
            unopened: ship.rest.as_slice().to_vec(),
            tail: ship.tail.clone(),
            rx_offset: ship.rx_offset,
            tail_offset: ship.tail_offset,
            digest: response.as_ref().map_or_else(|| ship.digest(), |response| response.digest),
            expires,
            slot,
            response,
        })
    }

    fn len(&self) -> usize {
        let response_len = self.response.as_ref().map_or(0, |response| response.len);
        self.opened.len() + self.unopened.len() + self.tail.len() + response_len
    }

    /// Whether this commit makes this node the owner of the connection.
    fn activates(&mut self, dispatcher: &NodeName, committed: &TargetEvent) -> bool {
        let mut actions = Vec::new();
        if self.about.dispatcher.is(dispatcher) {
            self.target.handle(committed, &mut actions);
        }
        actions == [TargetAction::Activate]
    }

    fn send_actions(&self, reports: &Reports, actions: &[TargetAction]) {
        let (connection, dispatcher) = (self.about.id, &self.about.dispatcher.get());
        for action in actions {
            match *action {
                TargetAction::Held { epoch, rx_offset, tail_offset } => {
                    let held = wire::Held { connection, epoch, rx_offset, tail_offset, digest: self.digest };
                    reports.peers.send(dispatcher, AgentToDispatcher::Held(held));
                }
                TargetAction::Refuse(epoch, reason) => reports.refuse(dispatcher, connection, epoch, reason),
                // The owner of the arrival carries these out.
                TargetAction::Keep | TargetAction::Activate | TargetAction::RefuseLeg | TargetAction::Drop => {}
            }
        }
    }

    fn activate(self, leg: TcpStream, surplus: &[u8], table: &Arc<LegTable>) -> Activated<R> {
        let mut unopened = self.unopened;
        unopened.extend_from_slice(surplus);
        let (received, sent) = (self.rx_offset + surplus.len() as u64, self.tail_offset);
        let parts = Parts {
            io: Leg::new(leg, self.about.carried(0, received, sent), table),
            connection: self.connection,
            opened: self.opened,
            received,
            unopened,
            unsent: self.tail,
            sent,
        };
        let response = self.response.map(|response| response.response);
        Activated { live: Live { about: self.about, parts }, slot: self.slot, response }
    }
}

#[cfg(test)]
mod tests;
