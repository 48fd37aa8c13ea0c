//! Entries that wait for other nodes, with the time of the next look at each.

use std::collections::{BTreeMap, BTreeSet};

/// Entries by id, and by the time when they are due. To work on an entry, the caller takes it out, and inserts it again
/// if it still waits.
pub(super) struct Pending<T> {
    waiting: BTreeMap<u64, (u64, T)>,
    /// The time in milliseconds, and the id.
    due: BTreeSet<(u64, u64)>,
    numbers: u64,
}

/// The bits of a request number that count the requests of one entry.
const SERIAL_BITS: u32 = 16;

/// The number of an entry's request. If two entries ever use the same number, the receiver of the response
/// compares the peer too, and at worst ignores the response.
pub(super) fn request(id: u64, serial: u64) -> u64 {
    (id << SERIAL_BITS).wrapping_add(serial)
}

/// The id of the entry that sent this request.
pub(super) fn id_of(request: u64) -> u64 {
    request >> SERIAL_BITS
}

impl<T> Pending<T> {
    /// Returns an id that was never used before.
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

    /// Takes the entry if `wanted` returns true for it.
    pub(super) fn take_if(&mut self, id: u64, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let is_wanted = self.waiting.get(&id).is_some_and(|(_, thing)| wanted(thing));
        if is_wanted { self.take(id) } else { None }
    }

    /// Takes the first entry that is due at `now_ms`.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Option<T> {
        let (due_ms, id) = *self.due.first()?;
        if due_ms > now_ms { None } else { self.take(id) }
    }

    pub(super) fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(due_ms, _)| *due_ms)
    }

    /// The ids of the entries for which `wanted` returns true.
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
