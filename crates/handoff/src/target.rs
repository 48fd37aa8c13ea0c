//! The target's part in a move: an agent takes a connection over.

use watari_values::{AbortReason, Epoch};

/// Holds one connection until the dispatcher decides.
///
/// ```text
///            Committed (preface of a leg)
///   Held ------------------------------------> Active
///     |
///     +---- Aborted, Gone, Expired ----------> Dropped
/// ```
///
/// While `Held`, the agent must not seal and sends nothing to the client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    state: TargetState,
    epoch: Epoch,
    rx_offset: u64,
    tail_offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TargetState {
    Held,
    Active,
    Dropped,
}

/// Events of a held connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TargetEvent {
    /// The source sent more of the client's stream.
    Rest {
        epoch: Epoch,
        /// The offset of the first byte in the client's stream.
        from_offset: u64,
        /// The number of bytes.
        len: u64,
    },
    /// A leg arrived with an authenticated preface: the dispatcher has committed.
    Committed {
        epoch: Epoch,
        /// The offset of the first byte of the client's stream on the leg.
        rx_offset: u64,
        /// The offset of the first byte to send to the client.
        tail_offset: u64,
    },
    /// The dispatcher aborted.
    Aborted(Epoch),
    /// The dispatcher has no such connection.
    Gone,
    /// The hold timer fired: no decision is expected.
    Expired,
}

/// Actions of the target, to carry out in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TargetAction {
    /// Report to the dispatcher that the connection is held.
    Held {
        epoch: Epoch,
        /// The end of the held bytes of the client's stream.
        rx_offset: u64,
        /// The offset at which the stream to the client continues.
        tail_offset: u64,
    },
    /// Append the bytes of the [`TargetEvent::Rest`] to the held ones.
    Keep,
    /// Send the tail, open the unopened bytes, and serve.
    Activate,
    /// Reset the leg: its preface does not match the held connection.
    RefuseLeg,
    /// Report to the dispatcher that the connection is no longer held.
    Refuse(Epoch, AbortReason),
    /// Destroy the held connection.
    Drop,
}

impl Target {
    /// A connection that was just shipped here: its epoch, the end of the client's stream that came with it, and the
    /// offset at which the stream to the client continues. Appends the answer to the dispatcher.
    pub fn hold(epoch: Epoch, rx_offset: u64, tail_offset: u64, actions: &mut Vec<TargetAction>) -> Self {
        let target = Self { state: TargetState::Held, epoch, rx_offset, tail_offset };
        target.tell_held(actions);
        target
    }

    /// The epoch of the attempt.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether the agent may open and seal records of this connection.
    pub fn is_active(&self) -> bool {
        self.state == TargetState::Active
    }

    /// Whether the target waits for the dispatcher's decision.
    pub fn is_held(&self) -> bool {
        self.state == TargetState::Held
    }

    /// Handles one event, and appends the actions to carry out.
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
                    self.state = TargetState::Active;
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
            // No stream is that long: the source's offsets are invalid.
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
        self.state = TargetState::Dropped;
        actions.push(TargetAction::Drop);
    }
}

#[cfg(test)]
mod transitions;
