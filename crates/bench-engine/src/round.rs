//! Takes turns in proportion to weights.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A periodic order of turns.
///
/// After any number of turns, each item has had its share of them to within one turn: of `n` turns, an item of weight
/// `w` has had `n * w / total`, rounded down or up. So a run that ends at any time matches the list, and the turns of
/// an item do not cluster. Items of equal weight keep their order.
///
/// Each turn of an item is a task with a release time and a deadline that follow from its share. The task with the
/// earliest deadline goes first, which meets all deadlines (Baruah et al., "Proportionate progress", 1996, windows of
/// tasks on one processor).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round(Turns);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Turns {
    /// This number of items, one after the other.
    Equal(usize),
    /// The item of each turn.
    Weighted(Box<[u32]>),
}

impl Round {
    /// Computes the order. An item of weight 0 has no turn.
    pub fn new(weights: &[u32]) -> Result<Self, RoundError> {
        let divisor = weights.iter().fold(0, |divisor, weight| gcd(divisor, *weight));
        if divisor == 0 {
            return Err(RoundError::Empty);
        }
        if weights.iter().all(|weight| *weight == divisor) {
            return Ok(Self(Turns::Equal(weights.len())));
        }
        let weights: Vec<_> = weights.iter().map(|weight| u64::from(weight / divisor)).collect();
        let turns = weights.iter().sum();
        if turns > TURNS_MAX {
            return Err(RoundError::TooLong { turns });
        }
        Ok(Self(Turns::Weighted(interleave(&weights, turns))))
    }

    /// The order of a single item.
    pub fn of_one() -> Self {
        Self(Turns::Equal(1))
    }

    /// The index of the item of `turn`, from 0.
    pub fn nth(&self, turn: u64) -> usize {
        match &self.0 {
            Turns::Equal(items) => (turn % *items as u64) as usize,
            Turns::Weighted(order) => order[(turn % order.len() as u64) as usize] as usize,
        }
    }

    /// The items in the order of their turns; `None`: one after the other.
    pub(crate) fn order(&self) -> Option<&[u32]> {
        match &self.0 {
            Turns::Equal(_) => None,
            Turns::Weighted(order) => Some(order),
        }
    }

    /// Rebuilds the round from [`Round::order`]; `None` if `order` is not valid for `items` items.
    pub(crate) fn of_order(items: usize, order: Option<Vec<u32>>) -> Option<Self> {
        let Some(order) = order else { return (items > 0).then_some(Self(Turns::Equal(items))) };
        let possible = !order.is_empty() && order.iter().all(|item| (*item as usize) < items);
        possible.then(|| Self(Turns::Weighted(order.into())))
    }

    /// The number of turns after which the order repeats.
    pub fn turns(&self) -> u64 {
        match &self.0 {
            Turns::Equal(items) => *items as u64,
            Turns::Weighted(order) => order.len() as u64,
        }
    }
}

/// The weights permit no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoundError {
    /// There is no item, or all have weight 0.
    #[error("no item has a weight")]
    Empty,
    /// The order would take too much memory.
    #[error("the weights add up to {turns}, over the maximum of {TURNS_MAX}: use smaller numbers")]
    TooLong {
        /// The sum of the weights, divided by their common divisor.
        turns: u64,
    },
}

/// The item of each turn. `turns` is the sum of the weights.
fn interleave(weights: &[u64], turns: u64) -> Box<[u32]> {
    let mut had = vec![0; weights.len()];
    // By release: the turn from which on an item may have its next one. `due` is ordered by deadline.
    let mut early: BinaryHeap<_> =
        (0..weights.len()).filter(|at| weights[*at] > 0).map(|at| Reverse((0, at))).collect();
    let mut due = BinaryHeap::new();
    let mut next = |turn: u64| {
        while early.peek().is_some_and(|Reverse((from, _))| *from <= turn)
            && let Some(Reverse((_, at))) = early.pop()
        {
            let end = ((had[at] + 1) * turns).div_ceil(weights[at]);
            // Of items with equal deadlines, the one with the earlier middle goes first. Twice the middle is a whole
            // number.
            let middle = (2 * had[at] + 1) * turns / weights[at];
            due.push(Reverse((end, middle, at)));
        }
        let Reverse((_, _, at)) = due.pop().expect("the shares of all items add up to one turn per turn");
        had[at] += 1;
        if had[at] < weights[at] {
            early.push(Reverse((had[at] * turns / weights[at], at)));
        }
        at as u32
    };
    (0..turns).map(&mut next).collect()
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// 64 MiB of turns.
const TURNS_MAX: u64 = 1 << 24;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn order(weights: &[u32]) -> Vec<usize> {
        let round = Round::new(weights).unwrap();
        (0..round.turns()).map(|turn| round.nth(turn)).collect()
    }

    #[test]
    fn equal_weights_go_in_order() {
        assert_eq!(order(&[7, 7, 7]), [0, 1, 2]);
        assert_eq!(Round::new(&[7, 7, 7]).unwrap().nth(u64::MAX), (u64::MAX % 3) as usize);
    }

    #[test]
    fn weights_are_interleaved() {
        assert_eq!(order(&[4, 2]), [0, 1, 0]);
        assert_eq!(order(&[8, 2]), [0, 0, 0, 1, 0]);
        assert_eq!(order(&[0, 3, 1]), [1, 1, 2, 1]);
    }

    #[test]
    fn without_a_weight_there_is_no_order() {
        assert_eq!(Round::new(&[]), Err(RoundError::Empty));
        assert_eq!(Round::new(&[0, 0]), Err(RoundError::Empty));
    }

    #[test]
    fn an_order_that_is_too_long_is_refused() {
        assert_eq!(Round::new(&[u32::MAX, 1]), Err(RoundError::TooLong { turns: 1 << 32 }));
        assert_eq!(Round::new(&[1 << 30, 1 << 29]).unwrap().turns(), 3);
    }

    proptest! {
        #[test]
        fn any_beginning_is_in_proportion_to_within_one(
            weights in prop::collection::vec(0_u32..40, 1..12), rounds in 1_u64..3,
        ) {
            let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
            prop_assume!(total > 0);
            let round = Round::new(&weights).unwrap();
            let mut had = vec![0_u64; weights.len()];
            for turn in 0..rounds * round.turns() {
                had[round.nth(turn)] += 1;
                for (had, weight) in had.iter().zip(&weights) {
                    let share = (turn + 1) * u64::from(*weight);
                    prop_assert!(share / total <= *had && *had <= share.div_ceil(total));
                }
            }
        }
    }
}
