//! The capacity of a server: the highest level of load at which it still meets conditions.
//!
//! ```text
//!   search --Probe--> idle? a load, held, warmed up, measured --Summary--> judge --Point--> curve --> chart, svg, page
//!     ^                                                                      |
//!     +-------------------------------- Outcome -----------------------------+
//! ```
//!
//! A level is a rate (requests a second, open loop) or a number of connections (closed loop). This module uses the unit
//! only in names.

pub mod chart;
pub mod curve;
pub mod idle;
pub mod judge;
pub mod page;
pub mod search;
pub mod sentence;
pub mod svg;
