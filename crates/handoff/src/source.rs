//! The source's part in a move: an agent gives a connection away.

use watari_values::{AbortReason, Epoch, NodeName};

/// Tries to give one connection away.
///
/// ```text
///             Propose                 Committed, Gone, Expired
///   Serving ------------> Fenced --------------------------------> Destroyed
///      ^                    |
///      +--------------------+  Aborted: Thaw
/// ```
///
/// While `Fenced`, the agent does not open, seal or write. It reads the leg only up to the offset of a freeze.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source {
    state: SourceState,
    /// The epoch of the last attempt, or of the commit that brought the connection here.
    last: Epoch,
    rest_len_max: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum SourceState {
    Serving,
    Fenced {
        target: NodeName,
        /// The end of the bytes of the client's stream that were shipped.
        rx_offset: u64,
        /// The dispatcher's cut of the client's stream, after a freeze.
        frozen: Option<u64>,
    },
    Destroyed,
}

/// Events of a connection at its source.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SourceEvent {
    /// The agent has fenced the connection and wants to give it away. It has flushed or kept its sealed bytes, and has
    /// not announced the end of the stream to the client.
    Propose {
        /// The agent that is to get the connection.
        target: NodeName,
        /// Bytes of the client's stream that the agent has read.
        rx_offset: u64,
    },
    /// The dispatcher has cut the client's stream at `rx_offset`.
    Freeze {
        /// The attempt that the dispatcher freezes. Other epochs are late copies.
        epoch: Epoch,
        /// The cut, an offset in the client's stream.
        rx_offset: u64,
    },
    /// The agent has read the client's stream up to here, as [`SourceAction::ReadTo`] required.
    Read {
        /// The end of the bytes read, an offset in the client's stream.
        rx_offset: u64,
    },
    /// The dispatcher committed.
    Committed(Epoch),
    /// The dispatcher aborted.
    Aborted(Epoch, AbortReason),
    /// The dispatcher has no such connection with this agent as its owner.
    Gone,
    /// The retry timer fired: repeat the proposal.
    Retry,
    /// The fence timer fired: no decision will come. Or the leg is lost.
    Expired,
}

/// Actions of the source, to carry out in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SourceAction {
    /// Send `target` the state, the unopened bytes up to `rx_offset`, and the tail.
    Ship {
        /// The agent that is to get the connection.
        target: NodeName,
        epoch: Epoch,
        /// The end of the unopened bytes, an offset in the client's stream.
        rx_offset: u64,
    },
    /// Send the proposal to the dispatcher, possibly again.
    Propose {
        target: NodeName,
        epoch: Epoch,
        /// The end of the shipped bytes, an offset in the client's stream.
        rx_offset: u64,
    },
    /// Read the leg up to this offset of the client's stream, then report [`SourceEvent::Read`].
    ReadTo(u64),
    /// Send these bytes of the client's stream to `target`.
    Rest {
        target: NodeName,
        epoch: Epoch,
        /// The offset of the first byte.
        from_offset: u64,
        /// The offset after the last byte.
        to_offset: u64,
    },
    /// Report to the dispatcher that this attempt cannot be completed.
    Cancel {
        epoch: Epoch,
        /// Passed on to the target with the abort.
        reason: AbortReason,
    },
    /// Serve the connection again.
    Thaw(AbortReason),
    /// Destroy the state and close the leg.
    Destroy {
        /// `true`: the connection continues at the target. `false`: it is lost.
        moved: bool,
    },
}

impl Source {
    /// A connection with the last epoch `last`: that of the commit that brought it here (0 if its handshake was here),
    /// or that of a later attempt that was aborted. The source ships at most `rest_len_max` unopened bytes after the
    /// first message.
    pub fn new(last: Epoch, rest_len_max: u64) -> Self {
        Self { state: SourceState::Serving, last, rest_len_max }
    }

    /// Whether the agent may open and seal records of this connection.
    pub fn is_serving(&self) -> bool {
        matches!(self.state, SourceState::Serving)
    }

    /// Whether the connection is no longer here.
    pub fn is_destroyed(&self) -> bool {
        matches!(self.state, SourceState::Destroyed)
    }

    /// The epoch of the last attempt, or of the commit that brought the connection here. A `Ship` of this epoch or an
    /// earlier one is a late copy. The agent drops it, because the connection has been used since.
    pub fn epoch(&self) -> Epoch {
        self.last
    }

    /// Handles one event, and appends the actions to carry out.
    pub fn handle(&mut self, event: SourceEvent, actions: &mut Vec<SourceAction>) {
        match event {
            SourceEvent::Propose { target, rx_offset } => self.propose(target, rx_offset, actions),
            SourceEvent::Freeze { epoch, rx_offset } => self.on_freeze(epoch, rx_offset, actions),
            SourceEvent::Read { rx_offset } => self.on_read(rx_offset, actions),
            SourceEvent::Committed(epoch) if self.is_fenced_in(epoch) => self.destroy(true, actions),
            SourceEvent::Aborted(epoch, reason) if self.is_fenced_in(epoch) => {
                self.state = SourceState::Serving;
                actions.push(SourceAction::Thaw(reason));
            }
            SourceEvent::Gone | SourceEvent::Expired => self.destroy(false, actions),
            SourceEvent::Retry => self.repeat_proposal(actions),
            // A decision about another attempt is a late copy.
            SourceEvent::Committed(_) | SourceEvent::Aborted(..) => {}
        }
    }

    fn propose(&mut self, target: NodeName, rx_offset: u64, actions: &mut Vec<SourceAction>) {
        assert!(self.is_serving(), "only a connection that is served here can be given away");
        let Some(epoch) = self.last.0.checked_add(1).map(Epoch) else {
            // The epochs are exhausted: another attempt could not be distinguished from this one.
            return actions.push(SourceAction::Thaw(AbortReason::Full));
        };
        self.last = epoch;
        actions.push(SourceAction::Ship { target: target.clone(), epoch: self.last, rx_offset });
        self.state = SourceState::Fenced { target, rx_offset, frozen: None };
        self.repeat_proposal(actions);
    }

    fn repeat_proposal(&self, actions: &mut Vec<SourceAction>) {
        if let SourceState::Fenced { target, rx_offset, .. } = &self.state {
            let (target, rx_offset) = (target.clone(), *rx_offset);
            actions.push(SourceAction::Propose { target, epoch: self.last, rx_offset });
        }
    }

    fn on_freeze(&mut self, epoch: Epoch, cut: u64, actions: &mut Vec<SourceAction>) {
        let last = self.last;
        let SourceState::Fenced { rx_offset, frozen, .. } = &mut self.state else { return };
        // A repeated freeze needs no second answer. A cut before the shipped bytes contradicts the stream.
        if epoch != last || frozen.is_some() || cut <= *rx_offset {
            return;
        }
        if cut - *rx_offset > self.rest_len_max {
            actions.push(SourceAction::Cancel { epoch, reason: AbortReason::RestTooLong });
        } else {
            *frozen = Some(cut);
            actions.push(SourceAction::ReadTo(cut));
        }
    }

    fn on_read(&mut self, read: u64, actions: &mut Vec<SourceAction>) {
        let epoch = self.last;
        let SourceState::Fenced { target, rx_offset, frozen } = &mut self.state else { return };
        if *frozen != Some(read) || read == *rx_offset {
            return;
        }
        let from_offset = std::mem::replace(rx_offset, read);
        actions.push(SourceAction::Rest { target: target.clone(), epoch, from_offset, to_offset: read });
    }

    fn is_fenced_in(&self, epoch: Epoch) -> bool {
        epoch == self.last && matches!(self.state, SourceState::Fenced { .. })
    }

    fn destroy(&mut self, moved: bool, actions: &mut Vec<SourceAction>) {
        if !self.is_destroyed() {
            self.state = SourceState::Destroyed;
            actions.push(SourceAction::Destroy { moved });
        }
    }
}

#[cfg(test)]
mod transitions;
