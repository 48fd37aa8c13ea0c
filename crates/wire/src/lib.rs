//! What nodes say to each other: versioned, length-bounded codecs; the PROXY protocol.
//!
//! * [`Message`] is everything that crosses the mesh, [`frame`] how it is put on a link.
//! * [`leg`] is the preface that opens each leg: a PROXY protocol v2 header that carries an authenticator.
//! * [`proxy`] is the PROXY protocol itself.
//!
//! Nothing here opens a socket, reads a clock or draws randomness. Everything is parsed as hostile input:
//! lengths are checked before anything is allocated, and what is unknown is refused with its reason.

pub mod frame;
pub mod leg;
mod message;
mod names;
pub mod proxy;

pub use message::*;
pub use names::*;
