//! The dispatcher's part in moves of a connection.

mod events;

pub use events::{ArbiterAction, ArbiterEvent, ArbiterTimer, Offer, ResetCause};

use serde::{Deserialize, Serialize};
use watari_values::{AbortReason, Epoch, NodeName};

/// Decides which agent owns one connection. Counts the bytes of both streams, as far as the decisions require.
///
/// ```text
///               Proposed                  held, leg ready, tail relayed: Commit
///   Relaying ---------------> Moving -----------------------------------------> Relaying (the target owns)
///    |    ^                     |
///    |    +---------------------+  Refused, Cancelled, LegFailed, Timeout, Mismatch: Abort
///    |
///    +--- Final, and all of it relayed: FinishClient -----> Finished
///
///   any ---- the client is gone, a stream is cut: Reset --> Ended
/// ```
///
/// While `Moving`, the dispatcher does not read the client (see [`Arbiter::reads_client`]). It reads the owner's leg in
/// every state.
///
/// It can be serialized, so that another process of the dispatcher goes on with it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Arbiter {
    state: ArbiterState,
    owner: NodeName,
    /// The epoch whose commit made `owner` the owner.
    tenure: Epoch,
    /// The epoch of the last attempt. It is decided unless the state is `Moving`.
    last: Epoch,
    last_abort: Option<AbortReason>,
    /// Bytes of the client's stream that were written to owners' legs.
    rx_relayed: u64,
    /// Bytes of the stream to the client that were read from owners' legs.
    tx_relayed: u64,
    /// The length of the stream to the client, as the owner announced it.
    final_offset: Option<u64>,
    leg_ended: bool,
    /// A target's answer for the next epoch that arrived before the source's proposal.
    early: Option<(NodeName, Answer)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum ArbiterState {
    Relaying,
    Moving(Move),
    /// The stream to the client is complete. The client's stream to the owner may continue.
    Finished,
    Ended,
}

/// An undecided attempt. Its epoch is `Arbiter::last`, and its source is `Arbiter::owner`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Move {
    offer: Offer,
    held: bool,
    leg_ready: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Answer {
    Held(Offer),
    Refused(AbortReason),
}

impl Arbiter {
    /// An arbiter for a new connection, whose handshake `owner` does.
    pub fn new(owner: NodeName) -> Self {
        Self {
            state: ArbiterState::Relaying,
            owner,
            tenure: Epoch(0),
            last: Epoch(0),
            last_abort: None,
            rx_relayed: 0,
            tx_relayed: 0,
            final_offset: None,
            leg_ended: false,
            early: None,
        }
    }

    /// The agent that owns the connection.
    pub fn owner(&self) -> &NodeName {
        &self.owner
    }

    /// The epoch whose commit made the owner the owner.
    pub fn tenure(&self) -> Epoch {
        self.tenure
    }

    /// Bytes of the client's stream that were relayed, to this owner and previous ones.
    pub fn rx_relayed(&self) -> u64 {
        self.rx_relayed
    }

    /// Whether the dispatcher may read the client and relay to the owner's leg.
    pub fn reads_client(&self) -> bool {
        matches!(self.state, ArbiterState::Relaying | ArbiterState::Finished)
    }

    /// Bytes of the stream to the client that were read, from this owner and previous ones.
    pub fn tx_relayed(&self) -> u64 {
        self.tx_relayed
    }

    /// Whether the owner has announced the end of its stream.
    pub fn has_final(&self) -> bool {
        self.final_offset.is_some()
    }

    /// Whether an attempt is undecided.
    pub fn is_moving(&self) -> bool {
        matches!(self.state, ArbiterState::Moving(_))
    }

    /// The target of an undecided attempt.
    pub fn target(&self) -> Option<&NodeName> {
        match &self.state {
            ArbiterState::Moving(attempt) => Some(&attempt.offer.target),
            _ => None,
        }
    }

    /// Whether the connection is over. Then nothing is relayed.
    pub fn is_ended(&self) -> bool {
        matches!(self.state, ArbiterState::Ended)
    }

    /// The timer that should be running. The dispatcher starts it when this becomes `Some`, and stops it when it
    /// becomes `None`.
    pub fn timer(&self) -> Option<ArbiterTimer> {
        match self.state {
            ArbiterState::Moving(_) => Some(ArbiterTimer::Move),
            ArbiterState::Relaying if self.leg_ended => Some(ArbiterTimer::Final),
            _ => None,
        }
    }

    /// Handles one event, and appends the actions to carry out.
    pub fn handle(&mut self, event: ArbiterEvent, actions: &mut Vec<ArbiterAction>) {
        if self.is_ended() {
            return;
        }
        match event {
            ArbiterEvent::Proposed { from, offer } => self.on_proposed(&from, offer, actions),
            ArbiterEvent::Held(held) => self.on_held(held, actions),
            ArbiterEvent::Refused { from, epoch, reason } => self.on_refused(from, epoch, reason, actions),
            ArbiterEvent::Cancelled { from, epoch, reason } => {
                if self.moving(epoch).is_some() && from == self.owner {
                    self.abort(reason, actions);
                }
            }
            ArbiterEvent::Final { from, epoch, tx_offset } => self.on_final(&from, epoch, tx_offset, actions),
            ArbiterEvent::LegReady(epoch) => {
                if let Some(attempt) = self.moving(epoch) {
                    attempt.leg_ready = true;
                    self.commit_if_possible(actions);
                }
            }
            ArbiterEvent::LegFailed(epoch) => {
                if self.moving(epoch).is_some() {
                    self.abort(AbortReason::NoLeg, actions);
                }
            }
            ArbiterEvent::RelayedRx(bytes) => {
                assert!(self.reads_client(), "the client's stream is cut while an attempt is undecided");
                self.rx_relayed += bytes;
            }
            ArbiterEvent::RelayedTx(bytes) => self.on_relayed_tx(bytes, actions),
            ArbiterEvent::LegEnded { reset } => self.on_leg_ended(reset, actions),
            ArbiterEvent::ClientGone => self.reset(ResetCause::ClientGone, actions),
            ArbiterEvent::Timeout(timer) => self.on_timeout(timer, actions),
        }
    }

    fn on_proposed(&mut self, from: &NodeName, offer: Offer, actions: &mut Vec<ArbiterAction>) {
        if *from != self.owner && offer.epoch <= self.tenure {
            // The sender owned the connection when it proposed. So an attempt of its own was committed since, and it
            // waits for no other decision. It may be a target again by now. The epoch in the answer keeps that attempt
            // untouched.
            actions.push(ArbiterAction::SendCommitted { to: from.clone(), epoch: offer.epoch });
        } else if *from == self.owner && self.may_begin(offer.epoch) {
            self.begin(offer, actions);
        } else if *from == self.owner && offer.epoch == self.last {
            self.repeat_to_source(&offer, actions);
        }
        // Other proposals are late copies from the owner, which has acted on that decision, or violate the protocol.
    }

    fn begin(&mut self, offer: Offer, actions: &mut Vec<ArbiterAction>) {
        self.last = offer.epoch;
        self.last_abort = None;
        let early = self.early.take();
        let (target, epoch) = (offer.target.clone(), offer.epoch);
        let plausible = self.is_plausible(&offer);
        let cut_elsewhere = offer.rx_offset != self.rx_relayed;
        self.state = ArbiterState::Moving(Move { offer, held: false, leg_ready: false });
        if !plausible {
            return self.abort(AbortReason::Mismatch, actions);
        }
        actions.push(ArbiterAction::PrepareLeg { target, epoch });
        if cut_elsewhere {
            self.freeze(actions);
        }
        match early {
            Some((_, Answer::Held(held))) => self.on_held(held, actions),
            Some((from, Answer::Refused(reason))) => self.on_refused(from, epoch, reason, actions),
            None => {}
        }
    }

    /// Whether the offer is possible. A source cannot have read bytes that it was not sent, nor have written fewer than
    /// arrived here. After it has announced the end of its stream, it cannot move the connection.
    fn is_plausible(&self, offer: &Offer) -> bool {
        offer.rx_offset <= self.rx_relayed && offer.tail_offset >= self.tx_relayed && self.final_offset.is_none()
    }

    /// Handles a repeated proposal of the owner: a previous message in either direction was lost.
    fn repeat_to_source(&mut self, offer: &Offer, actions: &mut Vec<ArbiterAction>) {
        match (&self.state, self.last_abort) {
            (ArbiterState::Moving(_), _) if offer.rx_offset != self.rx_relayed => self.freeze(actions),
            (ArbiterState::Relaying | ArbiterState::Finished, Some(reason)) => {
                let to = self.owner.clone();
                actions.push(ArbiterAction::SendAborted { to, epoch: offer.epoch, reason });
            }
            // If the attempt is undecided, the decision will follow. If it was committed to the sender itself, this is
            // a late copy.
            _ => {}
        }
    }

    fn freeze(&self, actions: &mut Vec<ArbiterAction>) {
        let source = self.owner.clone();
        actions.push(ArbiterAction::Freeze { source, epoch: self.last, rx_offset: self.rx_relayed });
    }

    fn on_held(&mut self, held: Offer, actions: &mut Vec<ArbiterAction>) {
        if self.may_begin(held.epoch) {
            self.keep_early(held.target.clone(), Answer::Held(held));
        } else if self.is_moving() && held.epoch == self.last {
            self.on_held_in_time(&held, actions);
        } else if held.epoch <= self.last && held.epoch != self.tenure {
            // No answer for an undecided epoch, nor for the epoch of the owner, whose preface may still be on its way.
            let reason = self.last_abort.unwrap_or(AbortReason::Expired);
            actions.push(ArbiterAction::SendAborted { to: held.target, epoch: held.epoch, reason });
        }
    }

    fn on_held_in_time(&mut self, held: &Offer, actions: &mut Vec<ArbiterAction>) {
        let rx_relayed = self.rx_relayed;
        let Some(attempt) = self.moving(held.epoch).filter(|attempt| attempt.offer.target == held.target) else {
            return;
        };
        let same = held.digest == attempt.offer.digest && held.tail_offset == attempt.offer.tail_offset;
        if !same || held.rx_offset > rx_relayed {
            return self.abort(AbortReason::Mismatch, actions);
        }
        // If fewer bytes are held, the rest is on its way, because the source has the cut.
        if held.rx_offset == rx_relayed {
            attempt.held = true;
            self.commit_if_possible(actions);
        }
    }

    fn on_refused(&mut self, from: NodeName, epoch: Epoch, reason: AbortReason, actions: &mut Vec<ArbiterAction>) {
        if self.moving(epoch).is_some_and(|attempt| attempt.offer.target == from) {
            self.abort(reason, actions);
        } else if self.may_begin(epoch) {
            self.keep_early(from, Answer::Refused(reason));
        }
    }

    /// Stores a target's answer that arrived before the proposal. A refusal is final: a `Held` after it is a late copy,
    /// and a commit based on it would go to a node that holds nothing.
    fn keep_early(&mut self, from: NodeName, answer: Answer) {
        let refused = matches!(&self.early, Some((refuser, Answer::Refused(_))) if *refuser == from);
        if !refused {
            self.early = Some((from, answer));
        }
    }

    fn on_final(&mut self, from: &NodeName, epoch: Epoch, tx_offset: u64, actions: &mut Vec<ArbiterAction>) {
        // A source that has proposed is fenced, and cannot have ended its stream after that.
        if *from != self.owner || epoch != self.tenure || !matches!(self.state, ArbiterState::Relaying) {
            return;
        }
        self.final_offset = Some(tx_offset);
        self.finish_if_complete(actions);
    }

    fn on_relayed_tx(&mut self, bytes: u64, actions: &mut Vec<ArbiterAction>) {
        self.tx_relayed += bytes;
        match &self.state {
            ArbiterState::Moving(attempt) if self.tx_relayed > attempt.offer.tail_offset => {
                self.reset(ResetCause::OwnerMisbehaved, actions);
            }
            ArbiterState::Moving(_) => self.commit_if_possible(actions),
            ArbiterState::Relaying => self.finish_if_complete(actions),
            ArbiterState::Finished => self.reset(ResetCause::OwnerMisbehaved, actions),
            ArbiterState::Ended => {}
        }
    }

    fn finish_if_complete(&mut self, actions: &mut Vec<ArbiterAction>) {
        match self.final_offset {
            Some(end) if self.tx_relayed > end => self.reset(ResetCause::OwnerMisbehaved, actions),
            Some(end) if self.tx_relayed == end => {
                self.state = ArbiterState::Finished;
                actions.push(ArbiterAction::FinishClient);
            }
            Some(_) if self.leg_ended => self.reset(ResetCause::OwnerLost, actions),
            _ => {}
        }
    }

    fn on_leg_ended(&mut self, reset: bool, actions: &mut Vec<ArbiterAction>) {
        self.leg_ended = true;
        match &self.state {
            // A FIN may overtake the `Final` that announces it, because that uses another TCP connection. A reset means
            // lost bytes.
            ArbiterState::Relaying if reset || self.final_offset.is_some() => {
                self.reset(ResetCause::OwnerLost, actions);
            }
            ArbiterState::Moving(attempt) if self.tx_relayed < attempt.offer.tail_offset => {
                self.reset(ResetCause::OwnerLost, actions);
            }
            // While moving, the source has died or given up, but the target may hold everything.
            ArbiterState::Relaying | ArbiterState::Moving(_) | ArbiterState::Finished | ArbiterState::Ended => {}
        }
    }

    fn on_timeout(&mut self, timer: ArbiterTimer, actions: &mut Vec<ArbiterAction>) {
        match (timer, &self.state) {
            (ArbiterTimer::Move, ArbiterState::Moving(_)) => self.abort(AbortReason::Timeout, actions),
            (ArbiterTimer::Final, ArbiterState::Relaying) if self.leg_ended => {
                self.reset(ResetCause::OwnerLost, actions);
            }
            _ => {}
        }
    }

    /// Whether an attempt may begin, and `epoch` is the next one.
    fn may_begin(&self, epoch: Epoch) -> bool {
        matches!(self.state, ArbiterState::Relaying) && self.last.0.checked_add(1) == Some(epoch.0)
    }

    fn moving(&mut self, epoch: Epoch) -> Option<&mut Move> {
        match &mut self.state {
            ArbiterState::Moving(attempt) if epoch == self.last => Some(attempt),
            _ => None,
        }
    }

    fn commit_if_possible(&mut self, actions: &mut Vec<ArbiterAction>) {
        let ArbiterState::Moving(Move { offer, held: true, leg_ready: true }) = &self.state else { return };
        if self.tx_relayed != offer.tail_offset {
            return;
        }
        let (target, tail_offset) = (offer.target.clone(), offer.tail_offset);
        let source = std::mem::replace(&mut self.owner, target.clone());
        self.state = ArbiterState::Relaying;
        self.tenure = self.last;
        self.leg_ended = false;
        let rx_offset = self.rx_relayed;
        actions.push(ArbiterAction::Commit { source, target, epoch: self.last, rx_offset, tail_offset });
    }

    fn abort(&mut self, reason: AbortReason, actions: &mut Vec<ArbiterAction>) {
        let ArbiterState::Moving(attempt) = std::mem::replace(&mut self.state, ArbiterState::Relaying) else { return };
        let (source, target) = (self.owner.clone(), attempt.offer.target);
        self.last_abort = Some(reason);
        actions.push(ArbiterAction::Abort { source, target, epoch: self.last, reason });
        if self.leg_ended {
            self.reset(ResetCause::OwnerLost, actions);
        }
    }

    fn reset(&mut self, cause: ResetCause, actions: &mut Vec<ArbiterAction>) {
        if let ArbiterState::Moving(attempt) = std::mem::replace(&mut self.state, ArbiterState::Ended) {
            actions.push(ArbiterAction::SendGone { to: self.owner.clone() });
            actions.push(ArbiterAction::SendGone { to: attempt.offer.target });
        }
        if let Some((to, Answer::Held(_))) = self.early.take() {
            actions.push(ArbiterAction::SendGone { to });
        }
        actions.push(ArbiterAction::Reset(cause));
    }
}

#[cfg(test)]
mod transitions;
