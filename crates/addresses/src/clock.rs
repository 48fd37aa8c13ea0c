//! The clock of leases.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use watari_takeover::Time;

/// The clock of leases as a duration.
pub(crate) fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// `CLOCK_BOOTTIME`: no one can set it, and it goes on while the machine is suspended.
pub(crate) fn now() -> Time {
    let time = since_boot();
    Time::new(time.as_secs(), time.subsec_nanos())
}
