//! Causes of failures, for people who read a report.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Causes of failures, as sentences, with counts. At most `CAUSES_MAX` different ones.
#[derive(Debug, Default)]
pub struct Causes {
    counts: Mutex<BTreeMap<String, u64>>,
}

impl Causes {
    /// Adds `often` occurrences of a cause.
    pub fn add(&self, mut cause: String, often: u64) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        // A cause may contain text of a server, so its length is bounded.
        cause.truncate(cause.floor_char_boundary(CAUSE_BYTES_MAX));
        if counts.len() < CAUSES_MAX || counts.contains_key(&cause) {
            let count: &mut u64 = counts.entry(cause).or_default();
            *count = count.saturating_add(often);
        }
    }

    /// Removes all causes with their counts.
    pub fn take(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

const CAUSES_MAX: usize = 20;
const CAUSE_BYTES_MAX: usize = 200;
