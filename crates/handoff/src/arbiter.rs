//! The dispatcher's part of a move, and of the connection around it.

mod events;

pub use events::{ArbiterAction, ArbiterEvent, ArbiterTimer, Offer, ResetCause};

use watari_wire::{AbortReason, Epoch, NodeName};

/// Decides, for one connection, who owns it; follows the two streams far enough to know what may be decided.
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
/// The client is not read while `Moving` (see [`Arbiter::reads_client`]); the owner's leg is read in every state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Arbiter {
    state: State,
    owner: NodeName,
    /// The epoch whose commit made `owner` the owner.
    tenure: Epoch,
    /// The last epoch an attempt was made in; decided unless `Moving`.
    last: Epoch,
    last_abort: Option<AbortReason>,
    /// Bytes of the client's stream the owner's leg has taken.
    rx_relayed: u64,
    /// Bytes of the stream to the client read from the owner's leg.
    tx_relayed: u64,
    /// Where the owner said its stream ends.
    final_offset: Option<u64>,
    /// Whether the owner's leg ended.
    leg_ended: bool,
    /// What a target said about the next epoch before the source's proposal arrived.
    early: Option<(NodeName, Answer)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum State {
    Relaying,
    Moving(Move),
    /// The stream to the client is complete; the client's own may still run to the owner.
    Finished,
    Ended,
}

/// An undecided attempt; its epoch is `Arbiter::last`, its source `Arbiter::owner`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Move {
    offer: Offer,
    held: bool,
    leg_ready: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Answer {
    Held(Offer),
    Refused(AbortReason),
}

impl Arbiter {
    /// A connection that has just been given to `owner` for its handshake.
    pub fn new(owner: NodeName) -> Self {
        Self {
            state: State::Relaying,
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

    /// Who owns the connection.
    pub fn owner(&self) -> &NodeName {
        &self.owner
    }

    /// The epoch whose commit made the owner the owner.
    pub fn tenure(&self) -> Epoch {
        self.tenure
    }

    /// Bytes of the client's stream that were relayed, to this owner and those before.
    pub fn rx_relayed(&self) -> u64 {
        self.rx_relayed
    }

    /// Whether the client's stream may be read and relayed to the owner's leg.
    pub fn reads_client(&self) -> bool {
        matches!(self.state, State::Relaying | State::Finished)
    }

    /// Whether an attempt is undecided.
    pub fn is_moving(&self) -> bool {
        matches!(self.state, State::Moving(_))
    }

    /// Whether the connection is over: nothing is relayed any more.
    pub fn is_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// The timer that should be running. The dispatcher starts one when it appears and stops it when it goes.
    pub fn timer(&self) -> Option<ArbiterTimer> {
        match self.state {
            State::Moving(_) => Some(ArbiterTimer::Move),
            State::Relaying if self.leg_ended => Some(ArbiterTimer::Final),
            _ => None,
        }
    }

    /// Takes one event; appends what must be done.
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
            // It owned the connection when it proposed, so an attempt of its own was committed since, and it waits for
            // a decision in no other. It may be a target again by now: that must not be touched, hence the epoch.
            actions.push(ArbiterAction::TellCommitted { to: from.clone(), epoch: offer.epoch });
        } else if *from == self.owner && self.may_begin(offer.epoch) {
            self.begin(offer, actions);
        } else if *from == self.owner && offer.epoch == self.last {
            self.repeat_to_source(&offer, actions);
        }
        // Anything else is a late copy from the owner, which has acted on that decision, or nothing an agent would say.
    }

    fn begin(&mut self, offer: Offer, actions: &mut Vec<ArbiterAction>) {
        self.last = offer.epoch;
        self.last_abort = None;
        let early = self.early.take();
        let (target, epoch) = (offer.target.clone(), offer.epoch);
        let plausible = self.is_plausible(&offer);
        let cut_elsewhere = offer.rx_offset != self.rx_relayed;
        self.state = State::Moving(Move { offer, held: false, leg_ready: false });
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

    /// A source cannot have read what it was not sent, cannot have written less than arrived here, and has nothing to
    /// hand over once it has announced the end of its stream.
    fn is_plausible(&self, offer: &Offer) -> bool {
        offer.rx_offset <= self.rx_relayed && offer.tail_offset >= self.tx_relayed && self.final_offset.is_none()
    }

    /// The owner asks again about an attempt: its message or our answer was lost.
    fn repeat_to_source(&mut self, offer: &Offer, actions: &mut Vec<ArbiterAction>) {
        match (&self.state, self.last_abort) {
            (State::Moving(_), _) if offer.rx_offset != self.rx_relayed => self.freeze(actions),
            (State::Relaying | State::Finished, Some(reason)) => {
                let to = self.owner.clone();
                actions.push(ArbiterAction::TellAborted { to, epoch: offer.epoch, reason });
            }
            // Undecided: the decision will come. Committed to the very node that asks: a late copy.
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
            // Nothing is said of an epoch that is undecided, nor of the owner's: its preface may still be under way.
            let reason = self.last_abort.unwrap_or(AbortReason::Expired);
            actions.push(ArbiterAction::TellAborted { to: held.target, epoch: held.epoch, reason });
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
        // Held only so far: the rest is on its way, because the source was told where the cut is.
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

    /// Keeps what a target said before the proposal came. A refusal is its last word: a `Held` after it is a late copy,
    /// and a commit by it would go to a node that holds nothing.
    fn keep_early(&mut self, from: NodeName, answer: Answer) {
        let refused = matches!(&self.early, Some((refuser, Answer::Refused(_))) if *refuser == from);
        if !refused {
            self.early = Some((from, answer));
        }
    }

    fn on_final(&mut self, from: &NodeName, epoch: Epoch, tx_offset: u64, actions: &mut Vec<ArbiterAction>) {
        // A source that proposed has fenced, and cannot have ended its stream after that.
        if *from != self.owner || epoch != self.tenure || !matches!(self.state, State::Relaying) {
            return;
        }
        self.final_offset = Some(tx_offset);
        self.finish_if_complete(actions);
    }

    fn on_relayed_tx(&mut self, bytes: u64, actions: &mut Vec<ArbiterAction>) {
        self.tx_relayed += bytes;
        match &self.state {
            State::Moving(attempt) if self.tx_relayed > attempt.offer.tail_offset => {
                self.reset(ResetCause::OwnerMisbehaved, actions);
            }
            State::Moving(_) => self.commit_if_possible(actions),
            State::Relaying => self.finish_if_complete(actions),
            State::Finished => self.reset(ResetCause::OwnerMisbehaved, actions),
            State::Ended => {}
        }
    }

    fn finish_if_complete(&mut self, actions: &mut Vec<ArbiterAction>) {
        match self.final_offset {
            Some(end) if self.tx_relayed > end => self.reset(ResetCause::OwnerMisbehaved, actions),
            Some(end) if self.tx_relayed == end => {
                self.state = State::Finished;
                actions.push(ArbiterAction::FinishClient);
            }
            Some(_) if self.leg_ended => self.reset(ResetCause::OwnerLost, actions),
            _ => {}
        }
    }

    fn on_leg_ended(&mut self, reset: bool, actions: &mut Vec<ArbiterAction>) {
        self.leg_ended = true;
        match &self.state {
            // A FIN may overtake the Final that announces it, on another TCP connection; a reset says bytes are lost.
            State::Relaying if reset || self.final_offset.is_some() => self.reset(ResetCause::OwnerLost, actions),
            State::Moving(attempt) if self.tx_relayed < attempt.offer.tail_offset => {
                self.reset(ResetCause::OwnerLost, actions);
            }
            // Moving: the source is dead or gave up, but the target may hold all there is.
            State::Relaying | State::Moving(_) | State::Finished | State::Ended => {}
        }
    }

    fn on_timeout(&mut self, timer: ArbiterTimer, actions: &mut Vec<ArbiterAction>) {
        match (timer, &self.state) {
            (ArbiterTimer::Move, State::Moving(_)) => self.abort(AbortReason::Timeout, actions),
            (ArbiterTimer::Final, State::Relaying) if self.leg_ended => self.reset(ResetCause::OwnerLost, actions),
            _ => {}
        }
    }

    /// Whether an attempt may begin, and this epoch is the one it must have.
    fn may_begin(&self, epoch: Epoch) -> bool {
        matches!(self.state, State::Relaying) && self.last.0.checked_add(1) == Some(epoch.0)
    }

    fn moving(&mut self, epoch: Epoch) -> Option<&mut Move> {
        match &mut self.state {
            State::Moving(attempt) if epoch == self.last => Some(attempt),
            _ => None,
        }
    }

    fn commit_if_possible(&mut self, actions: &mut Vec<ArbiterAction>) {
        let State::Moving(Move { offer, held: true, leg_ready: true }) = &self.state else { return };
        if self.tx_relayed != offer.tail_offset {
            return;
        }
        let (target, tail_offset) = (offer.target.clone(), offer.tail_offset);
        let source = std::mem::replace(&mut self.owner, target.clone());
        self.state = State::Relaying;
        self.tenure = self.last;
        self.leg_ended = false;
        let rx_offset = self.rx_relayed;
        actions.push(ArbiterAction::Commit { source, target, epoch: self.last, rx_offset, tail_offset });
    }

    fn abort(&mut self, reason: AbortReason, actions: &mut Vec<ArbiterAction>) {
        let State::Moving(attempt) = std::mem::replace(&mut self.state, State::Relaying) else { return };
        let (source, target) = (self.owner.clone(), attempt.offer.target);
        self.last_abort = Some(reason);
        actions.push(ArbiterAction::Abort { source, target, epoch: self.last, reason });
        if self.leg_ended {
            self.reset(ResetCause::OwnerLost, actions);
        }
    }

    fn reset(&mut self, cause: ResetCause, actions: &mut Vec<ArbiterAction>) {
        if let State::Moving(attempt) = std::mem::replace(&mut self.state, State::Ended) {
            actions.push(ArbiterAction::TellGone { to: self.owner.clone() });
            actions.push(ArbiterAction::TellGone { to: attempt.offer.target });
        }
        if let Some((to, Answer::Held(_))) = self.early.take() {
            actions.push(ArbiterAction::TellGone { to });
        }
        actions.push(ArbiterAction::Reset(cause));
    }
}

#[cfg(test)]
mod transitions;
