//! The preface: the first bytes on a leg, which identify the connection that the leg carries.
//!
//! A leg is a TCP connection from a dispatcher to an agent. It begins with a PROXY protocol v2 header, so that any tool
//! with support for the protocol can read the client's and the server's address. The header has one type-length-value
//! of Watari:
//!
//! ```text
//!  PROXY v2 head | addresses | type 0xE5, length | version | postcard of the claim | authenticator
//!  |<------------------------ HMAC-SHA256 covers this -------------------------->|    32 bytes
//! ```
//!
//! The agent makes the key and sends it to one dispatcher over the mesh ([`LegKey`](crate::LegKey)). So an
//! authenticator is valid for one agent, one dispatcher and one key. The nonce makes it valid for one leg.
//!
//! A leg may carry another connection after its connection has moved away or ended. The agent writes [`LEG_FREE`], and
//! the next bytes of the dispatcher are a preface again.

mod preface;
mod sign;
mod verify;

pub use preface::{Kind, PREFACE_LEN_MAX, Preface};
pub use sign::LegSigner;
pub use verify::{Accepted, ExportedLegKey, LegVerifier, Malformed, PrefaceError};

/// The byte that an agent writes on a leg after the leg's connection has moved away or ended. The agent has read all
/// bytes of that connection, and reads a preface next. The byte belongs to no connection. After it, the dispatcher may
/// write the preface.
pub const LEG_FREE: u8 = 0xf7;

#[cfg(test)]
mod tests;
