//! The requests that wait at one priority.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::id::AdmissionId;

/// Clients take turns. Each client has a number, the same under all rules, and the smallest number goes first. A client
/// that has had its turn gets the next unused number.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// How often requests of other lines began although a request of this line could have, since one of this line last
    /// began.
    pub(super) passed_over: u32,
    /// The rules under which requests wait.
    lanes: BTreeMap<usize, Lane>,
    clients: BTreeMap<IpAddr, Turn>,
    last_number: u64,
}

/// The requests that wait under one rule.
#[derive(Debug, Default)]
struct Lane {
    /// In the order of arrival.
    ids: BTreeMap<IpAddr, BTreeSet<AdmissionId>>,
    /// The clients by their numbers.
    order: BTreeMap<u64, IpAddr>,
}

#[derive(Debug)]
struct Turn {
    number: u64,
    /// The client's waiting requests under all rules.
    waiting: usize,
}

/// A request that waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    pub(super) rule: usize,
    pub(super) client: IpAddr,
    pub(super) id: AdmissionId,
}

impl Line {
    /// Adds a request. A client that had none comes last.
    pub(super) fn push(&mut self, who: Next) {
        let turn = self.clients.entry(who.client).or_insert_with(|| {
            self.last_number += 1;
            Turn { number: self.last_number, waiting: 0 }
        });
        turn.waiting += 1;
        let lane = self.lanes.entry(who.rule).or_default();
        lane.order.insert(turn.number, who.client);
        lane.ids.entry(who.client).or_default().insert(who.id);
    }

    /// Removes a request.
    pub(super) fn remove(&mut self, who: Next) {
        let (Some(turn), Some(lane)) = (self.clients.get_mut(&who.client), self.lanes.get_mut(&who.rule)) else {
            return;
        };
        lane.remove(who, turn.number);
        if lane.ids.is_empty() {
            self.lanes.remove(&who.rule);
        }
        turn.waiting -= 1;
        if turn.waiting == 0 {
            self.clients.remove(&who.client);
        }
    }

    /// The first request among those whose rules have a free slot.
    pub(super) fn next(&self, can_begin: impl Fn(usize) -> bool) -> Option<Next> {
        let lanes = self.lanes.iter().filter(|(rule, _)| can_begin(**rule));
        let first = lanes.filter_map(|(rule, lane)| lane.first(*rule)).min_by_key(|(number, who)| (*number, who.id));
        first.map(|(_, who)| who)
    }

    /// A request of `client` begins. Resets the count of [`Line::passed_over`], and puts the client behind all others.
    pub(super) fn takes_turn(&mut self, client: IpAddr) {
        self.passed_over = 0;
        self.last_number += 1;
        let Some(turn) = self.clients.get_mut(&client) else { return };
        let before = std::mem::replace(&mut turn.number, self.last_number);
        for lane in self.lanes.values_mut() {
            if lane.order.remove(&before).is_some() {
                lane.order.insert(self.last_number, client);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty() && self.clients.is_empty()
    }
}

impl Lane {
    fn first(&self, rule: usize) -> Option<(u64, Next)> {
        let (number, client) = self.order.first_key_value()?;
        let id = *self.ids.get(client)?.first()?;
        Some((*number, Next { rule, client: *client, id }))
    }

    fn remove(&mut self, who: Next, number: u64) {
        let Some(ids) = self.ids.get_mut(&who.client) else { return };
        ids.remove(&who.id);
        if ids.is_empty() {
            self.ids.remove(&who.client);
            self.order.remove(&number);
        }
    }
}
