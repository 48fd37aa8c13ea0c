//! Returns freed memory to the system.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

/// The interval at which each thread returns memory.
const INTERVAL: Duration = Duration::from_secs(1);

thread_local! {
    /// When this thread last returned memory, in seconds of the monotonic clock.
    static RETURNED_S: Cell<i64> = const { Cell::new(0) };
}

/// Builds the runtime of a thread, with all drivers. The thread returns freed memory to the system once per second.
///
/// mimalloc looks for blocks that other threads have freed, and for pages whose return is due, only when a thread
/// allocates. After a burst of connections a thread may not allocate for a long time, and would keep the memory of the
/// burst.
pub fn build_runtime() -> io::Result<Runtime> {
    let runtime = Builder::new_current_thread().on_thread_park(return_memory_if_due).enable_all().build()?;
    runtime.spawn(wake_thread());
    Ok(runtime)
}

/// Wakes the thread if it has nothing to do: it returns memory before it waits again.
async fn wake_thread() {
    loop {
        sleep(INTERVAL).await;
    }
}

fn return_memory_if_due() {
    // The coarse clock is cheaper: a thread waits for events up to some 100,000 times per second.
    let now_s = clock_gettime(ClockId::MonotonicCoarse).tv_sec;
    if RETURNED_S.replace(now_s) != now_s {
        return_memory();
    }
}

/// Returns the memory that this thread has freed to the system, if mimalloc is the allocator of the process. For threads
/// that allocate much and then wait, and do not have the runtime of [`build_runtime`].
#[expect(unsafe_code, reason = "mimalloc is C. The function takes no pointer, and any thread may call it at any time.")]
pub fn return_memory() {
    // SAFETY: no precondition (mimalloc.h). It frees pages of this thread that hold no block in use, and with `true` it
    // returns their memory at once instead of at the next allocation.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
