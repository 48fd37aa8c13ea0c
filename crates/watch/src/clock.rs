//! The clock of frames.

use std::time::{SystemTime, UNIX_EPOCH};

use watari_packets::Timestamp;

/// The time by the kernel's clock for frames.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
