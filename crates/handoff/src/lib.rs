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
//! or, instead of the decision to commit, *Aborted* to both: A thaws and goes on, B drops what it holds.
//!
//! * **Only D decides, and once per connection and epoch.** A fenced source seals again only when told `Aborted` for
//!   its epoch; a target seals only when a leg's preface says the dispatcher has committed its epoch. So suspicion,
//!   early timers, lost, late and repeated messages cost time or the connection, never a second sealer.
//! * **Offsets make the cut.** D stops reading the client at `rx_offset`; A stops writing at `tail_offset`. The target
//!   gets the client's stream from where A had opened it, and continues the stream to the client at `tail_offset`.
//! * **FIN carries no meaning inside a move**; the end of the stream to the client is announced by `Final`.
//!
//! The machines hold no socket, clock, randomness or state of the record layer. Each is driven the same way: call
//! `handle` with one event, then carry out the actions it appended, in order. `tests/model` checks the three together,
//! exhaustively; `src/*/transitions.txt` list what each does in every state.
//!
//! # What the drivers see to
//!
//! * **Nobody is held to a time.** Timers may fire at any moment, and no machine relies on one having run its length.
//!   They are best set so that a move's ends before a fence's, and a fence's before a hold's: then a target that gives
//!   up has outlived the decision, and costs nobody a connection.
//! * **An agent takes a `Ship` only if its epoch is later than any it knows of the connection**: the one it holds, and
//!   [`Source::epoch`] of what it serves or has fenced. Anything else is a late copy.
//! * **An agent repeats `Final` until the dispatcher closes the leg** or says `Gone`: it may be lost, and FIN says
//!   nothing.
//! * **A preface counts once.** A second leg with the same decision finds no held connection, and is reset.
//! * **A node may be source and target at once**, of different epochs: in a move there and back, the commit of the
//!   second can overtake the news of the first. Activating replaces the fenced copy.
//! * **A leg may carry another connection after a commit** only if both ends say that they stand at the cut: the dispatcher
//!   with the decision, then the source on the leg itself.
//! * **A dispatcher answers whoever speaks of a connection it no longer has with `Gone`**, and replays the client's FIN
//!   on each leg it commits to.

mod arbiter;
mod source;
mod target;
#[cfg(test)]
mod transitions;

pub use arbiter::{Arbiter, ArbiterAction, ArbiterEvent, ArbiterTimer, Offer, ResetCause};
pub use source::{Source, SourceAction, SourceEvent};
pub use target::{Target, TargetAction, TargetEvent};
