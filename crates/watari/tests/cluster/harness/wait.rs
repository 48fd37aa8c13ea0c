//! Polls until a state is reached.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Long enough for the slowest machine, and for the timeouts of an agent. Only a failing test waits so long.
pub(crate) const WAIT_MAX: Duration = Duration::from_mins(1);

/// The polling interval.
const PAUSE: Duration = Duration::from_millis(10);

/// Polls until `look` returns a value.
pub(crate) fn until_some<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    look_until(Instant::now() + WAIT_MAX, look).unwrap_or_else(|| panic!("waited in vain until {what}"))
}

/// Polls until `condition` holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    until_some(what, || condition().then_some(()));
}

/// Polls until `look` returns a value. `None`: `deadline` has passed.
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
