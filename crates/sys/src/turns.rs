//! Turns of costly steps, so that they leave time for the other tasks of their thread.
//!
//! A runtime runs its tasks in the order in which they became ready. If hundreds of them compute for milliseconds, as
//! TLS handshakes do for a signature, each other task waits for all of these: health checks and the mesh time out.
//!
//! So a task waits for a turn before such a step. While tasks wait, their thread has a pacer: a task that grants turns.
//! *Invariants*, on each thread:
//!
//! * Between two grants, the runtime runs all tasks that are ready, and looks for I/O.
//! * A grant is for as many steps as need the CPU time that other tasks have used since the grant before, or for one.
//!   So neither the steps nor the other tasks get less than about half of the thread while they need more.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::yield_now;

use crate::thread_cpu_time;

/// The most turns in one grant.
const TURNS_MAX: u128 = 1_000;

/// The part of the last step in the mean of steps: one of so many.
const MEAN_OF: u32 = 8;

thread_local! {
    static PACE: Pace = Pace::default();
}

/// The turns of a thread.
struct Pace {
    /// Turns that are granted and not taken.
    turns: Arc<Semaphore>,
    is_paced: Cell<bool>,
    /// The CPU time of steps since the last grant.
    spent: Cell<Duration>,
    /// The moving mean of the CPU time of a step. 0: there was none.
    mean: Cell<Duration>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(1)),
            is_paced: Cell::default(),
            spent: Cell::default(),
            mean: Cell::default(),
        }
    }
}

/// A turn on this thread. It ends with its drop.
pub struct Turn {
    begun: Duration,
    /// A turn is not for other threads. So the task of a multi-threaded caller cannot keep it while it waits.
    here: PhantomData<*const ()>,
}

impl Turn {
    /// Waits for a turn. The order is that of the calls. Requires a runtime of this thread alone.
    pub async fn wait() -> Self {
        let turns = PACE.with(|pace| {
            if !pace.is_paced.replace(true) {
                tokio::spawn(grant_turns(Pacer));
            }
            pace.turns.clone()
        });
        turns.acquire().await.expect("it is never closed").forget();
        Self { begun: thread_cpu_time(), here: PhantomData }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let step = thread_cpu_time().saturating_sub(self.begun);
        PACE.with(|pace| pace.count(step));
    }
}

/// The right to grant turns on this thread.
struct Pacer;

impl Drop for Pacer {
    fn drop(&mut self) {
        PACE.with(|pace| pace.is_paced.set(false));
    }
}

/// Grants turns while tasks wait for them.
async fn grant_turns(_pacer: Pacer) {
    loop {
        let before = thread_cpu_time();
        PACE.with(|pace| pace.spent.take());
        // The runtime continues this task after it has looked for I/O, behind all tasks that are ready then.
        yield_now().await;
        let used = thread_cpu_time().saturating_sub(before);
        if !PACE.with(|pace| pace.grant(used)) {
            return;
        }
    }
}

impl Pace {
    fn count(&self, step: Duration) {
        self.spent.set(self.spent.get() + step);
        let mean = self.mean.get();
        self.mean.set(if mean.is_zero() { step } else { (mean * (MEAN_OF - 1) + step) / MEAN_OF });
    }

    /// Grants turns. `used`: the CPU time of all tasks since the last grant. Returns false if no task waits. Then one
    /// turn is left for the next.
    fn grant(&self, used: Duration) -> bool {
        match self.turns.available_permits() {
            0 => self.turns.add_permits(self.due(used)),
            left => {
                self.turns.forget_permits(left - 1);
                return false;
            }
        }
        true
    }

    /// The number of steps that need as much CPU time as other tasks have used.
    fn due(&self, used: Duration) -> usize {
        let others = used.saturating_sub(self.spent.get()).as_nanos();
        let due = others.checked_div(self.mean.get().as_nanos()).unwrap_or(1);
        due.clamp(1, TURNS_MAX) as usize
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write;
    use std::os::unix::net::UnixStream as StdStream;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::AsyncReadExt;
    use tokio::net::UnixStream;
    use tokio::task::JoinSet;

    use super::*;

    const STEP: Duration = Duration::from_millis(1);

    /// Uses CPU time. Other processes do not count.
    fn compute(time: Duration) {
        let end = thread_cpu_time() + time;
        while thread_cpu_time() < end {}
    }

    /// More steps are due than tasks run before a runtime looks for I/O by itself.
    #[tokio::test]
    async fn what_arrives_is_read_before_the_next_step() {
        const STEPS: usize = 200;
        let (writer, reader) = StdStream::pair().unwrap();
        reader.set_nonblocking(true).unwrap();
        let mut reader = UnixStream::from_std(reader).unwrap();
        let (writer, read) = (Arc::new(writer), Arc::new(AtomicUsize::new(0)));
        let mut steps = JoinSet::new();
        for _ in 0..STEPS {
            let (writer, read) = (writer.clone(), read.clone());
            steps.spawn(async move {
                let _turn = Turn::wait().await;
                compute(STEP);
                (&*writer).write_all(&[0]).unwrap();
                read.load(Ordering::Relaxed)
            });
        }
        let reading = async {
            while reader.read_u8().await.is_ok() {
                read.fetch_add(1, Ordering::Relaxed);
            }
        };
        let mut read_before_each = tokio::select! {
            biased;
            counts = steps.join_all() => counts,
            () = reading => unreachable!("the writer is open"),
        };
        read_before_each.sort_unstable();
        assert_eq!(read_before_each, (0..STEPS).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn steps_get_as_much_time_as_other_tasks() {
        const STEPS: usize = 100;
        const OTHERS: usize = 100;
        let mut others = JoinSet::new();
        let runs = Arc::new(AtomicUsize::new(0));
        for _ in 0..OTHERS {
            let runs = runs.clone();
            others.spawn(async move {
                loop {
                    compute(STEP / 10);
                    runs.fetch_add(1, Ordering::Relaxed);
                    yield_now().await;
                }
            });
        }
        let mut steps = JoinSet::new();
        for _ in 0..STEPS {
            steps.spawn(async {
                let _turn = Turn::wait().await;
                compute(STEP);
            });
        }
        steps.join_all().await;
        let rounds = runs.load(Ordering::Relaxed) / OTHERS;
        // Each round of the others takes as long as ten steps. With a turn in each round, there would be 100.
        assert!((5..30).contains(&rounds), "{rounds}");
    }

    #[tokio::test]
    async fn a_turn_that_is_not_taken_is_left_for_the_next() {
        for _ in 0..3 {
            drop(Turn::wait().await);
            while PACE.with(|pace| pace.is_paced.get()) {
                yield_now().await;
            }
            assert_eq!(PACE.with(|pace| pace.turns.available_permits()), 1);
        }
    }
}
