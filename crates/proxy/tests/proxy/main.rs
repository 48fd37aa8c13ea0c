//! The proxy between clients and origins of the tests.

#![allow(clippy::unwrap_used)]

mod access_log;
mod balancing;
mod cache;
mod checks;
mod common;
mod compatibility;
mod forwarding;
mod gate;
mod handover;
mod misbehaving_origins;
mod moves;
mod names;
mod queue;
mod reload;
mod shape;
mod transports;
mod upgrades;
