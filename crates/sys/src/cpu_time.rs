use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The CPU time of this thread, by the clock of the kernel. Waits for a processor do not count.
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_nanos(time.tv_nsec.unsigned_abs())
}
