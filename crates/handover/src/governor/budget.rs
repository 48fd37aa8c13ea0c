//! Limits on the moves in a second.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::governor::settings::Damping;
use crate::governor::views::{OriginId, OriginView};

/// Moves of all transfers, and moves to or from each origin.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    all: Second,
    origins: HashMap<OriginId, Second>,
}

impl Budget {
    /// Whether one more transfer may move between these origins. If so, it counts.
    pub(crate) fn spend(&mut self, now: Instant, from: OriginId, to: OriginId, damping: &Damping) -> bool {
        let is_left = self.all.count(now) < damping.moves_per_s
            && [from, to].into_iter().all(|id| self.of(id).count(now) < damping.origin_moves_per_s);
        if is_left {
            self.all.moves += 1;
            self.of(from).moves += 1;
            self.of(to).moves += 1;
        }
        is_left
    }

    /// Removes the entries of all origins but these.
    pub(crate) fn keep(&mut self, origins: &[OriginView]) {
        self.origins.retain(|id, _| origins.iter().any(|origin| origin.id == *id));
    }

    fn of(&mut self, id: OriginId) -> &mut Second {
        self.origins.entry(id).or_default()
    }
}

/// The moves in a second, which begins with the first look after the end of the one before.
#[derive(Debug, Default)]
struct Second {
    began: Option<Instant>,
    moves: u32,
}

impl Second {
    fn count(&mut self, now: Instant) -> u32 {
        let is_over = |began| now.saturating_duration_since(began) >= Duration::from_secs(1);
        if self.began.is_none_or(is_over) {
            *self = Self { began: Some(now), moves: 0 };
        }
        self.moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_moves() {
        let damping = Damping { moves_per_s: 3, origin_moves_per_s: 2, ..Damping::default() };
        let mut budget = Budget::default();
        let begin = Instant::now();
        let mut spend = |after_ms, from, to| {
            let now = begin + Duration::from_millis(after_ms);
            budget.spend(now, OriginId(from), OriginId(to), &damping)
        };
        assert!(spend(0, 1, 2) && spend(500, 1, 3));
        assert!(!spend(600, 1, 3), "two have left this origin");
        assert!(spend(700, 2, 3));
        assert!(!spend(999, 4, 5), "three have moved");
        assert!(spend(1000, 1, 2), "the next second");
    }
}
