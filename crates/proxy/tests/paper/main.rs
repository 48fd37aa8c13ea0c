//! The experiments of Doi and Goto ("HTTP session handover", 2008) with the real proxy.
//!
//! Measurements are printed and not asserted, because they differ on a busy machine. `make paper` shows them.

#![allow(clippy::unwrap_used)]
// Bytes and times, far below 2^52, are converted to rates.
#![allow(clippy::cast_precision_loss)]

#[path = "../proxy/common/mod.rs"]
mod common;
mod handovers;
mod loads;
mod rebalancing;
mod swing;
