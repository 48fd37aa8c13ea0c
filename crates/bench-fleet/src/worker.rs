//! A load that several processes generate together, on one machine or on many.
//!
//! One process is the controller. It has the plan, sends each worker its part (`watari_bench_engine::portion`), starts
//! all workers at the same instant, and merges their tallies. Workers store nothing: a job contains everything that the
//! worker needs. A worker whose controller disappears drops its job.
//!
//! ```text
//!   controller (fleet) ---- link ---- worker on another machine: TCP, mutual TLS, role `bench` on both sides
//!                     \---- link ---- worker process of the same machine: standard input and output
//! ```
//! The messages on a link are the same in both cases (`wire`).
//!
//! Imports: no sibling.

mod link;
mod listen;
mod parent;
mod sample_queue;
mod serve;
mod wire;

pub(crate) use link::{Link, LinkError};
pub use listen::{ListenError, Listening};
pub use parent::serve_parent;
pub(crate) use wire::{AHEAD_MAX, HEARTBEAT, Job, Order, Report};
