//! The move of a live connection between agents, as three state machines.
//!
//! ```text
//!   source A                 dispatcher D                  target B
//!   [`Source`]               [`Arbiter`]                   [`Target`]
//!      | fence                    |                            |
//!      |--------------------- Ship (state, rest, tail) ------->|
//!      |--- Propose ------------->| stop reading the client    |
//!      |                          |<--------------- Held ------|  may not seal yet
//!      |<-- Freeze -- (only if D had relayed more than A had read)
//!      |----------------------- Rest ------------------------->|
//!      |                          |<--------------- Held ------|
//!      |                          | tail relayed, leg ready:   |
//!      |                          | DECIDE, once               |
//!      |                          |=== preface of B's leg ====>|  seals, opens, goes on
//!      |<-- Committed ------------|                            |
//!      | destroy                  |                            |
//! ```
//!
//! Instead of the commit, D may decide to abort and send *Aborted* to both: A thaws and serves on, B drops what it
//! holds.
//!
//! * **Only D decides, once per connection and epoch.** A fenced source seals again only after an `Aborted` for its
//!   epoch. A target seals only after the preface of a leg says that the dispatcher has committed its epoch. So
//!   suspicion, early timers, and lost, late and repeated messages cost time or the connection, but never lead to a
//!   second sealer.
//! * **Offsets make the cut.** D stops reading the client at `rx_offset`, and A stops writing at `tail_offset`. The
//!   target gets the client's stream from the point up to which A had opened it. It continues the stream to the client
//!   at `tail_offset`.
//! * **FIN has no meaning inside a move.** `Final` announces the end of the stream to the client.
//!
//! The machines hold no socket, no clock, no randomness and no state of the record layer. All are driven in the same
//! way: call `handle` with one event, then carry out the actions it appended, in order. `tests/model` checks the three
//! together, exhaustively. `src/*/transitions.txt` list the effect of each event in every state.
//!
//! # Duties of the drivers
//!
//! * **Timers are not part of the protocol's safety.** They may fire at any moment, and no machine relies on their
//!   length. The move timer should be shorter than the fence timer, and the fence timer shorter than the hold timer.
//!   Then a target gives up only after the decision, and no connection is lost by that.
//! * **An agent accepts a `Ship` only if its epoch is later than any it has for the connection**: the epoch it holds,
//!   and [`Source::epoch`] of a connection that it serves or has fenced. Other `Ship`s are late copies.
//! * **An agent repeats `Final` until the dispatcher closes the leg** or sends `Gone`: the message may be lost, and FIN
//!   has no meaning.
//! * **A preface counts once.** A second leg with the same decision finds no held connection, and is reset.
//! * **A node may be source and target at once**, in different epochs: in a move there and back, the commit of the
//!   second attempt can overtake the `Committed` of the first. The activated connection replaces the fenced copy.
//! * **A leg may carry another connection after a commit** only if both ends confirm that they are at the cut: first
//!   the dispatcher with the decision, then the source on the leg itself.
//! * **A dispatcher answers messages about a connection that it no longer has with `Gone`**. It replays the client's
//!   FIN on each leg that it commits to.

mod arbiter;
mod change;
mod source;
mod target;
#[cfg(test)]
mod transitions;

pub use arbiter::{Arbiter, ArbiterAction, ArbiterEvent, ArbiterTimer, Offer, ResetCause};
pub use change::{AgentLeg, Giving, GivingAction, Taking};
pub use source::{Source, SourceAction, SourceEvent};
pub use target::{Target, TargetAction, TargetEvent};
