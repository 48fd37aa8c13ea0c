//! Captures real connections over real interfaces.
#![allow(clippy::unwrap_used)]

mod drops;
mod errors;
mod network;
mod rings;
mod seen;
mod wires;
