//! The protocols between nodes: versioned codecs with bounded lengths, and the PROXY protocol.
//!
//! * [`Message`] has the messages about connections, and [`LinkMessage`] those about a link. [`frame`] encodes both.
//! * [`leg`] is the preface that begins each leg: a PROXY protocol v2 header with an authenticator.
//! * [`proxy`] is the PROXY protocol.
//!
//! This crate opens no socket, reads no clock and draws no randomness. It treats all input as hostile: it checks
//! lengths before it allocates, and refuses unsupported input with the reason.

mod bounds;
mod digest;
pub mod frame;
mod kind;
pub mod leg;
mod link;
mod members;
mod message;
pub mod proxy;
mod replay;

#[cfg(test)]
mod arbitrary;

pub use bounds::*;
pub use kind::MessageKind;
pub use link::{Hello, LinkMessage, VERSION_MAX, VERSION_MIN};
pub use members::{Member, Members, Verdict};
pub use message::*;
