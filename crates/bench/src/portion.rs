//! The part of a run that one of several processes plays.

use std::num::NonZero;

use crate::plan::{Pace, Plan, Stop};

/// One of several equal parts of a run.
///
/// Everything that is numbered (requests of a list, arrivals, source addresses) is dealt in turn: part `index` of `of` has every
/// `of`th, beginning with number `index`. So all parts together do what one process would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    index: u64,
    of: NonZero<u64>,
}

impl Portion {
    /// Everything.
    pub const WHOLE: Self = Self { index: 0, of: NonZero::<u64>::MIN };

    /// Part `index`, from 0, of `of`; `None` if there is no such part.
    pub fn new(index: u64, of: u64) -> Option<Self> {
        let of = NonZero::new(of).filter(|of| index < of.get() && of.get() <= PORTIONS_MAX)?;
        Some(Self { index, of })
    }

    /// Which of how many.
    pub fn get(self) -> (u64, u64) {
        (self.index, self.of.get())
    }

    /// In the whole, what is number `own` here.
    pub(crate) fn number(self, own: u64) -> u64 {
        self.index.wrapping_add(own.wrapping_mul(self.of.get()))
    }

    /// How many of `all` are here. The parts differ by one at most, and those that have one more come first.
    pub fn share(self, all: u64) -> u64 {
        all / self.of + u64::from(self.index < all % self.of)
    }

    /// How much of a plan is to be done here.
    pub(crate) fn of_plan(self, plan: Plan) -> Plan {
        let connections = |all: usize| self.share(all as u64) as usize;
        let pace = match plan.pace {
            Pace::Closed { connections: all } => Pace::Closed { connections: connections(all) },
            Pace::Open { schedule, connections_max } => Pace::Open {
                schedule: schedule.share(self.index, self.of.get()),
                connections_max: connections(connections_max),
            },
            // Who comes when is computed from the numbers of all.
            Pace::Users { settings, connections_max } => {
                Pace::Users { settings, connections_max: connections(connections_max) }
            }
        };
        let stop = Stop { requests: plan.stop.requests.map(|all| self.share(all)), ..plan.stop };
        Plan { pace, stop, ..plan }
    }
}

/// More processes than anybody has.
const PORTIONS_MAX: u64 = 4096;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn there_is_no_part_beyond_the_last() {
        assert_eq!(Portion::new(0, 1), Some(Portion::WHOLE));
        for (index, of) in [(0, 0), (2, 2), (0, PORTIONS_MAX + 1)] {
            assert_eq!(Portion::new(index, of), None);
        }
    }

    proptest! {
        #[test]
        fn all_parts_together_are_the_whole(all in 0_u64..200, of in 1_u64..9) {
            let parts = (0..of).map(|index| Portion::new(index, of).unwrap());
            let mut numbers: Vec<_> =
                parts.flat_map(|part| (0..part.share(all)).map(move |own| part.number(own))).collect();
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (0..all).collect::<Vec<_>>());
        }
    }
}
