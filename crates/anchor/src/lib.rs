//! Anchored streams. A connection that has become a tunnel, or whose response cannot be requested again, moves without
//! its origin: the *anchor*, the agent that has the connection to the origin, keeps it, and exchanges its bytes with the
//! *owner*, the agent that has the client's connection now.
//!
//! ```text
//!   client === dispatcher === owner <--- AnchoredMessage ---> anchor === origin
//! ```
//!
//! Both directions have exact offsets. A receiver acknowledges bytes when it has passed them on, and the sender keeps
//! them until then. Messages may be lost, repeated and reordered, because links of the mesh break and their queues may
//! be full: both ends ask again (`tick`) until they agree.
//!
//! The owner's end is a value: it moves with the client's connection ([`Endpoint::export`]). The anchor's end serves
//! the owner of the highest epoch that has attached.
//!
//! # Invariants
//!
//! 1. The bytes that one end reads are a prefix of those that the other end was given, whatever happens to messages, and
//!    however often the owner's end moves.
//! 2. The end of a direction is read only after all its bytes.
//! 3. An end holds at most [`ANCHORED_WINDOW_LEN`](watari_wire::ANCHORED_WINDOW_LEN) bytes of each direction, and the
//!    piece without room that came with its last move.
//!
//! This crate opens no socket, reads no clock and draws no randomness.

mod endpoint;
mod incoming;
mod outgoing;

pub use endpoint::{Endpoint, Failure, SILENT_TICKS_MAX, TICK, first_owner};
