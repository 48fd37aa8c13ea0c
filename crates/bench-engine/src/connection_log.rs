//! Where the samples of connections go, one by one. Tallies only have their sums.

use std::fmt;

use crate::sample::ConnectionSample;

/// Receives the sample of each connection, from all threads.
pub trait ConnectionLog: Send + Sync + fmt::Debug {
    /// Receives a sample. May block, which delays the load.
    fn ended(&self, sample: &ConnectionSample);
}
