//! A connection changes its dispatcher: [`watari_handoff::Giving`] decides, at the previous dispatcher.

use std::time::Duration;

use watari_handoff::{ArbiterEvent, ArbiterTimer, Giving, GivingAction};
use watari_values::{DispatcherChange, NodeName};
use watari_wire::leg::Kind;
use watari_wire::{DetachLeg, DispatcherToAgent};

use super::{FromClient, OwnerLeg, Relay, ToClient};
use crate::events::{Action, Context};

/// How often `AttachLeg` is repeated. A detached leg fails after 15 s.
const ATTACH_AGAIN: Duration = Duration::from_millis(500);

/// Why a connection cannot change its dispatcher now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CannotChange {
    /// A stream has ended. Such a connection soon ends, and its sockets cannot be restored.
    Ending,
    /// Its first bytes, or its first agent, are still being waited for.
    Beginning,
}

impl Relay {
    /// Asks the agent to detach its leg, for the dispatcher `to`. Aborts an undecided move. If the agent was asked before
    /// and has not answered, repeats the request.
    pub(super) fn change_dispatcher(&mut self, to: NodeName, cx: Context<'_>) {
        if self.may_change().is_err() {
            return;
        }
        let giving = match self.giving {
            Some(giving) if !giving.is_detaching() => return,
            Some(giving) => giving,
            None => {
                self.changes += 1;
                self.stop_attaching();
                Giving::begin(self.changes)
            }
        };
        if self.is_unopened() {
            // No agent has it.
            self.giving = Some(giving);
            let owner = self.owner().clone();
            return self.on_detached(&owner, giving.number(), 0, cx);
        }
        self.giving = Some(giving);
        self.arbitrate(ArbiterEvent::Timeout(ArbiterTimer::Move), cx);
        let change = DispatcherChange { connection: self.id, number: giving.number() };
        let message = DispatcherToAgent::DetachLeg(DetachLeg { change, to });
        self.actions.push_back(Action::Send { to: self.owner().clone(), message });
    }

    /// Whether all that the agent wrote on its leg was read, and it writes no more: the client's socket may be frozen.
    pub fn is_quiet(&self) -> bool {
        let is_quiet = |giving: Giving| giving.is_quiet(self.arbiter.tx_relayed());
        self.giving.is_some_and(is_quiet) && self.may_change().is_ok() && !self.arbiter.is_moving()
    }

    /// The connection stands still from now on, and is shipped. Its driver hands in [`Input::ChangeFailed`](crate::Input::ChangeFailed) if it goes on
    /// here. Call only if [`Relay::is_quiet`].
    pub fn offer(&mut self) -> Option<Giving> {
        let giving = self.giving.as_mut()?;
        giving.offer();
        Some(*giving)
    }

    /// The number of the present change of the dispatcher.
    pub fn change(&self) -> Option<DispatcherChange> {
        self.giving.map(|giving| DispatcherChange { connection: self.id, number: giving.number() })
    }

    pub(super) fn on_detached(&mut self, from: &NodeName, number: u32, tx_offset: u64, cx: Context<'_>) {
        let relayed = self.arbiter.tx_relayed();
        let Some(giving) = self.giving.as_mut().filter(|_| *from == *self.arbiter.owner()) else { return };
        let action = giving.on_detached(number, tx_offset, relayed);
        self.follow_giving(action, cx);
    }

    /// More of the stream to the client was read.
    pub(super) fn on_relayed_while_changing(&mut self, cx: Context<'_>) {
        let relayed = self.arbiter.tx_relayed();
        let action = self.giving.as_mut().and_then(|giving| giving.on_relayed(relayed));
        self.follow_giving(action, cx);
    }

    /// The attempt has failed. This dispatcher goes on.
    pub(super) fn on_change_failed(&mut self, cx: Context<'_>) {
        let action = self.giving.as_mut().and_then(Giving::on_failure);
        self.follow_giving(action, cx);
    }

    fn follow_giving(&mut self, action: Option<GivingAction>, cx: Context<'_>) {
        match action {
            Some(GivingAction::Reset) => self.arbitrate(ArbiterEvent::LegEnded { reset: true }, cx),
            Some(GivingAction::GoOn) => {
                let failed = self.giving.take();
                // Otherwise no agent has the connection.
                if !self.is_unopened() {
                    self.attaching = failed;
                    self.attach(cx);
                }
            }
            // The driver does it.
            Some(GivingAction::Give) | None => {}
        }
    }

    /// Has the agent write on its leg again. Repeats that until the agent answers: the link to it may be lost.
    pub(super) fn attach(&mut self, cx: Context<'_>) {
        let Some(failed) = self.attaching else { return };
        let change = DispatcherChange { connection: self.id, number: failed.number() };
        let message = DispatcherToAgent::AttachLeg(change);
        self.actions.push_back(Action::Send { to: self.owner().clone(), message });
        self.deadlines.attach = Some(cx.now + ATTACH_AGAIN);
    }

    pub(super) fn on_attached(&mut self, from: &NodeName, number: u32) {
        let Some(failed) = self.attaching.as_mut().filter(|_| *from == *self.arbiter.owner()) else { return };
        failed.on_attached(number);
        if !failed.is_attaching() {
            self.stop_attaching();
        }
    }

    pub(super) fn stop_attaching(&mut self) {
        (self.attaching, self.deadlines.attach) = (None, None);
    }

    /// Goes on at a new dispatcher, which has restored the client's socket and connected a leg to the owner. `unwritten`
    /// bytes to the client, which the previous dispatcher had written to its kernel, wait here in front of the others.
    pub fn go_on(&mut self, change: DispatcherChange, unwritten: usize) {
        self.down.unwrite(unwritten);
        self.giving = None;
        self.leg = OwnerLeg::Regular;
        self.up.preface = true;
        let (rx_offset, tx_offset) = (self.arbiter.rx_relayed(), self.arbiter.tx_relayed());
        let kind = Kind::Continue { change: change.number, rx_offset, tx_offset };
        self.actions.push_back(Action::OpenLeg { kind, epoch: self.arbiter.tenure() });
    }
}

impl<T> Relay<T> {
    /// Whether the connection can change its dispatcher, apart from the agent's part.
    pub fn may_change(&self) -> Result<(), CannotChange> {
        let is_open = self.from_client == FromClient::Open && self.to_client == ToClient::Open;
        if self.over || !is_open || self.arbiter.has_final() || matches!(self.leg, OwnerLeg::Ended | OwnerLeg::Kept) {
            Err(CannotChange::Ending)
        } else if !self.is_unopened() && (self.copied.is_some() || self.up.preface) {
            Err(CannotChange::Beginning)
        } else {
            Ok(())
        }
    }

    /// Whether no agent has the connection: the client has sent nothing.
    pub fn is_unopened(&self) -> bool {
        self.leg == OwnerLeg::Unopened
    }
}
