//! One look at all origins and transfers.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::governor::budget::Budget;
use crate::governor::refusals::Refusals;
use crate::governor::settings::Damping;
use crate::governor::track::Track;
use crate::governor::views::{Availability, Cause, Order, OriginId, OriginView, TransferId, TransferView};

/// The state at one moment, and the orders so far.
pub(crate) struct Look<'a> {
    pub(crate) now: Instant,
    pub(crate) damping: &'a Damping,
    pub(crate) transfers: &'a [TransferView],
    /// One for each transfer.
    pub(crate) tracks: &'a mut HashMap<TransferId, Track>,
    pub(crate) origins: Vec<OriginLoad>,
    pub(crate) orders: Vec<Order>,
    refusals: &'a Refusals,
    budget: &'a mut Budget,
}

/// An origin, with the effect of all orders so far.
#[derive(Debug, Clone)]
pub(crate) struct OriginLoad {
    pub(crate) id: OriginId,
    pub(crate) availability: Availability,
    pub(crate) weight: f64,
    pub(crate) connections: f64,
    pub(crate) rate: f64,
    pub(crate) response: Duration,
    /// The average of its load under the configured metric. 0 until the load has been averaged.
    pub(crate) average: f64,
}

impl OriginLoad {
    #[allow(clippy::cast_precision_loss, reason = "under 2^53")]
    pub(crate) fn of(view: &OriginView) -> Self {
        Self {
            id: view.id,
            availability: view.availability,
            weight: f64::from(view.weight.max(1)),
            connections: view.connections as f64,
            rate: view.rate as f64,
            response: view.response,
            average: 0.0,
        }
    }
}

/// The origin with the fewest connections per weight, with one more connection added to each.
pub(crate) fn least_loaded(origins: impl Iterator<Item = OriginLoad>) -> Option<OriginId> {
    let load = |origin: &OriginLoad| (origin.connections + 1.0) / origin.weight;
    origins.min_by(|a, b| load(a).total_cmp(&load(b))).map(|origin| origin.id)
}

impl<'a> Look<'a> {
    pub(crate) fn new(
        now: Instant,
        damping: &'a Damping,
        origins: &[OriginView],
        transfers: &'a [TransferView],
        tracks: &'a mut HashMap<TransferId, Track>,
        refusals: &'a Refusals,
        budget: &'a mut Budget,
    ) -> Self {
        let origins = origins.iter().map(OriginLoad::of).collect();
        let mut look = Self { now, damping, transfers, tracks, origins, orders: Vec::new(), refusals, budget };
        // A transfer that is being moved counts at its target, and not at its source.
        for view in transfers.iter().filter(|view| view.moving_to.is_some()) {
            look.change(view.origin, -1.0, 0.0);
        }
        look
    }

    /// Orders all transfers away from origins that are being drained.
    pub(crate) fn drain(&mut self) {
        let ids: Vec<_> =
            self.origins.iter().filter(|it| it.availability == Availability::Draining).map(|it| it.id).collect();
        for view in self.transfers.iter().filter(|view| ids.contains(&view.origin)) {
            if self.is_free(view)
                && let Some(to) = self.target(view, |_| true)
            {
                self.order(view, to, Cause::Draining);
            }
        }
    }

    /// Orders transfers away that got no bytes, or too few, for `stalled`. None returns to an origin that it left less
    /// than the minimum stay ago.
    ///
    /// This includes transfers that are being moved: if the origin that was asked does not respond either, a third one
    /// may.
    pub(crate) fn leave_stalled(&mut self, stalled: Duration) {
        for view in self.transfers {
            if !self.tracks[&view.id].is_stalled(view, self.now, stalled) || self.is_ordered(view) {
                continue;
            }
            if let Some(to) = self.target(view, |to| Some(to) != view.moving_to && !self.has_left(view, to)) {
                self.order(view, to, Cause::Stalled);
            }
        }
    }

    /// Whether the transfer is not being moved, and this look has not ordered it elsewhere.
    pub(crate) fn is_free(&self, view: &TransferView) -> bool {
        view.moving_to.is_none() && !self.is_ordered(view)
    }

    fn is_ordered(&self, view: &TransferView) -> bool {
        self.orders.iter().any(|order| order.transfer == view.id)
    }

    /// Whether the limits allow an optional move, for [`Cause::Slow`] or [`Cause::Unequal`].
    pub(crate) fn is_settled(&self, view: &TransferView) -> bool {
        self.is_free(view) && self.tracks[&view.id].is_settled(view, self.now, self.damping)
    }

    /// Whether `to` is a possible target for an optional move.
    pub(crate) fn may_go(&self, view: &TransferView, to: OriginId) -> bool {
        to != view.origin && !self.has_left(view, to) && !self.refusals.has(view.resource, to)
    }

    /// Orders the transfer elsewhere, if the budgets allow it.
    pub(crate) fn order(&mut self, view: &TransferView, to: OriginId, cause: Cause) -> bool {
        let Some(track) = self.tracks.get_mut(&view.id) else { return false };
        let may = cause != Cause::Stalled || track.may_fail(self.now, self.damping);
        if !may || !self.budget.spend(self.now, view.origin, to, self.damping) {
            return false;
        }
        match cause {
            Cause::Stalled => track.fail(self.now, self.damping),
            Cause::Slow | Cause::Unequal => track.moves += 1,
            _ => {}
        }
        track.asks(view, self.now);
        let rate = track.pace.last.map_or(0.0, |window| window.rate);
        self.change(view.origin, -1.0, -rate);
        self.change(to, 1.0, rate);
        self.orders.push(Order { transfer: view.id, from: view.origin, to, cause });
        true
    }

    fn has_left(&self, view: &TransferView, to: OriginId) -> bool {
        self.tracks[&view.id].has_left(to, self.now, self.damping.stay_min)
    }

    fn target(&self, view: &TransferView, wanted: impl Fn(OriginId) -> bool) -> Option<OriginId> {
        let is_target = |to: &&OriginLoad| {
            let is_other = to.availability == Availability::Up && to.id != view.origin;
            is_other && !self.refusals.has(view.resource, to.id) && wanted(to.id)
        };
        least_loaded(self.origins.iter().filter(is_target).cloned())
    }

    fn change(&mut self, id: OriginId, connections: f64, rate: f64) {
        if let Some(origin) = self.origins.iter_mut().find(|origin| origin.id == id) {
            origin.connections = (origin.connections + connections).max(0.0);
            origin.rate = (origin.rate + rate).max(0.0);
        }
    }
}
