//! The value types that all crates share.
//!
//! * [`duration`] and [`size`]: the text forms of durations and of sizes in configuration and arguments.
//!
//! This crate uses no other crate of the workspace.

pub mod duration;
pub mod size;
