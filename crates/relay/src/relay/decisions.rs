//! Carries out the arbiter's decisions, and what follows from the state.

use std::time::Duration;

use watari_handoff::{ArbiterAction, ArbiterEvent};
use watari_values::NodeName;
use watari_wire::leg::Kind;
use watari_wire::{Aborted, Decided, DispatcherToAgent, Freeze, LegKept};

use super::{FromClient, OwnerLeg, PreparedLeg, Relay, ToClient};
use crate::deadlines::EndHeld;
use crate::events::{Action, Context};

/// How long a client's FIN is held back. The agent may end the stream by itself in this time, in answer to the
/// `close_notify` before the FIN. Then the leg does not end and can carry another connection.
const END_HELD: Duration = Duration::from_millis(50);

impl Relay {
    pub(super) fn arbitrate(&mut self, event: ArbiterEvent, cx: Context<'_>) {
        // Most events lead to no action, and then nothing is allocated.
        let mut decisions = Vec::new();
        self.arbiter.handle(event, &mut decisions);
        for decision in decisions {
            self.carry_out(decision, cx);
        }
    }

    fn carry_out(&mut self, decision: ArbiterAction, cx: Context<'_>) {
        let connection = self.id;
        let action = match decision {
            ArbiterAction::PrepareLeg { target, epoch } => {
                self.prepared = PreparedLeg::Connecting(epoch);
                Action::PrepareLeg { target }
            }
            ArbiterAction::Freeze { source, epoch, rx_offset } => {
                let message = DispatcherToAgent::Freeze(Freeze { connection, epoch, rx_offset });
                Action::Send { to: source, message }
            }
            ArbiterAction::Commit { source, target, epoch, rx_offset, tail_offset } => {
                // The dispatcher has read all that the source sent, and the source has read all that was written to
                // it. So closing loses nothing. If nothing else was on the leg, another connection may follow.
                let kept = self.may_keep_leg_to(&source, cx).then_some(LegKept { connection, epoch, rx_offset });
                self.prepared = PreparedLeg::None;
                self.take_leg();
                self.up.preface = true;
                Action::Commit { source, target, epoch, preface: Kind::Commit { rx_offset, tail_offset }, kept }
            }
            ArbiterAction::Abort { source, target, epoch, reason } => {
                self.prepared = PreparedLeg::None;
                if self.leg == OwnerLeg::Regular {
                    self.leg = OwnerLeg::Irregular;
                }
                Action::Abort { source, target, epoch, reason }
            }
            ArbiterAction::SendAborted { to, epoch, reason } => {
                Action::Send { to, message: DispatcherToAgent::Aborted(Aborted { connection, epoch, reason }) }
            }
            ArbiterAction::SendCommitted { to, epoch } => {
                Action::SendSoon { to, message: DispatcherToAgent::Committed(Decided { connection, epoch }) }
            }
            ArbiterAction::SendGone { to } => Action::Send { to, message: DispatcherToAgent::Gone(connection) },
            ArbiterAction::FinishClient => {
                self.to_client = ToClient::Finishing;
                self.deadlines.handshake = None;
                return self.keep_leg_at_end(cx);
            }
            ArbiterAction::Reset(cause) => {
                self.over = true;
                Action::Reset(cause)
            }
        };
        self.actions.push_back(action);
    }

    /// Whether another connection may follow on the leg of the owner, `agent`, after this connection's streams end
    /// there.
    fn may_keep_leg_to(&self, agent: &NodeName, cx: Context<'_>) -> bool {
        self.leg == OwnerLeg::Regular
            && self.from_client != FromClient::EndRelayed
            && !self.up.preface
            && cx.dispatcher.keeps_legs_to(agent)
    }

    /// Keeps the leg, if it can carry another connection, when the stream to the client is complete. This ends the
    /// client's stream: the agent has announced its end, and reads and drops what was written so far. The relay writes
    /// no more on it.
    fn keep_leg_at_end(&mut self, cx: Context<'_>) {
        let agent = self.arbiter.owner();
        if !self.up.is_empty() || !self.may_keep_leg_to(agent, cx) {
            return;
        }
        let (epoch, rx_offset) = (self.arbiter.tenure(), self.arbiter.rx_relayed());
        let kept = LegKept { connection: self.id, epoch, rx_offset };
        self.actions.push_back(Action::KeepLeg { agent: agent.clone(), kept });
        self.leg = OwnerLeg::Kept;
    }

    /// Does what the state requires after any input.
    pub(super) fn follow_up(&mut self, cx: Context<'_>) {
        if self.from_client == FromClient::Ended && self.relays_up() && self.up.is_empty() {
            self.relay_client_end(cx);
        }
        if self.to_client == ToClient::Finishing && self.down.is_empty() {
            self.to_client = ToClient::Finished;
            self.actions.push_back(Action::FinishClient);
            self.deadlines.linger = Some(cx.now + self.timeouts.end);
        }
        if self.to_client == ToClient::Finished && self.from_client != FromClient::Open {
            self.over = true;
        }
        if self.giving.is_some() && self.may_change().is_err() {
            self.on_change_failed(cx);
        }
        self.deadlines.follow(self.arbiter.timer(), &self.timeouts, cx.now);
    }

    /// Relays the client's FIN. Holds it back for [`END_HELD`] if the leg may be kept without it.
    fn relay_client_end(&mut self, cx: Context<'_>) {
        match self.deadlines.client_end {
            EndHeld::Until(_) => return,
            EndHeld::NotYet if self.to_client == ToClient::Open && self.may_keep_leg_to(self.arbiter.owner(), cx) => {
                self.deadlines.client_end = EndHeld::Until(cx.now + END_HELD);
                return;
            }
            EndHeld::NotYet | EndHeld::LongEnough => {}
        }
        self.from_client = FromClient::EndRelayed;
        self.actions.push_back(Action::ShutDownLeg);
    }
}
