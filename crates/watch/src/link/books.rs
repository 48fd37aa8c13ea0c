//! The judge's record of the reports that it has taken.

use std::collections::{BTreeMap, VecDeque};

use watari_values::NodeName;

use super::wire::Taken;

/// The reports taken, by sensor and run.
#[derive(Debug, Default)]
pub struct Books {
    sensors: BTreeMap<NodeName, VecDeque<Account>>,
}

#[derive(Debug)]
struct Account {
    run: u64,
    taken: Taken,
}

/// The most runs of a sensor that are remembered. Usually there is one. Two processes with the same certificate, which
/// replace each other by turns, are still distinguished.
pub const RUNS_MAX: usize = 16;

/// A run of a sensor on a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// The reports taken from it.
    pub taken: Taken,
    /// Whether the run is new to this judge.
    pub is_new: bool,
}

/// The result of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taking {
    /// The reports taken, with this one.
    pub taken: Taken,
    /// Whether this report has to be processed; false if it was taken before.
    pub is_next: bool,
    /// Tallies before this report that no judge has got, nor will get.
    pub missed: u64,
}

impl Books {
    /// A run of a sensor connects. `before`: what judges have taken of it. To a judge for which the run is new, the
    /// reports that others have taken do not count as missed.
    pub fn open(&mut self, sensor: &NodeName, run: u64, before: Taken) -> Opened {
        let accounts = self.sensors.entry(sensor.clone()).or_default();
        let known = accounts.iter().position(|account| account.run == run).and_then(|at| accounts.remove(at));
        let is_new = known.is_none();
        let account = known.unwrap_or(Account { run, taken: Taken { number: 0, ..before } });
        let taken = account.taken;
        if accounts.len() >= RUNS_MAX {
            accounts.pop_front();
        }
        accounts.push_back(account);
        Opened { taken, is_new }
    }

    /// Takes a report with `count` tallies, and `before` tallies in all earlier reports. `None` if the run is no longer
    /// remembered.
    pub fn take(&mut self, sensor: &NodeName, run: u64, number: u64, before: u64, count: u64) -> Option<Taking> {
        let accounts = self.sensors.get_mut(sensor)?;
        let taken = &mut accounts.iter_mut().find(|account| account.run == run)?.taken;
        if number <= taken.number {
            return Some(Taking { taken: *taken, is_next: false, missed: 0 });
        }
        let missed = before.saturating_sub(taken.reported);
        let reported = taken.reported.max(before.saturating_add(count));
        *taken = Taken { number, reported, missed: taken.missed.saturating_add(missed) };
        Some(Taking { taken: *taken, is_next: true, missed })
    }
}
