//! A load that several processes make together, on this machine or on many.
//!
//! One process is the controller: it has the plan, gives each worker a part of it ([`Portion`](crate::portion::Portion)), has all
//! begin at one instant, and merges what they count. Workers keep nothing: a job comes over the wire with all that it needs, and a
//! worker whose controller goes away drops it.
//!
//! ```text
//!   controller (fleet) ---- link ---- worker on another machine: TCP, mutual TLS, role `bench` on both sides
//!                     \---- link ---- worker process of the same machine: standard input and output
//! ```
//! What goes over a link is the same in both cases (`wire`).

mod inbox;
mod link;
mod listen;
mod parent;
mod serve;
mod untold;
mod wire;

pub(crate) use inbox::Inbox;
pub(crate) use link::{Link, LinkError};
pub use listen::{ListenError, Listening};
pub use parent::serve_parent;
pub(crate) use wire::{AHEAD_MAX, HEARTBEAT, Job, Order, Report, SILENCE_MAX, TalkError, send};
