//! The portion of a run that one of several processes does.

use std::num::NonZero;

use crate::plan::{Pace, Plan, Stop};

/// One of several equal portions of a run.
///
/// All numbered items (requests of a list, arrivals, source addresses) are dealt in turn: portion `index` of `of` has
/// every `of`th, beginning with number `index`. So all portions together do exactly what one process would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    index: u64,
    of: NonZero<u64>,
}

impl Portion {
    pub const WHOLE: Self = Self { index: 0, of: NonZero::<u64>::MIN };

    /// Portion `index`, from 0, of `of`; `None` if it does not exist, or `of` is over `PORTIONS_MAX`.
    pub fn new(index: u64, of: u64) -> Option<Self> {
        let of = NonZero::new(of).filter(|of| index < of.get() && of.get() <= PORTIONS_MAX)?;
        Some(Self { index, of })
    }

    /// Its index, from 0, and the number of portions.
    pub fn get(self) -> (u64, u64) {
        (self.index, self.of.get())
    }

    /// The number in the whole run of item `own` of this portion.
    pub(crate) fn number(self, own: u64) -> u64 {
        self.index.wrapping_add(own.wrapping_mul(self.of.get()))
    }

    /// This portion's share of `all`. Shares differ by at most one, and the larger ones come first.
    pub fn share(self, all: u64) -> u64 {
        all / self.of + u64::from(self.index < all % self.of)
    }

    /// This portion of a plan.
    pub fn of_plan(self, plan: Plan) -> Plan {
        let connections = |all: usize| self.share(all as u64) as usize;
        let pace = match plan.pace {
            Pace::Closed { connections: all } => Pace::Closed { connections: connections(all) },
            Pace::Open { schedule, connections_max } => Pace::Open {
                schedule: schedule.share(self.index, self.of.get()),
                connections_max: connections(connections_max),
            },
            // The schedule of users is computed from the numbers of all users.
            Pace::Users { settings, connections_max } => {
                Pace::Users { settings, connections_max: connections(connections_max) }
            }
        };
        let stop = Stop { requests: plan.stop.requests.map(|all| self.share(all)), ..plan.stop };
        Plan { pace, stop, ..plan }
    }
}

/// Far more processes than practical.
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
