//! Those who wait at one priority.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::Ticket;

/// Clients take turns: each has a number, the smallest goes first, and whoever had its turn draws the next number there
/// is. A client has the same number under all rules.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// How often others began although somebody here could have, since somebody here last did.
    pub(super) passed_over: u32,
    /// Under which rules somebody waits.
    lanes: BTreeMap<usize, Lane>,
    clients: BTreeMap<IpAddr, Turn>,
    last_number: u64,
}

/// Those who wait under one rule.
#[derive(Debug, Default)]
struct Lane {
    /// In the order in which they came.
    tickets: BTreeMap<IpAddr, BTreeSet<Ticket>>,
    /// The clients by their numbers.
    order: BTreeMap<u64, IpAddr>,
}

#[derive(Debug)]
struct Turn {
    number: u64,
    /// Requests that wait, under whatever rules.
    waiting: usize,
}

/// Somebody who waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    pub(super) rule: usize,
    pub(super) client: IpAddr,
    pub(super) ticket: Ticket,
}

impl Line {
    /// A request waits. A client that had none comes last.
    pub(super) fn push(&mut self, who: Next) {
        let turn = self.clients.entry(who.client).or_insert_with(|| {
            self.last_number += 1;
            Turn { number: self.last_number, waiting: 0 }
        });
        turn.waiting += 1;
        let lane = self.lanes.entry(who.rule).or_default();
        lane.order.insert(turn.number, who.client);
        lane.tickets.entry(who.client).or_default().insert(who.ticket);
    }

    /// A request does not wait any more.
    pub(super) fn remove(&mut self, who: Next) {
        let (Some(turn), Some(lane)) = (self.clients.get_mut(&who.client), self.lanes.get_mut(&who.rule)) else {
            return;
        };
        lane.remove(who, turn.number);
        if lane.tickets.is_empty() {
            self.lanes.remove(&who.rule);
        }
        turn.waiting -= 1;
        if turn.waiting == 0 {
            self.clients.remove(&who.client);
        }
    }

    /// Who is first among those whose rules let them begin.
    pub(super) fn next(&self, can_begin: impl Fn(usize) -> bool) -> Option<Next> {
        let lanes = self.lanes.iter().filter(|(rule, _)| can_begin(**rule));
        let first =
            lanes.filter_map(|(rule, lane)| lane.first(*rule)).min_by_key(|(number, who)| (*number, who.ticket));
        first.map(|(_, who)| who)
    }

    /// A request of `client` begins: somebody here had a turn, and the client has to let all others go first now.
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
        let ticket = *self.tickets.get(client)?.first()?;
        Some((*number, Next { rule, client: *client, ticket }))
    }

    fn remove(&mut self, who: Next, number: u64) {
        let Some(tickets) = self.tickets.get_mut(&who.client) else { return };
        tickets.remove(&who.ticket);
        if tickets.is_empty() {
            self.tickets.remove(&who.client);
            self.order.remove(&number);
        }
    }
}
