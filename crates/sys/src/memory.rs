//! Returns freed memory to the system.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::sleep;

/// The interval at which each thread returns memory.
const INTERVAL: Duration = Duration::from_secs(1);

thread_local! {
    /// When this thread last returned memory, in seconds of the monotonic clock.
    static RETURNED_S: Cell<i64> = const { Cell::new(0) };
}

/// Builds a runtime with all drivers. Each of its threads returns freed memory to the system, once per second.
///
/// mimalloc looks for blocks that other threads have freed, and for pages whose return is due, only when a thread
/// allocates. After a burst of connections a thread may not allocate for a long time, and would keep the memory of the
/// burst.
pub fn build_runtime(mut builder: Builder) -> io::Result<Runtime> {
    let runtime = builder.on_thread_park(return_memory_if_due).enable_all().build()?;
    runtime.spawn(wake_threads());
    Ok(runtime)
}

/// Wakes threads that have nothing to do: they return memory before they wait again.
async fn wake_threads() {
    let others = Handle::current().metrics().num_workers() - 1;
    loop {
        sleep(INTERVAL).await;
        for _ in 0..others {
            tokio::spawn(async {});
        }
    }
}

fn return_memory_if_due() {
    // The coarse clock is cheaper: a thread waits for events up to some 100,000 times per second.
    let now_s = clock_gettime(ClockId::MonotonicCoarse).tv_sec;
    if RETURNED_S.replace(now_s) != now_s {
        collect();
    }
}

#[expect(unsafe_code, reason = "mimalloc is C. The function takes no pointer, and any thread may call it at any time.")]
fn collect() {
    // SAFETY: no precondition (mimalloc.h). It frees pages of this thread that hold no block in use, and with `true` it
    // returns their memory at once instead of at the next allocation.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
