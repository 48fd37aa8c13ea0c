//! What operators see: metrics, the access log, the state of pools; and the progress of bodies, which the minimum rates
//! are checked with.
//!
//! Imports from `exchange`.

pub(crate) mod access_log;
pub(crate) mod log_line;
pub(crate) mod metrics;
pub(crate) mod progress;
pub(crate) mod queue_metrics;
pub(crate) mod status;
