//! The experiments of Doi and Goto ("HTTP session handover", 2008) with the proxy as it is.
//!
//! Figures are printed and not asserted, because a busy machine has others: `make paper` shows them.

#![allow(clippy::unwrap_used)]
// Bytes and times, far below 2^52, become rates.
#![allow(clippy::cast_precision_loss)]

#[path = "../proxy/common/mod.rs"]
mod common;
mod handovers;
mod loads;
mod rebalancing;
mod swing;
