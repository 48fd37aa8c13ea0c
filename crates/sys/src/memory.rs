//! Freed memory goes back to the system.

use std::cell::Cell;

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Builder;

/// How often a thread returns memory, at most, in seconds.
const INTERVAL_S: i64 = 1;

thread_local! {
    /// When this thread last returned memory, in seconds of the monotonic clock.
    static RETURNED_S: Cell<i64> = const { Cell::new(0) };
}

/// Has each thread of `runtime` return freed memory to the system before it waits for events, once in [`INTERVAL_S`] at most.
///
/// A thread of mimalloc's looks for blocks that other threads have freed, and for pages whose return is due, only when it
/// allocates. After a burst of connections a thread may not do that for long, and would keep what they took.
pub fn return_memory_when_idle(runtime: &mut Builder) -> &mut Builder {
    runtime.on_thread_park(|| {
        // The coarse clock: a thread waits for events up to some 100,000 times a second.
        let now_s = clock_gettime(ClockId::MonotonicCoarse).tv_sec;
        if now_s - RETURNED_S.get() >= INTERVAL_S {
            RETURNED_S.set(now_s);
            collect();
        }
    })
}

#[expect(unsafe_code, reason = "mimalloc is C. The function takes no pointer, and any thread may call it at any time.")]
fn collect() {
    // SAFETY: no argument, no precondition (mimalloc.h). It frees pages of this thread that hold no block in use.
    unsafe { libmimalloc_sys::mi_collect(false) }
}
