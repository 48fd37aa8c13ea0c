//! Conversations over a pipe in memory.

#![allow(clippy::unwrap_used)]

mod conversations;
mod departures;
mod harness;
