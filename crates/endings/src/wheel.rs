//! Timeouts of connections: a timing wheel over packet time.

use watari_packets::Timestamp;

use crate::lists::Lists;

/// A tick is 2^27 ns, about 134 ms.
const TICK_BITS: u32 = 27;
/// One turn is about 18 minutes. A later timeout comes up once a turn.
const SLOTS: u32 = 1 << 13;
const WORDS: usize = SLOTS as usize / 64;

/// One timeout for each connection. It may come up before its time, and at most two ticks after it.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// All ticks up to this one are over.
    tick: u64,
    slots: Lists,
    /// A bit per slot: whether it may hold a timeout. So a jump in time costs as much as the timeouts that it finds,
    /// independent of its length.
    marks: [u64; WORDS],
    is_started: bool,
}

impl Wheel {
    pub(crate) fn new() -> Self {
        Self { tick: 0, slots: Lists::new(SLOTS as usize), marks: [0; WORDS], is_started: false }
    }

    /// Whether [`Wheel::due`] has anything to do.
    pub(crate) fn is_behind(&self, now: Timestamp) -> bool {
        now.0 >> TICK_BITS > self.tick
    }

    /// Sets the timeout of `id` to `at`.
    pub(crate) fn set(&mut self, id: u32, at: Timestamp) {
        self.is_started = true;
        let slot = slot_of(self.tick_of(at));
        self.marks[slot as usize / 64] |= 1 << (slot % 64);
        self.slots.push(slot, id);
    }

    /// Sets the timeout of `id` to `at`, unless an earlier one is set.
    pub(crate) fn set_soon(&mut self, id: u32, at: Timestamp) {
        let ahead = |slot: u32| (slot + SLOTS - slot_of(self.tick)) % SLOTS;
        let wanted = ahead(slot_of(self.tick_of(at)));
        if self.slots.list(id).is_none_or(|slot| wanted < ahead(slot)) {
            self.set(id, at);
        }
    }

    pub(crate) fn remove(&mut self, id: u32) {
        self.slots.remove(id);
    }

    /// Removes and returns the next timeout up to `now`. `None` if there are no more; then the wheel is at `now`.
    pub(crate) fn due(&mut self, now: Timestamp) -> Option<u32> {
        let end = now.0 >> TICK_BITS;
        if !self.is_started {
            self.is_started = true;
            self.tick = self.tick.max(end);
        }
        while let Some(tick) = self.marked().filter(|tick| *tick <= end) {
            let slot = slot_of(tick);
            // Timeouts set meanwhile come up behind this tick.
            self.tick = tick - 1;
            if let Some(id) = self.slots.first(slot) {
                self.slots.remove(id);
                return Some(id);
            }
            self.marks[slot as usize / 64] &= !(1 << (slot % 64));
        }
        self.tick = self.tick.max(end);
        None
    }

    /// The tick of a timeout, at most one turn ahead.
    fn tick_of(&self, at: Timestamp) -> u64 {
        let tick = (at.0 >> TICK_BITS).saturating_add(1);
        tick.clamp(self.tick + 1, self.tick + u64::from(SLOTS) - 1)
    }

    /// The first tick behind the current one whose slot has a mark.
    fn marked(&self) -> Option<u64> {
        let first = slot_of(self.tick + 1) as usize;
        let head = self.marks[first / 64] & (u64::MAX << (first % 64));
        let in_word = |word: usize, bits: u64| word * 64 + bits.trailing_zeros() as usize;
        let found = if head == 0 {
            (1..=WORDS).map(|step| (first / 64 + step) % WORDS).find_map(|word| {
                let bits = self.marks[word];
                (bits != 0).then(|| in_word(word, bits))
            })?
        } else {
            in_word(first / 64, head)
        };
        let ahead = (found + SLOTS as usize - first) % SLOTS as usize;
        Some(self.tick + 1 + ahead as u64)
    }
}

fn slot_of(tick: u64) -> u32 {
    (tick % u64::from(SLOTS)) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp(seconds * 1_000_000_000)
    }

    fn all(wheel: &mut Wheel, now: Timestamp) -> Vec<u32> {
        std::iter::from_fn(|| wheel.due(now)).collect()
    }

    #[test]
    fn comes_up_in_order_and_not_before() {
        let mut wheel = Wheel::new();
        assert_eq!(all(&mut wheel, at(1_000)), []);
        wheel.set(7, at(1_010));
        wheel.set(8, at(1_005));
        wheel.set(9, at(1_005));
        wheel.remove(9);
        wheel.set(5, at(90_000));
        assert_eq!(all(&mut wheel, at(1_004)), []);
        assert_eq!(all(&mut wheel, at(1_006)), [8]);
        assert_eq!(all(&mut wheel, at(1_011)), [7]);
        assert_eq!(all(&mut wheel, at(2_100)), [5], "early, as it is further ahead than a turn");
    }

    #[test]
    fn a_jump_costs_nothing() {
        let mut wheel = Wheel::new();
        assert_eq!(all(&mut wheel, at(1)), []);
        wheel.set(1, at(2));
        assert_eq!(all(&mut wheel, Timestamp(u64::MAX)), [1]);
        assert_eq!(all(&mut wheel, Timestamp(u64::MAX)), []);
    }

    #[test]
    fn what_is_soon_enough_stays() {
        let mut wheel = Wheel::new();
        assert_eq!(all(&mut wheel, at(1_000)), []);
        wheel.set_soon(7, at(1_010));
        wheel.set_soon(7, at(1_020));
        wheel.set_soon(8, at(1_020));
        wheel.set_soon(8, at(1_003));
        assert_eq!(all(&mut wheel, at(1_004)), [8]);
        assert_eq!(all(&mut wheel, at(1_011)), [7]);
        wheel.set_soon(7, at(1_020));
        assert_eq!(all(&mut wheel, at(1_021)), [7]);
    }

    proptest! {
        #[test]
        fn each_entry_comes_out_once_and_not_early(times in proptest::collection::vec(0..1_000_u64, 1..40), step in 1..90_u64) {
            let mut wheel = Wheel::new();
            all(&mut wheel, at(5_000));
            for (id, time) in (0..).zip(&times) {
                wheel.set(id, at(5_000 + time));
            }
            let mut left = times.len();
            for now in (0..=1_100).step_by(step as usize) {
                for id in all(&mut wheel, at(5_000 + now)) {
                    left -= 1;
                    prop_assert!(times[id as usize] <= now);
                    prop_assert!(now <= times[id as usize] + step + 1);
                }
            }
            prop_assert_eq!(left, 0);
        }
    }
}
