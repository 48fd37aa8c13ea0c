//! What a judge has taken.

use std::collections::{BTreeMap, VecDeque};

use watari_wire::NodeName;

use super::wire::Taken;

/// How far reports have been taken: of each sensor, of each of its runs.
#[derive(Debug, Default)]
pub struct Books {
    sensors: BTreeMap<NodeName, VecDeque<Account>>,
}

#[derive(Debug)]
struct Account {
    run: u64,
    taken: Taken,
}

/// How many runs of a sensor are known. It has one; two processes of one certificate, which by turns take the place of each
/// other, still are told apart.
pub const RUNS_MAX: usize = 16;

/// A run of a sensor, as a judge finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// How far its reports have been taken.
    pub taken: Taken,
    /// Whether the judge did not know it.
    pub is_new: bool,
}

/// What becomes of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taking {
    /// How far reports have been taken now.
    pub taken: Taken,
    /// Whether it is to be taken: it was not before.
    pub is_next: bool,
    /// How many tallies before it no judge has had, and will have.
    pub missed: u64,
}

impl Books {
    /// A run of a sensor connects, and says what judges have taken of it. To one that does not know it, what others have had is
    /// not missing.
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

    /// A report comes, of so many tallies, behind so many others. `None`: the run is not known any more.
    pub fn take(&mut self, sensor: &NodeName, run: u64, number: u64, before: u64, count: u64) -> Option<Taking> {
        let accounts = self.sensors.get_mut(sensor)?;
        let taken = &mut accounts.iter_mut().find(|account| account.run == run)?.taken;
        if number <= taken.number {
            return Some(Taking { taken: *taken, is_next: false, missed: 0 });
        }
        let missed = before.saturating_sub(taken.told);
        let told = taken.told.max(before.saturating_add(count));
        *taken = Taken { number, told, missed: taken.missed.saturating_add(missed) };
        Some(Taking { taken: *taken, is_next: true, missed })
    }
}
