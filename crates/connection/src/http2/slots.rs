//! Sets of the places that a connection has for exchanges.

/// The places for exchanges, which also bounds the requests in progress at a time.
pub(super) const SLOTS: usize = 64;

/// A set of slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Slots(pub(super) u64);

impl Slots {
    pub(super) const ALL: Self = Self(u64::MAX);

    pub(super) fn insert(&mut self, slot: usize) {
        self.0 |= 1 << slot;
    }

    pub(super) fn remove(&mut self, slot: usize) {
        self.0 &= !(1 << slot);
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The first slot from `start` on, around the end.
    pub(super) fn next_from(self, start: usize) -> Option<usize> {
        let rotated = self.0.rotate_right(start as u32);
        (rotated != 0).then(|| (start + rotated.trailing_zeros() as usize) % SLOTS)
    }

    pub(super) fn iter(mut self) -> impl Iterator<Item = usize> {
        std::iter::from_fn(move || {
            let slot = self.next_from(0)?;
            self.remove(slot);
            Some(slot)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_in_turn() {
        let mut slots = Slots::default();
        assert_eq!(slots.next_from(5), None);
        for slot in [0, 7, 63] {
            slots.insert(slot);
        }
        assert_eq!([0, 1, 7, 8, 63].map(|start| slots.next_from(start)), [0, 7, 7, 63, 63].map(Some));
        slots.remove(63);
        assert_eq!(slots.next_from(8), Some(0));
        assert_eq!(slots.iter().collect::<Vec<_>>(), [0, 7]);
    }
}
