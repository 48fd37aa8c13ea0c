//! A whole cluster in one process: the real cores under a seeded scheduler with virtual time.
//!
//! ```text
//!   clients ──TCP──▶ dispatcher ──legs──▶ agents        a seed makes the plan: files, habits, moves, faults
//!                         └───── mesh ──────┘           virtual time, one queue of events, one source of randomness
//! ```
//!
//! * **Real**: `watari_relay::Relay` with its arbiter, `watari_handoff::{Source, Target}`, `watari_record` with real
//!   keys below `watari_stream`, `watari_connection` with `leaving` and `watari_http1`, the prefaces of `watari_wire` and the messages.
//! * **Simulated**: TCP (`network`, `socket`: small buffers, delays, FIN, reset), messages of the mesh (lost, late,
//!   repeated, in any order), clients (slow, stalled, vanishing), files whose bytes are a function of the offset.
//! * **Glue**, which mirrors tokio code: `dispatcher` that of `crates/dispatcher`, `agent` that of `crates/agent`.
//! * **Left out**: TLS handshakes, HTTP/2, sessions, origins behind agents, anchored streams.
//!
//! [`run`] checks the invariants of the move byte for byte:
//!
//! 1. No two records of a client are sealed with one nonce (`ledger`).
//! 2. Each client gets exactly the bytes of its files. A stream that is cut does not end cleanly.
//! 3. If no node crashes and no client leaves, every client gets everything: a move that does not commit does no harm.
//! 4. If also nothing is lost or late, every attempt is decided in time, however slow the client is, as long as the
//!    bytes that wait for it are below their bound.
//! 5. Every connection ends, and the bytes that wait for a client are bounded.
//!
//! The same seed gives the same run, event for event. [`Sabotage`] breaks one rule, and the run has to notice.

mod agent;
mod client;
mod dispatcher;
mod file;
mod ledger;
mod message;
mod network;
mod plan;
mod random;
mod sabotage;
mod socket;
mod tls;
mod world;

pub use network::{Figures, Trace};
pub use sabotage::Sabotage;
pub use world::{Outcome, run, run_traced};
