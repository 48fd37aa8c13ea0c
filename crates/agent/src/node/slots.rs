//! Bounded numbers of slots.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit on a number of slots, without waiting. Unlike the permits of a semaphore, the limit can drop below the
/// number of taken slots. Then none is free until enough are given back.
pub(crate) struct Slots {
    taken: AtomicUsize,
    max: AtomicUsize,
}

/// A taken slot. Dropping it frees the slot.
pub(crate) struct Slot(Arc<Slots>);

impl Slots {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { taken: AtomicUsize::new(0), max: AtomicUsize::new(max) })
    }

    /// Takes a slot. `None`: all are taken.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Slot> {
        let max = self.max.load(Ordering::Relaxed);
        let one_more = |taken: usize| (taken < max).then_some(taken + 1);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        taken.is_ok().then(|| Slot(self.clone()))
    }

    /// Takes a slot for what is here already, also beyond the limit.
    pub(crate) fn take_beyond(self: &Arc<Self>) -> Slot {
        self.taken.fetch_add(1, Ordering::Relaxed);
        Slot(self.clone())
    }

    pub(crate) fn is_one_free(&self) -> bool {
        self.taken() < self.max.load(Ordering::Relaxed)
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_as_was_said_last() {
        let slots = Slots::new(2);
        let mut taken = vec![slots.take(), slots.take()];
        assert!(taken.iter().all(Option::is_some) && slots.take().is_none());
        slots.set_max(3);
        taken.push(slots.take());
        assert!(taken[2].is_some() && slots.take().is_none() && !slots.is_one_free());
        slots.set_max(1);
        for left in [2, 1] {
            assert!(slots.take().is_none(), "{left} above one are still taken");
            taken.pop();
        }
        assert!(slots.take().is_none());
        taken.pop();
        assert!(slots.is_one_free() && slots.take().is_some());
        let beyond = [slots.take_beyond(), slots.take_beyond()];
        assert!(slots.taken() == 2 && slots.take().is_none());
        drop(beyond);
        assert!(slots.take().is_some());
    }
}
