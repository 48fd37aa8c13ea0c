//! Counts of endings.

use crate::ending::{Ending, EndingKind, Phase, Side};

/// Counts of endings by kind, phase and side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endings {
    counts: [[[u64; Side::ALL.len()]; Phase::ALL.len()]; EndingKind::ALL.len()],
}

impl Endings {
    pub fn add(&mut self, ending: Ending) {
        self.add_many(ending, 1);
    }

    /// Counts `count` equal endings.
    pub fn add_many(&mut self, ending: Ending, count: u64) {
        self.counts[ending.kind as usize][ending.phase as usize][ending.side as usize] += count;
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (ending, count) in other.iter() {
            self.add_many(ending, count);
        }
    }

    /// Number of endings of this kind, in any phase and by any side.
    pub fn of(&self, kind: EndingKind) -> u64 {
        self.counts[kind as usize].iter().flatten().sum()
    }

    /// Number of all endings.
    pub fn total(&self) -> u64 {
        self.counts.iter().flatten().flatten().sum()
    }

    /// Number of endings other than NORMAL.
    pub fn failed(&self) -> u64 {
        self.total() - self.of(EndingKind::Normal)
    }

    /// Every ending that occurred, with its count, in the order of [`EndingKind::ALL`], then of phases and sides.
    pub fn iter(&self) -> impl Iterator<Item = (Ending, u64)> {
        let kinds = EndingKind::ALL.into_iter().zip(&self.counts);
        let phases = kinds.flat_map(|(kind, counts)| Phase::ALL.into_iter().zip(counts).map(move |at| (kind, at)));
        let all = phases.flat_map(|(kind, (phase, counts))| {
            Side::ALL.into_iter().zip(counts).map(move |(side, count)| (Ending::new(kind, phase, side), *count))
        });
        all.filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_has_a_place_of_its_own() {
        let mut endings = Endings::default();
        let mut expected = Vec::new();
        for (kind, phase, side) in every() {
            let count = expected.len() as u64 + 1;
            endings.add_many(Ending::new(kind, phase, side), count);
            expected.push((Ending::new(kind, phase, side), count));
        }
        assert_eq!(endings.iter().collect::<Vec<_>>(), expected);
        assert_eq!(endings.total(), (1..=96).sum::<u64>());
        assert_eq!(endings.failed(), (13..=96).sum::<u64>());
        assert_eq!(endings.of(EndingKind::Reset), (13..=24).sum::<u64>());
    }

    fn every() -> impl Iterator<Item = (EndingKind, Phase, Side)> {
        let pairs = EndingKind::ALL.into_iter().flat_map(|kind| Phase::ALL.map(|phase| (kind, phase)));
        pairs.flat_map(|(kind, phase)| Side::ALL.map(|side| (kind, phase, side)))
    }
}
