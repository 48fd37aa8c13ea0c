//! Handles the messages of agents.

use watari_handoff::{ArbiterEvent, Offer};
use watari_values::{ConnectionId, NodeName, StayReason};
use watari_wire::{AgentToDispatcher, DispatcherToAgent, Established, Message};

use crate::drains::AskedBy;
use crate::shared::DispatcherShared;

impl DispatcherShared {
    pub(crate) fn on_message(&self, from: &NodeName, message: &Message) {
        // Others are for the agent of this node.
        let Message::AgentToDispatcher(message) = message else { return };
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
            AgentToDispatcher::LegDetached(_) => return,
        };
        if !self.table.send(connection, event) {
            self.answer_for_unknown(from, connection, message);
        }
    }

    fn on_established(&self, from: &NodeName, established: &Established) {
        if self.table.establish(from, established) {
            self.metrics.count_handshake(&established.tls);
        }
    }

    /// Sends `Gone` for a connection that is over, so that its agent stops waiting for a decision. During an upgrade, the
    /// connection may have passed to the successor of this process, which will be asked again.
    fn answer_for_unknown(&self, from: &NodeName, connection: ConnectionId, message: &AgentToDispatcher) {
        if self.successor.borrow().is_some() {
            return;
        }
        if matches!(message, AgentToDispatcher::Propose(_) | AgentToDispatcher::Held(_)) {
            self.send(from, DispatcherToAgent::Gone(connection));
        }
    }
}
