//! Waiting for a state to be reached.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Long enough for the slowest machine, and for an agent to give up what it holds; nothing waits so long unless it fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Looks again and again until there is what is looked for.
pub(crate) fn until_some<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    look_until(Instant::now() + PATIENCE, look).unwrap_or_else(|| panic!("waited in vain until {what}"))
}

/// Looks again and again until `condition` holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    until_some(what, || condition().then_some(()));
}

/// Looks again and again; `None` if nothing was seen before `deadline`.
pub(crate) fn look_until<T>(deadline: Instant, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        if let Some(seen) = look() {
            return Some(seen);
        }
        if Instant::now() > deadline {
            return None;
        }
        sleep(PAUSE);
    }
}
