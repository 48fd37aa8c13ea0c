//! Waits until a condition holds.

use std::time::{Duration, Instant};

/// Long enough for the slowest machine. Only a failing test waits this long.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// Polls until `condition` holds.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    while !condition().await {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
