//! Loads against scripted servers: every ending, counted once, with its phase and its side.

#![allow(clippy::unwrap_used)]

mod endings;
mod harness;
mod loops;
mod tls;
