//! The part of the agent that takes a connection over.

use watari_wire::{AbortReason, Epoch};

/// Holds one connection until the dispatcher has decided.
///
/// ```text
///            Committed (preface of a leg)
///   Held ------------------------------------> Active
///     |
///     +---- Aborted, Gone, Expired ----------> Dropped
/// ```
///
/// While `Held` the agent may not seal, and sends nothing to the client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    state: State,
    epoch: Epoch,
    rx_offset: u64,
    tail_offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum State {
    Held,
    Active,
    Dropped,
}

/// What happens to a held connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TargetEvent {
    /// More of the client's stream came from the source.
    Rest {
        /// The attempt.
        epoch: Epoch,
        /// Where the bytes begin.
        from_offset: u64,
        /// How many they are.
        len: u64,
    },
    /// A leg with the dispatcher's authenticated preface: it has committed.
    Committed {
        /// The attempt.
        epoch: Epoch,
        /// The first byte of the client's stream on the leg.
        rx_offset: u64,
        /// The first byte to send to the client.
        tail_offset: u64,
    },
    /// The dispatcher aborted.
    Aborted(Epoch),
    /// The dispatcher does not know the connection.
    Gone,
    /// No decision came for so long that none is expected.
    Expired,
}

/// What the target must do, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TargetAction {
    /// Tell the dispatcher that the connection is held.
    Held {
        /// The attempt.
        epoch: Epoch,
        /// Up to where the client's stream is held.
        rx_offset: u64,
        /// Where the stream to the client will be continued.
        tail_offset: u64,
    },
    /// Append the bytes of the [`TargetEvent::Rest`] to what is held.
    Keep,
    /// Go on: send the tail, open what is unopened, serve.
    Activate,
    /// The leg does not fit what is held: reset it.
    RefuseLeg,
    /// Tell the dispatcher that the connection is held no more.
    Refuse(Epoch, AbortReason),
    /// Destroy what is held.
    Drop,
}

impl Target {
    /// A connection that was just shipped here: its attempt, how far the client's stream came with it, and where the
    /// stream to the client is continued. Appends the answer to the dispatcher.
    pub fn hold(epoch: Epoch, rx_offset: u64, tail_offset: u64, actions: &mut Vec<TargetAction>) -> Self {
        let target = Self { state: State::Held, epoch, rx_offset, tail_offset };
        target.tell_held(actions);
        target
    }

    /// The attempt.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether the agent may open and seal records of this connection.
    pub fn is_active(&self) -> bool {
        self.state == State::Active
    }

    /// Whether the dispatcher's decision is awaited.
    pub fn is_held(&self) -> bool {
        self.state == State::Held
    }

    /// Takes one event; appends what must be done.
    pub fn handle(&mut self, event: &TargetEvent, actions: &mut Vec<TargetAction>) {
        if !self.is_held() {
            if matches!(event, TargetEvent::Committed { .. }) {
                actions.push(TargetAction::RefuseLeg);
            }
            return;
        }
        match *event {
            TargetEvent::Rest { epoch, from_offset, len } => {
                if epoch == self.epoch && from_offset == self.rx_offset {
                    self.on_rest(len, actions);
                }
            }
            TargetEvent::Committed { epoch, rx_offset, tail_offset } => {
                if (epoch, rx_offset, tail_offset) == (self.epoch, self.rx_offset, self.tail_offset) {
                    self.state = State::Active;
                    actions.push(TargetAction::Activate);
                } else {
                    actions.push(TargetAction::RefuseLeg);
                }
            }
            TargetEvent::Aborted(epoch) if epoch == self.epoch => self.drop_held(actions),
            TargetEvent::Aborted(_) => {}
            TargetEvent::Gone => self.drop_held(actions),
            TargetEvent::Expired => self.refuse(AbortReason::Expired, actions),
        }
    }

    fn on_rest(&mut self, len: u64, actions: &mut Vec<TargetAction>) {
        match self.rx_offset.checked_add(len) {
            Some(rx_offset) => {
                self.rx_offset = rx_offset;
                actions.push(TargetAction::Keep);
                self.tell_held(actions);
            }
            // No stream is that long: the source made its offsets up.
            None => self.refuse(AbortReason::Mismatch, actions),
        }
    }

    fn refuse(&mut self, reason: AbortReason, actions: &mut Vec<TargetAction>) {
        actions.push(TargetAction::Refuse(self.epoch, reason));
        self.drop_held(actions);
    }

    fn tell_held(&self, actions: &mut Vec<TargetAction>) {
        let Self { epoch, rx_offset, tail_offset, .. } = *self;
        actions.push(TargetAction::Held { epoch, rx_offset, tail_offset });
    }

    fn drop_held(&mut self, actions: &mut Vec<TargetAction>) {
        self.state = State::Dropped;
        actions.push(TargetAction::Drop);
    }
}

#[cfg(test)]
mod transitions;
