//! Samples of connections that have not been sent to the controller yet.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use watari_bench_engine::connection_log::ConnectionLog;
use watari_bench_engine::sample::ConnectionSample;
use watari_bench_engine::sample::wire::{SAMPLES_MAX, WireSamples};
use watari_link::TalkError;

use super::wire::{AHEAD_MAX, Order, Report};

/// The samples of connections for the controller, if it requests them.
#[derive(Debug)]
pub(super) struct Connections {
    sample_queue: Option<Arc<SampleQueue>>,
    /// Number of reports that the controller's log has not taken yet.
    ahead: usize,
}

impl Connections {
    pub(super) fn new(wanted: bool) -> Self {
        Self { sample_queue: wanted.then(Arc::default), ahead: 0 }
    }

    /// The log to which the load's threads pass samples.
    pub(super) fn log(&self) -> Option<Arc<dyn ConnectionLog>> {
        self.sample_queue.clone().map(|sample_queue| sample_queue as Arc<dyn ConnectionLog>)
    }

    /// The next report, if there are samples and the controller can take them now.
    pub(super) fn report(&mut self) -> Result<Option<Report>, TalkError> {
        let Some(sample_queue) =
            self.sample_queue.as_ref().filter(|sample_queue| self.ahead < AHEAD_MAX && !sample_queue.is_empty())
        else {
            return Ok(None);
        };
        self.ahead += 1;
        let samples = WireSamples::of(&sample_queue.take()).map_err(TalkError::Unreadable)?;
        Ok(Some(Report::Connections(samples)))
    }

    /// The controller's log has taken one report.
    pub(super) fn logged(&mut self) -> Result<(), TalkError> {
        self.ahead = self.ahead.checked_sub(1).ok_or_else(|| Order::Logged.out_of_turn())?;
        Ok(())
    }

    /// Whether all samples have been sent.
    pub(super) fn are_sent(&self) -> bool {
        self.sample_queue.as_ref().is_none_or(|sample_queue| sample_queue.is_empty())
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        if let Some(sample_queue) = &self.sample_queue {
            sample_queue.give_up();
        }
    }
}

/// Samples on their way from the load's threads to the controller. Their number is limited: if the controller or its
/// disk is too slow, the load's threads wait.
#[derive(Debug, Default)]
struct SampleQueue {
    waiting: Mutex<Waiting>,
    /// Notified when there is room again.
    room: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    samples: VecDeque<ConnectionSample>,
    /// The controller is gone, and no more samples are sent.
    given_up: bool,
}

impl ConnectionLog for SampleQueue {
    fn ended(&self, sample: &ConnectionSample) {
        let is_full = |waiting: &mut Waiting| waiting.samples.len() >= WAITING_MAX && !waiting.given_up;
        let mut waiting = self.room.wait_while(self.lock(), is_full).unwrap_or_else(PoisonError::into_inner);
        if !waiting.given_up {
            waiting.samples.push_back(sample.clone());
        }
    }
}

impl SampleQueue {
    /// The oldest samples, at most as many as one report can carry.
    fn take(&self) -> Vec<ConnectionSample> {
        let mut waiting = self.lock();
        let count = waiting.samples.len().min(SAMPLES_MAX);
        let taken = waiting.samples.drain(..count).collect();
        self.room.notify_all();
        taken
    }

    fn is_empty(&self) -> bool {
        self.lock().samples.is_empty()
    }

    /// Releases all waiting threads: the controller is gone, and the load ends.
    fn give_up(&self) {
        self.lock().given_up = true;
        self.room.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A few MiB.
const WAITING_MAX: usize = 8 * SAMPLES_MAX;

#[cfg(test)]
mod tests {
    use std::thread;

    use watari_bench_engine::ending::EndingKind;
    use watari_bench_engine::test_samples::connection;

    use super::*;

    fn sample(requests: u64) -> ConnectionSample {
        ConnectionSample { requests, ..connection(None, EndingKind::Normal) }
    }

    #[test]
    fn a_load_waits_until_there_is_room_and_nothing_is_lost() {
        let (sample_queue, all) = (SampleQueue::default(), 3 * WAITING_MAX as u64);
        thread::scope(|scope| {
            let load = scope.spawn(|| (0..all).for_each(|number| sample_queue.ended(&sample(number))));
            let mut next = 0;
            while next < all {
                for told in sample_queue.take() {
                    assert_eq!(told.requests, next);
                    next += 1;
                }
                assert!(sample_queue.lock().samples.len() <= WAITING_MAX);
                assert!(!load.is_finished() || next + WAITING_MAX as u64 >= all);
            }
        });
        assert!(sample_queue.is_empty());
    }

    #[test]
    fn a_load_does_not_wait_for_whom_is_gone() {
        let sample_queue = SampleQueue::default();
        thread::scope(|scope| {
            let load = scope.spawn(|| (0..=WAITING_MAX as u64).for_each(|number| sample_queue.ended(&sample(number))));
            while sample_queue.lock().samples.len() < WAITING_MAX {
                thread::yield_now();
            }
            assert!(!load.is_finished());
            sample_queue.give_up();
        });
        assert_eq!(sample_queue.lock().samples.len(), WAITING_MAX);
    }
}
