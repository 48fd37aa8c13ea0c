//! TLS record protection after the handshake, for TLS 1.2 and TLS 1.3, with connection state that can move.
//!
//! A handshake (made elsewhere) ends in [`Secrets`]. [`Connection`] takes them and from then on turns plaintext into
//! records and records into plaintext: bytes in, bytes out. No socket, no clock and no randomness is inside.
//!
//! * [`Connection::header`] says how long the next record is, [`Connection::open`] opens it in place.
//! * [`Connection::seal`] appends records to a buffer of the caller's; [`Connection::seal_answers`] appends what the
//!   peer has asked for. The drive contract: after every `open`, look at [`Connection::answers_due`].
//! * [`Connection::fence`] ends sealing and opening by type and gives the state as bytes; [`Connection::import`] makes
//!   a connection from such bytes, on this machine or another.
//!
//! Invariants:
//! * No nonce is used twice: sequence numbers only grow, and a connection is never cloned; two connections with one
//!   state can come only from importing a state twice, or from importing it and thawing its source. The handoff's
//!   single decision is what excludes these.
//! * Everything that comes from the peer or from another node is hostile: lengths are checked before they are used,
//!   and nothing here panics on input.
//! * Secrets are zeroized when dropped and never printed.

mod alert;
mod connection;
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
pub use error::{ImportError, OpenError, PeerMisbehaved, SealError, SecretsError};
pub use header::{ContentType, FRAGMENT_LEN_MAX, HEADER_LEN, RECORD_LEN_MAX, RecordHeader};
pub use keys::{TrafficKey, derive_traffic_key};
pub use secrets::{Direction, DirectionSecret, Secrets, Side};
pub use state::Fenced;
pub use suite::{Aead, CipherSuite, Hash, Version};

#[cfg(test)]
mod tests;
