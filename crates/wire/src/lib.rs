//! What nodes say to each other: versioned, length-bounded codecs; the PROXY protocol.
//!
//! * [`Message`] is everything nodes say about connections, [`LinkMessage`] what they say about the link they share,
//!   [`frame`] how both are put on it.
//! * [`leg`] is the preface that opens each leg: a PROXY protocol v2 header that carries an authenticator.
//! * [`proxy`] is the PROXY protocol itself.
//! * [`client_hello`] reads the name a client asks for from its first bytes.
//!
//! Nothing here opens a socket, reads a clock or draws randomness. Everything is parsed as hostile input:
//! lengths are checked before anything is allocated, and what is unknown is refused with its reason.

mod bounds;
pub mod client_hello;
mod digest;
pub mod frame;
mod kind;
pub mod leg;
mod link;
mod members;
mod message;
mod names;
pub mod proxy;
mod replay;

#[cfg(test)]
mod arbitrary;

pub use bounds::*;
pub use kind::MessageKind;
pub use link::{Hello, LinkMessage};
pub use members::{Member, Members, Verdict};
pub use message::*;
pub use names::*;
