//! What waits for other nodes, and when to look at it again.

use std::collections::{BTreeMap, BTreeSet};

/// Things by number, in the order in which they are due. Whoever works on one takes it out, and puts it back if it goes
/// on waiting.
pub(super) struct Pending<T> {
    waiting: BTreeMap<u64, (u64, T)>,
    /// When in milliseconds, and which.
    due: BTreeSet<(u64, u64)>,
    numbers: u64,
}

/// Requests of one thing have numbers of their own: so many bits of them.
const SERIAL_BITS: u32 = 16;

/// The number on the wire of a thing's request. One that answers another thing's is told apart by whom it was sent to,
/// and at worst ignored.
pub(super) fn request(id: u64, serial: u64) -> u64 {
    (id << SERIAL_BITS).wrapping_add(serial)
}

/// Whose request this was.
pub(super) fn id_of(request: u64) -> u64 {
    request >> SERIAL_BITS
}

impl<T> Pending<T> {
    /// A number that was never used.
    pub(super) fn new_id(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn insert(&mut self, id: u64, due_ms: u64, thing: T) {
        self.due.insert((due_ms, id));
        self.waiting.insert(id, (due_ms, thing));
    }

    pub(super) fn take(&mut self, id: u64) -> Option<T> {
        let (due_ms, thing) = self.waiting.remove(&id)?;
        self.due.remove(&(due_ms, id));
        Some(thing)
    }

    /// The same if `wanted` is true of it.
    pub(super) fn take_if(&mut self, id: u64, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let is_wanted = self.waiting.get(&id).is_some_and(|(_, thing)| wanted(thing));
        if is_wanted { self.take(id) } else { None }
    }

    /// The first that is due at `now_ms`.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Option<T> {
        let (due_ms, id) = *self.due.first()?;
        if due_ms > now_ms { None } else { self.take(id) }
    }

    pub(super) fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(due_ms, _)| *due_ms)
    }

    /// Those that `wanted` is true of.
    pub(super) fn select(&self, wanted: impl Fn(&T) -> bool) -> Vec<u64> {
        self.waiting.iter().filter(|(_, (_, thing))| wanted(thing)).map(|(id, _)| *id).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), due: BTreeSet::new(), numbers: 0 }
    }
}
