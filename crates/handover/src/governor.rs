//! Decides which running transfers move, and where.
//!
//! One [`Governor`] decides for the transfers of one pool. It has no I/O and no clock. The caller
//!
//! * passes it all origins and transfers four times a second ([`Governor::look`]), and carries out its orders,
//! * asks it at once when an origin fails ([`Governor::failed`]), and
//! * passes on the operator's requests ([`Governor::asked`]).
//!
//! ```text
//!   cause      when                                                     stay  gain  moves  failures  per second
//!   failed     the origin fails                                                                  x
//!   manual     the operator requests it
//!   draining   its origin is being drained                                                               x
//!   stalled    no bytes, or too few, for a while, though the client      (x)                  x          x
//!              would take more
//!   slow       twice in a row well below what is usual elsewhere          x     x     x                  x
//!   unequal    its origin has much more load than another                 x     x     x                  x
//! ```
//!
//! The columns name the limits that damp a cause:
//!
//! * stay: a minimum time at an origin, and before a return to it (for stalled transfers, only the latter);
//! * gain: a minimum gain;
//! * moves: the moves of one transfer;
//! * failures: the failures in a row;
//! * per second: the moves of one origin, and of all, in a second.
//!
//! An origin that refused to continue a resource is not asked again for it for a while, for any transfer and cause,
//! unless the operator requests it.

mod balance;
mod budget;
mod look;
mod refusals;
mod settings;
mod slow;
mod track;
mod views;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use balance::Balance;
use budget::Budget;
use look::{Look, OriginLoad, least_loaded};
use refusals::Refusals;
pub use settings::{Damping, Metric, Settings, Slow, Unequal};
use slow::SlowLooks;
use track::Track;
pub use views::{Availability, Cause, Denied, Order, OriginId, OriginView, ResourceId, TransferId, TransferView};

/// Decides which running transfers of a pool move, and where.
#[derive(Debug)]
pub struct Governor {
    settings: Settings,
    tracks: HashMap<TransferId, Track>,
    refusals: Refusals,
    budget: Budget,
    balance: Balance,
    slow: SlowLooks,
}

impl Governor {
    /// A governor without history.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            tracks: HashMap::new(),
            refusals: Refusals::default(),
            budget: Budget::default(),
            balance: Balance::default(),
            slow: SlowLooks::default(),
        }
    }

    /// Reads the state of all origins of the pool and of all transfers that could move, and orders some transfers to
    /// other origins.
    ///
    /// Each order counts against the limits, whether it succeeds or not. If the caller cannot carry out an order, it
    /// calls [`Governor::refused`] and [`Governor::stays`]. While it tries, it shows the transfer as moving
    /// ([`TransferView::moving_to`]). A later order for such a transfer replaces the first one; its cause is
    /// [`Cause::Stalled`].
    pub fn look(&mut self, now: Instant, origins: &[OriginView], transfers: &[TransferView]) -> Vec<Order> {
        self.remember(now, origins, transfers);
        let (damping, budget) = (&self.settings.damping, &mut self.budget);
        let mut look = Look::new(now, damping, origins, transfers, &mut self.tracks, &self.refusals, budget);
        look.drain();
        if let Some(stalled) = self.settings.stalled {
            look.leave_stalled(stalled);
        }
        if let Some(slow) = &self.settings.slow {
            self.slow.look(&mut look, slow);
        }
        if let Some(unequal) = &self.settings.unequal {
            self.balance.look(&mut look, unequal);
        }
        look.orders
    }

    /// The transfer's origin has failed, or has cut it short. Returns the origin that may continue it, which is its own
    /// one if there is no other.
    ///
    /// If that origin refuses too, the caller calls [`Governor::refused`] and asks again.
    pub fn failed(
        &mut self,
        now: Instant,
        origins: &[OriginView],
        transfer: &TransferView,
    ) -> Result<OriginId, Denied> {
        let damping = &self.settings.damping;
        let track = self.tracks.entry(transfer.id).or_insert_with(|| Track::new(transfer, now));
        if !track.may_fail(now, damping) {
            return Err(Denied::TooOften);
        }
        track.fail(now, damping);
        track.asks(transfer, now);
        let may_serve = |origin: &&OriginView| {
            origin.availability != Availability::Down && !self.refusals.has(transfer.resource, origin.id)
        };
        let rank = |origin: &OriginView| {
            let has_left = track.has_left(origin.id, now, damping.stay_min);
            (origin.availability != Availability::Up, origin.id == transfer.origin, has_left)
        };
        let best = origins.iter().filter(may_serve).map(rank).min();
        let equally_good = origins.iter().filter(may_serve).filter(|origin| Some(rank(origin)) == best);
        least_loaded(equally_good.map(OriginLoad::of)).ok_or(Denied::Nowhere)
    }

    /// The operator requests a move, to `to` or to the origin with the least load. No limit applies.
    pub fn asked(
        &mut self,
        now: Instant,
        origins: &[OriginView],
        transfer: &TransferView,
        to: Option<OriginId>,
    ) -> Result<Order, Denied> {
        if transfer.moving_to.is_some() {
            return Err(Denied::Moving);
        }
        let others =
            origins.iter().filter(|origin| origin.id != transfer.origin && origin.availability == Availability::Up);
        let is_wanted = |origin: &&OriginView| match to {
            Some(to) => origin.id == to,
            None => !self.refusals.has(transfer.resource, origin.id),
        };
        let to = least_loaded(others.filter(is_wanted).map(OriginLoad::of)).ok_or(Denied::Nowhere)?;
        self.tracks.entry(transfer.id).or_insert_with(|| Track::new(transfer, now)).asks(transfer, now);
        Ok(Order { transfer: transfer.id, from: transfer.origin, to, cause: Cause::Manual })
    }

    /// An origin did not continue this resource, for any reason. It is not asked again for a while.
    pub fn refused(&mut self, now: Instant, resource: ResourceId, origin: OriginId) {
        self.refusals.note(resource, origin, now);
    }

    /// The origin of an order does not continue this transfer. If the transfer has stalled, the next look orders it to
    /// another one.
    pub fn stays(&mut self, transfer: TransferId) {
        if let Some(track) = self.tracks.get_mut(&transfer) {
            track.was_refused();
        }
    }

    fn remember(&mut self, now: Instant, origins: &[OriginView], transfers: &[TransferView]) {
        self.refusals.forget(now, self.settings.damping.refusal_memory);
        self.budget.keep(origins);
        let window = self.window();
        for view in transfers {
            let track = self.tracks.entry(view.id).or_insert_with(|| Track::new(view, now));
            track.follow(view, now, window, &self.settings);
        }
        self.tracks.retain(|_, track| track.seen == now);
    }

    /// The window over which rates are measured. `None` if no setting depends on rates.
    fn window(&self) -> Option<Duration> {
        let of_balance = |unequal: Unequal| (unequal.metric == Metric::Rate).then_some(unequal.settle);
        self.settings.slow.map(|slow| slow.window).or_else(|| self.settings.unequal.and_then(of_balance))
    }
}

#[cfg(test)]
mod tests;
