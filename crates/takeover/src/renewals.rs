//! A candidate's requests for leases, and what voters have granted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};
use watari_values::NodeName;
use watari_wire::LeaseNumber;

use crate::terms::{Terms, Time};

/// The requests of one candidate for one address. A request goes to all voters at once, and has a number: its round.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Renewals {
    incarnation: u64,
    /// Of the last request.
    round: u64,
    /// The rounds for which an answer still counts, with the times at which the candidate asked. In order.
    asked: VecDeque<(u64, Time)>,
    /// For each voter, when the candidate asked for the newest lease that the voter has granted.
    granted: BTreeMap<NodeName, Time>,
}

impl Renewals {
    pub(crate) fn new(incarnation: u64) -> Self {
        Self { incarnation, round: 0, asked: VecDeque::new(), granted: BTreeMap::new() }
    }

    /// The number of the last request.
    pub(crate) fn last(&self) -> LeaseNumber {
        LeaseNumber { incarnation: self.incarnation, round: self.round }
    }

    /// The number of a new inquiry, whose answers are no leases.
    pub(crate) fn inquire(&mut self) -> LeaseNumber {
        self.round += 1;
        self.last()
    }

    /// The number of a new request. A lease counts from `now`, before any voter can grant it.
    pub(crate) fn ask(&mut self, terms: &Terms, now: Time) -> LeaseNumber {
        self.round += 1;
        self.asked.retain(|(_, asked)| *asked + terms.lease > now);
        self.asked.push_back((self.round, now));
        self.last()
    }

    /// Counts the lease that `voter` has granted for the request `number`.
    pub(crate) fn granted(&mut self, voter: &NodeName, number: LeaseNumber, voters: &BTreeSet<NodeName>) {
        if number.incarnation != self.incarnation || !voters.contains(voter) {
            return;
        }
        let Some((_, asked)) = self.asked.iter().find(|(round, _)| *round == number.round) else { return };
        let newest = self.granted.entry(voter.clone()).or_insert(*asked);
        *newest = (*newest).max(*asked);
    }

    /// The end of the lease: until then, a majority of voters grants no other candidate a lease. `None`: no majority
    /// has granted one.
    pub(crate) fn end(&self, terms: &Terms) -> Option<Time> {
        let mut asked: Vec<Time> = self.granted.values().copied().collect();
        asked.sort_unstable_by(|a, b| b.cmp(a));
        Some(*asked.get(terms.majority() - 1)? + terms.owner_lease())
    }

    /// Drops all leases. Later answers to earlier requests count for nothing.
    pub(crate) fn give_up(&mut self) {
        self.asked.clear();
        self.granted.clear();
    }
}
