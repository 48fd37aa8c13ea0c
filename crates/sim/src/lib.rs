//! A whole cluster in one process: the real cores under a seeded scheduler with virtual time.
//!
//! ```text
//!   clients ──TCP──▶ dispatcher ──legs──▶ agents ──TCP──▶ origins
//!                         └───── mesh ──────┘
//!   a seed makes the plan: resources, habits, moves, faults
//!   virtual time, one queue of events, one source of randomness
//! ```
//!
//! * **Real**: `watari_handshake` with rustls clients of TLS 1.2 and 1.3, `watari_relay::Relay` with its arbiter,
//!   `watari_handoff::{Source, Target}`, `watari_record` below `watari_stream`, `watari_connection` with `leaving`, both
//!   sides of `watari_http1`, `watari_handover`, `watari_anchor`, `watari_session` (ticket keys, stored sessions), the
//!   prefaces of `watari_wire` and the messages.
//! * **Simulated**: TCP (`network`, `socket`: small buffers, delays, FIN, reset), messages of the mesh (lost, late,
//!   repeated, in any order), clients (slow, stalled, vanishing), origins (slow, cut, restarted, with other versions),
//!   resources whose bytes are a function of the offset (`resource`).
//! * **Glue**, which mirrors tokio code: `dispatcher` that of `crates/dispatcher`, `agent` that of `crates/agent` and
//!   `crates/proxy`.
//! * **Left out**: HTTP/2, early data, client certificates, sessions for one use or outside the memory, the governor of
//!   handovers: the seed decides when a response moves to another origin.
//!
//! [`run`] checks the invariants of the cluster byte for byte:
//!
//! 1. No two records of a client are sealed with one nonce (`ledger`).
//! 2. Each client gets exactly the bytes of its resources. A stream that is cut does not end cleanly.
//! 3. If no node crashes and no client leaves, every client gets everything: a move that does not commit does no harm.
//!    Responses that only their own origin can continue may be cut.
//! 4. If also nothing is lost or late, every attempt is decided in time, however slow the client is, as long as the
//!    bytes that wait for it are below their bound.
//! 5. Every connection ends, and the bytes that wait for a client are bounded.
//! 6. The bytes of a tunnel are exact in both directions. Each stream between agents ends.
//! 7. A response continues at another origin only in the same version. While one origin is good, it does continue.
//! 8. No handshake fails. A session that is found is the one that was established. In calm runs, each session that a
//!    client offers is resumed, at any agent. Otherwise its client gets a full handshake.
//!
//! The same seed gives the same run, event for event. [`Sabotage`] breaks one rule, and the run has to notice.
//!
//! The libraries of TLS draw random bytes themselves, and rustls reads the system's clock for certificates and tickets.
//! Neither changes a run: the keys are of kinds whose messages do not vary in length (`pki`), certificates are valid for
//! centuries, and no event and no line of the [`Trace`] depends on the value of a secret. The ids of sessions, which
//! decide where they are stored, are renamed (`agent::sessions::names`).

mod agent;
mod client;
mod dispatcher;
mod figures;
mod file;
mod ledger;
mod message;
mod network;
mod origin;
mod pki;
mod plan;
mod random;
mod resource;
mod sabotage;
mod socket;
mod tls;
mod world;

pub use figures::Figures;
pub use network::Trace;
pub use sabotage::Sabotage;
pub use world::{Outcome, run, run_traced};
