//! TLS record protection after the handshake, for TLS 1.2 and TLS 1.3, with connection state that can move.
//!
//! A handshake, done elsewhere, ends in [`Secrets`]. From these, [`Connection`] turns plaintext into records and
//! records into plaintext: bytes in, bytes out. It holds no socket, no clock and no randomness.
//!
//! * [`Connection::header`] returns the length of the next record, and [`Connection::open`] opens it in place.
//! * [`Connection::seal`] appends records to a buffer of the caller. [`Connection::seal_answers`] appends the answers
//!   that the peer has requested. The drive contract: after every `open`, check [`Connection::answers_due`].
//! * [`Connection::fence`] ends sealing and opening, enforced by the type, and returns the state as bytes.
//!   [`Connection::import`] makes a connection from such bytes, on this machine or another.
//!
//! Invariants:
//! * No nonce is used twice. Sequence numbers only grow, and a connection cannot be cloned. Two connections with one
//!   state can only come from importing a state twice, or from importing it and thawing its source. The handoff's
//!   single decision excludes both.
//! * All input from the peer or another node is untrusted. Lengths are checked before use, and no input causes a panic.
//! * Secrets are zeroized when dropped and never printed.

mod alert;
mod connection;
mod content_type;
mod error;
mod header;
mod keys;
mod messages;
mod protection;
mod secrets;
mod state;
mod suite;

pub use alert::AlertDescription;
pub use connection::{Connection, Opened};
pub use content_type::ContentType;
pub use error::{ImportError, OpenError, PeerMisbehaved, SealError, SecretsError};
pub use header::{FRAGMENT_LEN_MAX, HEADER_LEN, RECORD_LEN_MAX, RecordHeader};
pub use keys::{TrafficKey, derive_traffic_key};
pub use secrets::{Direction, DirectionSecret, Secrets, Side};
pub use state::Fenced;
pub use suite::{Aead, CipherSuite, Hash, Version};

#[cfg(test)]
mod tests;
