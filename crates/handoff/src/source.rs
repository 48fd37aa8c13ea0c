//! The part of the agent that gives a connection away.

use watari_wire::{AbortReason, Epoch, NodeName};

/// Gives one connection away, or tries to.
///
/// ```text
///             Propose                 Committed, Gone, Expired
///   Serving ------------> Fenced --------------------------------> Destroyed
///      ^                    |
///      +--------------------+  Aborted: Thaw
/// ```
///
/// While `Fenced` the agent neither opens nor seals nor writes; it reads the leg only as far as a freeze says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source {
    state: State,
    /// The epoch of the last attempt, or of the commit that brought the connection here.
    last: Epoch,
    rest_len_max: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum State {
    Serving,
    Fenced {
        target: NodeName,
        /// Shipped so far.
        rx_offset: u64,
        /// Where the dispatcher cut the client's stream, once it said so.
        frozen: Option<u64>,
    },
    Destroyed,
}

/// What happens to a connection at its source.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SourceEvent {
    /// The agent wants to hand the connection over, has fenced it and flushed or kept what it had sealed. It has not
    /// announced the end of the stream to the client.
    Propose {
        /// To whom.
        target: NodeName,
        /// How much of the client's stream the agent has read.
        rx_offset: u64,
    },
    /// The dispatcher has cut the client's stream at `rx_offset`.
    Freeze {
        /// The attempt.
        epoch: Epoch,
        /// Where.
        rx_offset: u64,
    },
    /// The agent has read the client's stream up to here (asked for by [`SourceAction::ReadTo`]).
    Read {
        /// Up to where.
        rx_offset: u64,
    },
    /// The dispatcher committed.
    Committed(Epoch),
    /// The dispatcher aborted.
    Aborted(Epoch, AbortReason),
    /// The dispatcher does not know the connection as this agent's.
    Gone,
    /// It is time to ask again for a decision that has not come.
    Retry,
    /// No decision came for so long that none will; or the leg is lost.
    Expired,
}

/// What the source must do, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SourceAction {
    /// Send the state, what is unopened up to `rx_offset`, and the tail to `target`.
    Ship {
        /// To whom.
        target: NodeName,
        /// The attempt.
        epoch: Epoch,
        /// The end of the unopened bytes.
        rx_offset: u64,
    },
    /// Send the proposal (again) to the dispatcher.
    Propose {
        /// To whom the connection goes.
        target: NodeName,
        /// The attempt.
        epoch: Epoch,
        /// How much of the client's stream is shipped.
        rx_offset: u64,
    },
    /// Read the leg up to this offset of the client's stream, and report it with [`SourceEvent::Read`].
    ReadTo(u64),
    /// Send these bytes of the client's stream to `target`.
    Rest {
        /// To whom.
        target: NodeName,
        /// The attempt.
        epoch: Epoch,
        /// First byte.
        from_offset: u64,
        /// One past the last.
        to_offset: u64,
    },
    /// Tell the dispatcher that this attempt cannot be completed.
    Cancel {
        /// The attempt.
        epoch: Epoch,
        /// Why.
        reason: AbortReason,
    },
    /// Go on serving the connection here.
    Thaw(AbortReason),
    /// Destroy the state and close the leg.
    Destroy {
        /// The connection goes on at the target; else it is lost.
        moved: bool,
    },
}

impl Source {
    /// A connection whose last epoch was `last`: of the commit that brought it here (0: its handshake was here), or of an
    /// attempt since that was aborted. At most `rest_len_max` unopened bytes are shipped after the first message.
    pub fn new(last: Epoch, rest_len_max: u64) -> Self {
        Self { state: State::Serving, last, rest_len_max }
    }

    /// Whether the agent may open and seal records of this connection.
    pub fn is_serving(&self) -> bool {
        matches!(self.state, State::Serving)
    }

    /// Whether the connection is no longer here.
    pub fn is_destroyed(&self) -> bool {
        matches!(self.state, State::Destroyed)
    }

    /// The last attempt, or the commit that brought the connection here. A `Ship` of this epoch or an earlier one is a
    /// late copy: the agent drops it, rather than hold a state that was used since.
    pub fn epoch(&self) -> Epoch {
        self.last
    }

    /// Takes one event; appends what must be done.
    pub fn handle(&mut self, event: SourceEvent, actions: &mut Vec<SourceAction>) {
        match event {
            SourceEvent::Propose { target, rx_offset } => self.propose(target, rx_offset, actions),
            SourceEvent::Freeze { epoch, rx_offset } => self.on_freeze(epoch, rx_offset, actions),
            SourceEvent::Read { rx_offset } => self.on_read(rx_offset, actions),
            SourceEvent::Committed(epoch) if self.is_fenced_in(epoch) => self.destroy(true, actions),
            SourceEvent::Aborted(epoch, reason) if self.is_fenced_in(epoch) => {
                self.state = State::Serving;
                actions.push(SourceAction::Thaw(reason));
            }
            SourceEvent::Gone | SourceEvent::Expired => self.destroy(false, actions),
            SourceEvent::Retry => self.repeat_proposal(actions),
            // A decision about another attempt than the present one: a late copy.
            SourceEvent::Committed(_) | SourceEvent::Aborted(..) => {}
        }
    }

    fn propose(&mut self, target: NodeName, rx_offset: u64, actions: &mut Vec<SourceAction>) {
        assert!(self.is_serving(), "only a connection that is served here can be given away");
        let Some(epoch) = self.last.0.checked_add(1).map(Epoch) else {
            // The last epoch there is: another attempt could not be told from this one.
            return actions.push(SourceAction::Thaw(AbortReason::Full));
        };
        self.last = epoch;
        actions.push(SourceAction::Ship { target: target.clone(), epoch: self.last, rx_offset });
        self.state = State::Fenced { target, rx_offset, frozen: None };
        self.repeat_proposal(actions);
    }

    fn repeat_proposal(&self, actions: &mut Vec<SourceAction>) {
        if let State::Fenced { target, rx_offset, .. } = &self.state {
            let (target, rx_offset) = (target.clone(), *rx_offset);
            actions.push(SourceAction::Propose { target, epoch: self.last, rx_offset });
        }
    }

    fn on_freeze(&mut self, epoch: Epoch, cut: u64, actions: &mut Vec<SourceAction>) {
        let last = self.last;
        let State::Fenced { rx_offset, frozen, .. } = &mut self.state else { return };
        // A repeated freeze needs no second answer; one that cuts before what was shipped contradicts the stream.
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
        let State::Fenced { target, rx_offset, frozen } = &mut self.state else { return };
        if *frozen != Some(read) || read == *rx_offset {
            return;
        }
        let from_offset = std::mem::replace(rx_offset, read);
        actions.push(SourceAction::Rest { target: target.clone(), epoch, from_offset, to_offset: read });
    }

    fn is_fenced_in(&self, epoch: Epoch) -> bool {
        epoch == self.last && matches!(self.state, State::Fenced { .. })
    }

    fn destroy(&mut self, moved: bool, actions: &mut Vec<SourceAction>) {
        if !self.is_destroyed() {
            self.state = State::Destroyed;
            actions.push(SourceAction::Destroy { moved });
        }
    }
}

#[cfg(test)]
mod transitions;
