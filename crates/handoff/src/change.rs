//! A connection changes its dispatcher, and stays at its agent.
//!
//! ```text
//!   D1  [`Giving`]               agent  [`AgentLeg`]            D2  [`Taking`]
//!    |--- DetachLeg --------------->| writes no more on D1's leg    |
//!    |<-- LegDetached {tx_offset} --|                               |
//!    | reads up to tx_offset, and freezes the client's socket       |
//!    |--- StatePart ..----------------------------------------------->| restores the socket, which stays silent
//!    |<-- TakeHeld ---------------------------------------------------| and connects a leg
//!    | discards its socket          |                               |
//!    |--- Given ----------------------------------------------------->| DECIDED: releases the socket
//!    |                              |<=== preface (Continue) =======|
//!    |                              | reads D1's leg to its end, then D2's leg; writes on D2's leg
//!    |<-- Taken ------------------------------------------------------|
//! ```
//!
//! * **One dispatcher.** Only D1 decides. Before `Given` it may go on by itself at any time, and repeats `AttachLeg` until
//!   the agent answers (`LegAttached`). After it has discarded its socket, it never does. D2 lets nothing out before
//!   `Given`.
//! * **One leg.** The agent writes on one leg at a time. D1's leg has its bytes up to `tx_offset`, and D2's leg those
//!   after it. In the other direction, D1's leg has the client's bytes up to `rx_offset`, which D2's preface names. A leg
//!   of D1 that ends before that offset has lost bytes, and the agent resets.
//! * **Numbers.** Each attempt has a number, which counts up for each connection, over all its dispatchers. Messages with
//!   another number are late.

use serde::{Deserialize, Serialize};
use watari_values::NodeName;

/// The agent's part: which dispatcher's leg it writes on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct AgentLeg {
    /// The last attempt. 0: there was none.
    last: u32,
    /// The dispatcher whose leg is awaited.
    awaited: Option<NodeName>,
}

impl AgentLeg {
    /// A leg that the agent writes on. `last`: the last attempt in another process.
    pub fn after(last: u32) -> Self {
        Self { last, awaited: None }
    }

    /// The number of the last attempt. 0: there was none.
    pub fn last(&self) -> u32 {
        self.last
    }

    /// Whether the agent may write on its leg.
    pub fn may_write(&self) -> bool {
        self.awaited.is_none()
    }

    /// The dispatcher asks to detach the leg, for `to`. Returns whether to answer by the offset up to which the agent has
    /// written: also a repeated request.
    pub fn on_detach(&mut self, number: u32, to: &NodeName) -> bool {
        if number > self.last {
            (self.last, self.awaited) = (number, Some(to.clone()));
            return true;
        }
        number == self.last && self.awaited.as_ref() == Some(to)
    }

    /// The dispatcher goes on by itself. Returns whether the agent writes on its leg again.
    ///
    /// An order that overtakes its request counts too: the request is void then.
    pub fn on_attach(&mut self, number: u32) -> bool {
        if number < self.last {
            return false;
        }
        self.last = number;
        self.awaited.take().is_some()
    }

    /// A leg of `from` with a preface arrived. Returns whether it replaces the previous leg.
    pub fn on_continue(&mut self, number: u32, from: &NodeName) -> bool {
        let fits = number == self.last && self.awaited.as_ref() == Some(from);
        if fits {
            self.awaited = None;
        }
        fits
    }
}

/// D1's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Giving {
    number: u32,
    state: GivingState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum GivingState {
    /// The agent still writes.
    Detaching,
    /// The agent writes no more. D1 reads up to this offset.
    Detached { tx_offset: u64 },
    /// D2 may hold the connection.
    Offered,
    /// D2 has the connection. It may not know yet.
    Given,
    /// D2 has the connection.
    Taken,
    /// D1 goes on. The agent may not know yet.
    Attaching,
    /// D1 goes on, and the agent writes again.
    Kept,
}

/// What D1 does next. Actions are carried out at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GivingAction {
    /// Discard the frozen socket, and then send `Given`.
    Give,
    /// Thaw the socket if it is frozen, go on, and send `AttachLeg`. Repeat it until the answer.
    GoOn,
    /// Reset the connection: the agent has written behind the end that it announced.
    Reset,
}

impl Giving {
    /// Begins attempt `number`: send `DetachLeg`, and repeat it until the answer.
    pub fn begin(number: u32) -> Self {
        Self { number, state: GivingState::Detaching }
    }

    /// The number of the attempt.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether `DetachLeg` is to be repeated.
    pub fn is_detaching(&self) -> bool {
        self.state == GivingState::Detaching
    }

    /// Whether the agent writes no more, and D1 may not have read all.
    pub fn is_detached(self) -> bool {
        matches!(self.state, GivingState::Detached { .. })
    }

    /// Whether `Given` is to be repeated.
    pub fn is_given(&self) -> bool {
        self.state == GivingState::Given
    }

    /// Whether `AttachLeg` is to be repeated.
    pub fn is_attaching(&self) -> bool {
        self.state == GivingState::Attaching
    }

    /// The agent has written up to `tx_offset` and writes no more. D1 has read `relayed` bytes of it.
    pub fn on_detached(&mut self, number: u32, tx_offset: u64, relayed: u64) -> Option<GivingAction> {
        if number != self.number || !self.is_detaching() {
            return None;
        }
        self.state = GivingState::Detached { tx_offset };
        self.on_relayed(relayed)
    }

    /// D1 has read `relayed` bytes of the stream to the client.
    pub fn on_relayed(&mut self, relayed: u64) -> Option<GivingAction> {
        match self.state {
            GivingState::Detached { tx_offset } if relayed > tx_offset => Some(GivingAction::Reset),
            _ => None,
        }
    }

    /// Whether D1 has read all that the agent has written on its leg. Then it may freeze the client's socket, and ship
    /// the connection ([`Giving::offer`]).
    pub fn is_quiet(&self, relayed: u64) -> bool {
        self.state == (GivingState::Detached { tx_offset: relayed })
    }

    /// The connection is frozen and about to be shipped.
    pub fn offer(&mut self) {
        debug_assert!(matches!(self.state, GivingState::Detached { .. }));
        self.state = GivingState::Offered;
    }

    /// D2 holds the connection.
    pub fn on_held(&mut self, number: u32) -> Option<GivingAction> {
        if number != self.number || self.state != GivingState::Offered {
            return None;
        }
        self.state = GivingState::Given;
        Some(GivingAction::Give)
    }

    /// D2 refuses the connection, or the time of the attempt is over.
    pub fn on_failure(&mut self) -> Option<GivingAction> {
        match self.state {
            GivingState::Detaching | GivingState::Detached { .. } | GivingState::Offered => {
                self.state = GivingState::Attaching;
                Some(GivingAction::GoOn)
            }
            GivingState::Given | GivingState::Taken | GivingState::Attaching | GivingState::Kept => None,
        }
    }

    /// The agent writes on D1's leg again.
    pub fn on_attached(&mut self, number: u32) {
        if number == self.number && self.is_attaching() {
            self.state = GivingState::Kept;
        }
    }

    /// D2 has received `Given`.
    pub fn on_taken(&mut self, number: u32) {
        if number == self.number && self.is_given() {
            self.state = GivingState::Taken;
        }
    }
}

/// D2's part. It exists from the moment at which the whole state is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Taking {
    number: u32,
    state: TakingState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TakingState {
    /// The socket is restored and silent.
    Held,
    /// The connection is D2's.
    Live,
    /// D1 has not decided in time. Nothing has left D2.
    Dropped,
}

impl Taking {
    /// D2 holds the connection: send `TakeHeld`.
    pub fn hold(number: u32) -> Self {
        Self { number, state: TakingState::Held }
    }

    /// The number of the attempt.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// D1 has given the connection up. Returns whether D2 goes on with it now. `Given` is answered by `Taken` unless D2
    /// has dropped the connection.
    pub fn on_given(&mut self, number: u32) -> bool {
        let is_first = number == self.number && self.state == TakingState::Held;
        if is_first {
            self.state = TakingState::Live;
        }
        is_first
    }

    /// Whether the connection is D2's.
    pub fn is_live(&self) -> bool {
        self.state == TakingState::Live
    }

    /// No decision has arrived in time, or D1 begins another attempt. Returns whether the connection is D2's all the same.
    /// Otherwise D2 drops it.
    pub fn on_timeout(&mut self) -> bool {
        if self.state == TakingState::Held {
            self.state = TakingState::Dropped;
        }
        self.is_live()
    }
}
