//! Real connections over real interfaces are captured.
#![allow(clippy::unwrap_used)]

mod drops;
mod errors;
mod network;
mod rings;
mod seen;
mod wires;
