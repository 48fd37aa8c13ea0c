//! One client connection at its dispatcher, as a value: which side is read and written when, which agent has the
//! connection, and when it is over.
//!
//! A [`Relay`] contains the connection's [`Arbiter`](watari_handoff::Arbiter). It holds no socket, no byte and no
//! clock. Its driver owns the sockets, the bytes that wait, the messages and the timer, and decides nothing:
//!
//! 1. Wait for what [`Relay::interest`] lists, for messages, and until [`Relay::timeout`].
//! 2. Read or write once, and call [`Relay::handle`] with the result as one [`Input`].
//! 3. Carry out [`Relay::poll_action`] until it returns `None`. If an action has a result, the driver calls
//!    [`Relay::handle`] with it before the next action. Actions that follow from it come after those that are pending.
//! 4. End when [`Relay::is_over`].
//!
//! A [`Snapshot`] of a relay passes to another process, which goes on with it.
//!
//! The bytes that wait to be written belong to the connection, not to a leg. In each direction, bytes read = bytes
//! written + bytes waiting, and the arbiter gets each count once.

mod deadlines;
mod events;
mod relay;
#[cfg(test)]
#[path = "../../handoff/src/transitions.rs"]
mod transitions;
mod waiting;

pub use deadlines::Timeouts;
pub use events::{Action, ClientRead, Context, DispatcherState, Input, Interest, LegRead};
pub use relay::{CannotChange, Relay, Snapshot, Start, UNDELIVERED_LEN_MAX};
