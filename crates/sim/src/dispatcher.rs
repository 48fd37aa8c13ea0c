//! The dispatcher: a [`Relay`](watari_relay::Relay) for each client. The glue mirrors `crates/dispatcher`: this file
//! `messages.rs`, `table.rs` and `upgrade.rs`, `relayed` `relay.rs` and `direction.rs`, `legs` `legs.rs`.

mod legs;
mod relayed;

use std::collections::BTreeMap;

use watari_handoff::{ArbiterEvent, Offer};
use watari_relay::Input;
use watari_values::{ConnectionId, NodeName};
use watari_wire::{AgentToDispatcher, DispatcherToAgent, Leave, LegKey};

use self::legs::Legs;
use self::relayed::Relayed;
use crate::agent::{DISPATCHER, name, node};
use crate::message::Message;
use crate::network::{Network, NodeId};
use crate::sabotage::Sabotage;
use crate::socket::Socket;

pub(crate) struct Dispatcher {
    network: Network,
    sabotage: Option<Sabotage>,
    legs: Legs,
    ids: Ids,
    /// By the number of the client.
    relayed: BTreeMap<u64, Relayed>,
}

/// Gives connections their ids.
pub(crate) struct Ids {
    /// Which start of the process this is.
    boot: u64,
    last: u64,
}

impl Ids {
    pub(crate) fn next(&mut self) -> ConnectionId {
        self.last += 1;
        ConnectionId { boot: self.boot, number: self.last }
    }
}

impl Dispatcher {
    pub(crate) fn new(network: Network, boot: u64, sabotage: Option<Sabotage>) -> Self {
        let legs = Legs::new(network.clone());
        Self { network, sabotage, legs, ids: Ids { boot, last: 0 }, relayed: BTreeMap::new() }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.relayed.is_empty()
    }

    /// An agent has a link, and gives a key for prefaces.
    pub(crate) fn set_key(&mut self, agent: NodeId, key: &LegKey) {
        self.legs.set_key(agent, key);
    }

    pub(crate) fn link_down(&mut self, agent: NodeId) {
        self.legs.link_down(agent);
        for relayed in self.relayed.values_mut().filter(|relayed| *relayed.owner() == name(agent)) {
            if !self.legs.established.contains(&relayed.id()) {
                relayed.drive(Input::OwnerLost, &mut self.legs);
            }
        }
    }

    /// Relays a client to an agent. The connection may move to another right after the handshake. Without an agent, the
    /// client is refused.
    pub(crate) fn accept(&mut self, client: u64, socket: Socket) {
        let (Some(owner), Some(bulk)) = (self.legs.pick(None), self.legs.pick(None)) else { return };
        let bulk = self.network.random(|random| random.one_in(2)).then(|| name(bulk));
        let relayed = Relayed::start((client, socket), self.ids.next(), (owner, bulk), self.sabotage, &mut self.legs);
        self.relayed.insert(client, relayed);
    }

    /// A new process takes all connections over. It gets no idle legs, and keys of its own from the agents.
    pub(crate) fn upgrade(&mut self) {
        for relayed in self.relayed.values_mut() {
            relayed.pass_on(&mut self.legs);
        }
        self.legs.forget_all();
    }

    /// Asks the owner of some connection to give it to some agent.
    pub(crate) fn order_move(&mut self, agents: &[NodeId]) {
        let random = |end: usize| self.network.random(|random| random.below(end as u64)) as usize;
        let Some(relayed) = self.relayed.values().nth(random(self.relayed.len())) else { return };
        let target = name(agents[random(agents.len())]);
        if target != *relayed.owner() {
            self.ask(relayed, target);
        }
    }

    /// Asks an agent to give all its connections to the others.
    pub(crate) fn drain(&mut self, agent: NodeId) {
        for relayed in self.relayed.values().filter(|relayed| *relayed.owner() == name(agent)) {
            let Some(target) = self.legs.pick(Some(agent)).filter(|target| *target != agent) else { return };
            self.network.count(|figures| figures.drained += 1);
            self.ask(relayed, name(target));
        }
    }

    fn ask(&self, relayed: &Relayed, target: NodeName) {
        let leave = Leave { connection: relayed.id(), target: Some(target), or_end: false };
        self.network.send(DISPATCHER, node(relayed.owner()), &Message::ToAgent(DispatcherToAgent::Leave(leave)));
    }

    pub(crate) fn on_message(&mut self, from: NodeId, message: &AgentToDispatcher) {
        if let AgentToDispatcher::Established(established) = message {
            self.legs.established.insert(established.connection);
            return;
        }
        let Some((connection, event)) = event(from, message) else { return };
        let relayed = self.relayed.values_mut().find(|relayed| relayed.id() == connection);
        match (relayed, &event) {
            (Some(relayed), _) => {
                let offer = match &event {
                    ArbiterEvent::Proposed { offer, .. } => Some(offer.clone()),
                    _ => None,
                };
                relayed.drive(Input::Agent(Box::new(event)), &mut self.legs);
                if let (Some(Sabotage::CommitWithoutHeld), Some(offer)) = (self.sabotage, offer) {
                    relayed.drive(Input::Agent(Box::new(ArbiterEvent::Held(offer))), &mut self.legs);
                }
            }
            (None, ArbiterEvent::Proposed { .. } | ArbiterEvent::Held(_)) => {
                let gone = Message::ToAgent(DispatcherToAgent::Gone(connection));
                self.network.send(DISPATCHER, from, &gone);
            }
            (None, _) => {}
        }
    }

    /// Continues all connections as far as possible.
    pub(crate) fn step(&mut self) {
        for relayed in self.relayed.values_mut() {
            relayed.step(&mut self.legs, &mut self.ids);
        }
        self.relayed.retain(|_, relayed| !relayed.is_over());
    }
}

/// What a message means for the arbiter of a connection.
fn event(from: NodeId, message: &AgentToDispatcher) -> Option<(ConnectionId, ArbiterEvent)> {
    let from = name(from);
    Some(match message.clone() {
        AgentToDispatcher::Propose(m) => {
            let (epoch, rx_offset, tail_offset, digest) = (m.epoch, m.rx_offset, m.tail_offset, m.digest);
            let offer = Offer { target: m.target, epoch, rx_offset, tail_offset, digest };
            (m.connection, ArbiterEvent::Proposed { from, offer })
        }
        AgentToDispatcher::Held(m) => {
            let (epoch, rx_offset, tail_offset, digest) = (m.epoch, m.rx_offset, m.tail_offset, m.digest);
            (m.connection, ArbiterEvent::Held(Offer { target: from, epoch, rx_offset, tail_offset, digest }))
        }
        AgentToDispatcher::Refused(m) => {
            (m.connection, ArbiterEvent::Refused { from, epoch: m.epoch, reason: m.reason })
        }
        AgentToDispatcher::Cancel(m) => {
            (m.connection, ArbiterEvent::Cancelled { from, epoch: m.epoch, reason: m.reason })
        }
        AgentToDispatcher::Final(m) => {
            (m.connection, ArbiterEvent::Final { from, epoch: m.epoch, tx_offset: m.tx_offset })
        }
        _ => return None,
    })
}
