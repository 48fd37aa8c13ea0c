//! Which running transfers move, and where.
//!
//! One [`Governor`] watches the transfers of one pool of origins. It is pure: who drives it shows it all of them every
//! second or so ([`Governor::look`]), carries out what it orders, and asks it at once when an origin fails
//! ([`Governor::failed`]) or the operator wishes ([`Governor::asked`]).
//!
//! ```text
//!   cause      when                                                     stay  gain  moves  failures  per second
//!   failed     asked for                                                                      x
//!   manual     asked for
//!   draining   its origin is being drained                                                               x
//!   stalled    nothing, or too little, for a while, though the client    (x)                  x          x
//!              would take more
//!   slow       twice in a row well below what is usual elsewhere          x     x     x                  x
//!   unequal    its origin has much more to do than another                x     x     x                  x
//! ```
//!
//! The columns say what damps it: a minimum stay at an origin, also before it is come back to (which is all that counts
//! for the stalled); a minimum gain; the number of moves of one transfer; the number of failures in a row; the moves of
//! an origin and of all in a second. An origin that refuses to go on with something is not asked again for a while, by
//! anybody, whatever the cause, unless the operator says so.

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
use look::{Look, Standing, least_loaded};
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
    /// One that has seen nothing yet.
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

    /// Looks at all origins of the pool and all transfers that could move, and orders some elsewhere.
    ///
    /// Each order counts, whatever becomes of it. One that cannot be carried out is reported by [`Governor::refused`] and
    /// [`Governor::stays`]; while it is tried, the transfer is shown as moving. An order for such a transfer replaces the one
    /// before: its cause is [`Cause::Stalled`].
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

    /// The transfer's origin has failed, or cut it short: where it may go on, which is its own origin if there is no
    /// other.
    ///
    /// If that refuses, too, say so ([`Governor::refused`]) and ask again.
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
        least_loaded(equally_good.map(Standing::of)).ok_or(Denied::Nowhere)
    }

    /// The operator wants the transfer elsewhere, at `to` or wherever there is least to do. Nothing damps that.
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
        let to = least_loaded(others.filter(is_wanted).map(Standing::of)).ok_or(Denied::Nowhere)?;
        self.tracks.entry(transfer.id).or_insert_with(|| Track::new(transfer, now)).asks(transfer, now);
        Ok(Order { transfer: transfer.id, from: transfer.origin, to, cause: Cause::Manual })
    }

    /// An origin did not go on with this resource, whatever the reason: it is not asked again for a while.
    pub fn refused(&mut self, now: Instant, resource: ResourceId, origin: OriginId) {
        self.refusals.note(resource, origin, now);
    }

    /// An origin that this transfer was ordered to does not go on with it. If the transfer has stalled, the next look orders it to
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

    /// Over how long rates are measured, if anything depends on them.
    fn window(&self) -> Option<Duration> {
        let of_balance = |unequal: Unequal| (unequal.metric == Metric::Rate).then_some(unequal.settle);
        self.settings.slow.map(|slow| slow.window).or_else(|| self.settings.unequal.and_then(of_balance))
    }
}

#[cfg(test)]
mod tests;
