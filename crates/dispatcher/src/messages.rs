//! Handles the messages of agents and of other dispatchers.

use std::sync::Arc;

use watari_handoff::{ArbiterEvent, Offer};
use watari_relay::Input;
use watari_values::{ConnectionId, DispatcherChange, NodeName, StayReason};
use watari_wire::{AgentToDispatcher, DispatcherToAgent, DispatcherToDispatcher, Established, LegDetached, Message};

use crate::change::Answer;
use crate::drains::AskedBy;
use crate::shared::DispatcherShared;
use crate::table::RelayMessage;

impl DispatcherShared {
    pub(crate) fn on_message(self: &Arc<Self>, from: &NodeName, message: &Message) {
        let message = match message {
            Message::AgentToDispatcher(message) => message,
            Message::DispatcherToDispatcher(message) => return self.on_dispatcher_message(from, message),
            // For the agent and the candidates of this node.
            Message::DispatcherToAgent(_) | Message::AgentToAgent(_) | Message::Takeover(_) => return,
        };
        let name = || from.clone();
        let (connection, event) = match message {
            AgentToDispatcher::LegKey(key) => return self.agents.set_key(from, key),
            AgentToDispatcher::Established(established) => return self.on_established(from, established),
            AgentToDispatcher::Propose(propose) => {
                let offer = Offer {
                    target: propose.target.clone(),
                    epoch: propose.epoch,
                    rx_offset: propose.rx_offset,
                    tail_offset: propose.tail_offset,
                    digest: propose.digest,
                };
                (propose.connection, ArbiterEvent::Proposed { from: name(), offer })
            }
            AgentToDispatcher::Held(held) => {
                let offer = Offer {
                    target: name(),
                    epoch: held.epoch,
                    rx_offset: held.rx_offset,
                    tail_offset: held.tail_offset,
                    digest: held.digest,
                };
                (held.connection, ArbiterEvent::Held(offer))
            }
            AgentToDispatcher::Refused(refused) => {
                let (epoch, reason) = (refused.epoch, refused.reason);
                (refused.connection, ArbiterEvent::Refused { from: name(), epoch, reason })
            }
            AgentToDispatcher::Cancel(cancel) => {
                let (epoch, reason) = (cancel.epoch, cancel.reason);
                (cancel.connection, ArbiterEvent::Cancelled { from: name(), epoch, reason })
            }
            AgentToDispatcher::Final(end) => {
                let (epoch, tx_offset) = (end.epoch, end.tx_offset);
                (end.connection, ArbiterEvent::Final { from: name(), epoch, tx_offset })
            }
            AgentToDispatcher::Stays(stays) => return self.table.stays(from, stays.connection, stays.reason),
            AgentToDispatcher::Tunnel(connection) => return self.table.stays(from, *connection, StayReason::Tunnel),
            AgentToDispatcher::Draining => return self.drain(from, AskedBy::Itself),
            AgentToDispatcher::LegDetached(detached) => return self.on_leg_detached(from, detached),
            AgentToDispatcher::LegAttached(change) => return self.on_leg_attached(from, *change),
        };
        if !self.table.send(connection, event) {
            self.answer_for_unknown(from, connection, message);
        }
    }

    fn on_dispatcher_message(self: &Arc<Self>, from: &NodeName, message: &DispatcherToDispatcher) {
        match message {
            DispatcherToDispatcher::TakeWanted(wanted) => self.on_take_wanted(from, wanted),
            DispatcherToDispatcher::TakeReady(ready) => self.on_take_ready(from, ready),
            DispatcherToDispatcher::TakeComing(coming) => self.on_take_coming(from, coming),
            DispatcherToDispatcher::StatePart(part) => self.on_state_part(from, part),
            DispatcherToDispatcher::TakeHeld(change) => self.changes.answer(from, *change, Answer::Held),
            DispatcherToDispatcher::TakeRefused(refused) => {
                self.changes.answer(from, refused.change, Answer::Refused(refused.reason));
            }
            DispatcherToDispatcher::Given(change) => self.on_given(from, *change),
            DispatcherToDispatcher::Taken(change) => self.changes.answer(from, *change, Answer::Taken),
            // For `watari_addresses`.
            DispatcherToDispatcher::Steering(_) => {}
        }
    }

    fn on_leg_detached(&self, from: &NodeName, detached: &LegDetached) {
        let LegDetached { change, tx_offset } = *detached;
        let detached = Input::LegDetached { from: from.clone(), number: change.number, tx_offset };
        self.table.message(change.connection, RelayMessage::Input(Box::new(detached)));
    }

    fn on_leg_attached(&self, from: &NodeName, change: DispatcherChange) {
        let attached = Input::LegAttached { from: from.clone(), number: change.number };
        self.table.message(change.connection, RelayMessage::Input(Box::new(attached)));
    }

    fn on_established(&self, from: &NodeName, established: &Established) {
        if self.table.establish(from, established) {
            self.metrics.count_handshake(&established.tls);
        }
    }

    /// Sends `Gone` for a connection that is over, so that its agent stops waiting for a decision. During an upgrade, the
    /// connection may have passed to the successor of this process, which will be asked again.
    fn answer_for_unknown(&self, from: &NodeName, connection: ConnectionId, message: &AgentToDispatcher) {
        if self.successor.borrow().is_some() || self.changes.has_gone(connection) {
            return;
        }
        if matches!(message, AgentToDispatcher::Propose(_) | AgentToDispatcher::Held(_)) {
            self.send(from, DispatcherToAgent::Gone(connection));
        }
    }
}
