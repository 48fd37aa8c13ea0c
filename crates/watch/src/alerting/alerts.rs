//! The alerts, and the notices that each receiver still has to get.
//!
//! A *slot* is the state of one alert for one receiver:
//!
//! ```text
//!                 begins                lasts for hold               delivered
//!     (nothing) ─────────▶ Held ──────────────────────▶ Due, unsent ─────────▶ Due, sent ──┐
//!         ▲                 │                                ▲ │                  │        │ repeat
//!         │      over       │                                └─┼──────────────────┼────────┘
//!         ├─────────────────┘                                  │ over             │ over
//!         │                         delivered                  ▼                  ▼
//!         └────────────────────────────────────────────── its end, unsent ◀───────┘
//! ```
//!
//! 1. A slot has at most one notice, the latest: a later notice replaces one that was not delivered. So alerts bound
//!    memory, and the number of state changes does not. The notice of the end of an episode also has its begin and its
//!    reason, so a receiver that was away for all of it gets the whole episode.
//! 2. A receiver gets no notice of an episode that is not known to have lasted for its `hold`.
//! 3. No due notice is dropped before it is delivered, except as [`ALERTS_MAX`] describes.
//! 4. A receiver gets one notice at a time, so it gets those of an alert in order. After a failure another notice is
//!    tried first, so a notice that a receiver refuses delays no other.
//! 5. After a restart ([`Alerts::restore`]) an alert continues as if the process had not stopped. If no sensor confirms
//!    it for [`UNCONFIRMED`], its server is no longer watched, and the alert is over. A held alert is due only after a
//!    confirmation.

use std::collections::BTreeMap;
use std::time::Duration;

use watari_endings::Change;
use watari_packets::Timestamp;

use super::notice::{Episode, Key, Notice, Over, Trouble};

/// All alerts. After each call that changes them, call [`Alerts::advance`], then [`Alerts::next`] for each receiver.
/// Send its notice, and report the result with [`Alerts::delivered`] or [`Alerts::failed`]. Call again at
/// [`Alerts::timeout`].
#[derive(Debug)]
pub struct Alerts {
    receivers: Vec<Receiver>,
    by_key: BTreeMap<Key, Alert>,
    next_id: u64,
    given_up: u64,
    is_changed: bool,
}

/// The notices that a receiver gets, and the time between attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The receiver's name in logs and in the journal.
    pub name: String,
    /// How long a state has to last before a notice.
    pub hold: Duration,
    /// The interval of repeated notices while the alert lasts; `None` repeats none.
    pub repeat: Option<Duration>,
    /// The states that the receiver is notified of.
    pub troubles: Vec<Trouble>,
    /// The wait after a failed attempt.
    pub backoff: Backoff,
}

/// The wait after failed attempts. It doubles each time. The second half of it is random, so that many senders do not
/// come back at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first failure.
    pub first: Duration,
    pub most: Duration,
    /// The wait after a receiver has refused a notice, and would refuse it again.
    pub refused: Duration,
}

/// A notice to send now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Index of the receiver.
    pub receiver: usize,
    pub notice: Notice,
    id: u64,
}

/// When to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The receiver accepts no notices now. It may state for how long.
    Later(Option<Duration>),
    /// The receiver refuses this notice. It may accept others.
    Slowly,
}

/// Counts of a receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Notices that were delivered.
    pub delivered: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Notices that are due and not delivered.
    pub waiting: usize,
}

/// The most alerts. For a further one, an alert is dropped that is over and of which no receiver was notified. If there
/// is none, the new one is not taken.
pub const ALERTS_MAX: usize = 1024;
/// After a restart, an alert without confirmation continues for this time: longer than the usual spans of profiles.
pub const UNCONFIRMED: Duration = Duration::from_mins(30);

#[derive(Debug)]
struct Receiver {
    policy: Policy,
    is_busy: bool,
    failures: u32,
    not_before: Timestamp,
    delivered: u64,
    failed: u64,
}

#[derive(Debug)]
pub(super) struct Alert {
    /// `None` if the alert is over.
    pub(super) episode: Option<Episode>,
    /// After a restart: the end of the time in which a sensor has to confirm it.
    unconfirmed_until: Option<Timestamp>,
    /// In the order of receivers.
    pub(super) slots: Vec<Slot>,
}

/// The state of an alert for one receiver.
#[derive(Debug, Clone, Default)]
pub(super) struct Slot {
    pub(super) state: NoticeState,
    pub(super) pending: Option<PendingNotice>,
    /// The receiver may have got a notice that the alert is active, and none yet that it is over.
    pub(super) may_know: bool,
    pub(super) repeat_at: Option<Timestamp>,
    /// The time of the next attempt, after the receiver refused the notice.
    not_before: Option<Timestamp>,
}

/// The state of the current episode for a receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum NoticeState {
    /// There is no episode, or the receiver is not notified of such states.
    #[default]
    None,
    /// The notice is due at this time, if the episode lasts.
    Held(Timestamp),
    /// The notice was due, so the end has to be sent, too.
    Due,
}

#[derive(Debug, Clone)]
pub(super) struct PendingNotice {
    id: u64,
    pub(super) episode: Episode,
    pub(super) over: Option<Over>,
}

impl Alerts {
    pub fn new(policies: impl IntoIterator<Item = Policy>) -> Self {
        let receivers = policies.into_iter().map(Receiver::new).collect();
        Self { receivers, by_key: BTreeMap::new(), next_id: 0, given_up: 0, is_changed: false }
    }

    /// Takes a change of a server's state, or its present state after a restart.
    pub fn change(&mut self, sensor: &str, change: &Change, now: Timestamp) {
        self.advance(now);
        let current = Trouble::of(change.verdict.state);
        for trouble in Trouble::ALL.into_iter().filter(|trouble| Some(*trouble) != current) {
            let key = Key::new(sensor, change.server, trouble);
            self.end(&key, &Over::new(change));
        }
        if let Some(trouble) = current {
            self.begin(&Key::new(sensor, change.server, trouble), change, now);
        }
        self.advance(now);
    }

    /// Advances time to `now`.
    pub fn advance(&mut self, now: Timestamp) {
        self.forget_unconfirmed(now);
        for alert in self.by_key.values_mut() {
            let Some(episode) = &alert.episode else { continue };
            for slot in &mut alert.slots {
                if slot.next_turn(alert.unconfirmed_until.is_some()).is_some_and(|at| at <= now) {
                    slot.state = NoticeState::Due;
                    slot.set_notice(&mut self.next_id, episode, None);
                    self.is_changed = true;
                }
            }
        }
    }

    /// The notice to send to a receiver now. The receiver is busy until [`Alerts::delivered`] or [`Alerts::failed`].
    pub fn next(&mut self, receiver: usize, now: Timestamp) -> Option<Delivery> {
        let state = self.receivers.get_mut(receiver)?;
        if state.is_busy || state.not_before > now {
            return None;
        }
        let slots = self.by_key.iter_mut().map(|(key, alert)| (key, &mut alert.slots[receiver]));
        let waiting = slots.filter(|(_, slot)| slot.pending.is_some() && slot.not_before <= Some(now));
        let (key, slot) = waiting.min_by_key(|(_, slot)| slot.pending.as_ref().map(|pending| pending.id))?;
        let PendingNotice { id, episode, over } = slot.pending.clone()?;
        state.is_busy = true;
        if over.is_none() && !slot.may_know {
            slot.may_know = true;
            self.is_changed = true;
        }
        Some(Delivery { receiver, notice: Notice { key: key.clone(), episode, over }, id })
    }

    /// The notice was delivered.
    pub fn delivered(&mut self, delivery: &Delivery, now: Timestamp) {
        let receiver = &mut self.receivers[delivery.receiver];
        receiver.is_busy = false;
        receiver.failures = 0;
        receiver.not_before = Timestamp(0);
        receiver.delivered += 1;
        let repeat = receiver.policy.repeat;
        let Some(alert) = self.by_key.get_mut(&delivery.notice.key) else { return };
        let slot = &mut alert.slots[delivery.receiver];
        slot.may_know = delivery.notice.over.is_none();
        if slot.pending.as_ref().is_some_and(|pending| pending.id == delivery.id) {
            slot.pending = None;
            slot.repeat_at = repeat.map(|repeat| now + repeat);
        }
        if alert.is_done() {
            self.by_key.remove(&delivery.notice.key);
        }
        self.is_changed = true;
    }

    /// The notice could not be delivered. `random`: any number, for the wait.
    pub fn failed(&mut self, delivery: &Delivery, retry: Retry, now: Timestamp, random: u64) {
        let receiver = &mut self.receivers[delivery.receiver];
        receiver.is_busy = false;
        receiver.failed += 1;
        let backoff = receiver.policy.backoff;
        let slot_not_before = match retry {
            Retry::Later(at_least) => {
                let wait = jittered(backoff.after(receiver.failures), random).max(at_least.unwrap_or_default());
                receiver.failures = receiver.failures.saturating_add(1);
                receiver.not_before = now + wait;
                None
            }
            Retry::Slowly => {
                receiver.failures = 0;
                receiver.not_before = Timestamp(0);
                Some(now + jittered(backoff.refused, random))
            }
        };
        let Some(alert) = self.by_key.get_mut(&delivery.notice.key) else { return };
        let slot = &mut alert.slots[delivery.receiver];
        if let Some(pending) = slot.pending.as_mut().filter(|pending| pending.id == delivery.id) {
            pending.id = fresh(&mut self.next_id);
            slot.not_before = slot_not_before;
        }
    }

    /// The time of the next action, if nothing changes before.
    pub fn timeout(&self) -> Option<Timestamp> {
        let alerts = self.by_key.values().flat_map(|alert| {
            let turns = alert.slots.iter().filter_map(|slot| slot.next_turn(alert.unconfirmed_until.is_some()));
            turns.filter(|_| alert.episode.is_some()).chain(alert.unconfirmed_until)
        });
        alerts.chain(self.receivers.iter().enumerate().filter_map(|(at, _)| self.next_try(at))).min()
    }

    /// Whether the content of the journal has changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// The counts of each receiver, in their order.
    pub fn counts(&self) -> impl Iterator<Item = (&Policy, Counts)> {
        self.receivers.iter().enumerate().map(|(at, receiver)| {
            let waiting = self.by_key.values().filter(|alert| alert.slots[at].pending.is_some()).count();
            (&receiver.policy, Counts { delivered: receiver.delivered, failed: receiver.failed, waiting })
        })
    }

    pub fn policy(&self, receiver: usize) -> &Policy {
        &self.receivers[receiver].policy
    }

    /// Alerts that are active.
    pub fn firing(&self) -> usize {
        self.by_key.values().filter(|alert| alert.episode.is_some()).count()
    }

    /// Alerts that were dropped, or not taken, because there were [`ALERTS_MAX`].
    pub const fn given_up(&self) -> u64 {
        self.given_up
    }
}

/// The journal's view.
impl Alerts {
    /// The alerts from before a restart, with slots in the present order of receivers.
    pub(super) fn restore(policies: Vec<Policy>, saved: Vec<(Key, Alert)>, now: Timestamp) -> Self {
        let mut alerts = Self::new(policies);
        for (key, mut alert) in saved.into_iter().take(ALERTS_MAX) {
            alert.unconfirmed_until = alert.episode.is_some().then_some(now + UNCONFIRMED);
            for pending in alert.slots.iter_mut().filter_map(|slot| slot.pending.as_mut()) {
                pending.id = fresh(&mut alerts.next_id);
            }
            if !alert.is_done() {
                alerts.by_key.insert(key, alert);
            }
        }
        alerts
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&Key, &Alert)> {
        self.by_key.iter()
    }

    pub(super) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.receivers.iter().map(|receiver| &receiver.policy)
    }
}

impl Alerts {
    fn begin(&mut self, key: &Key, change: &Change, now: Timestamp) {
        if !self.by_key.contains_key(key) && !self.make_room() {
            self.given_up += 1;
            return;
        }
        let alert = self.by_key.entry(key.clone()).or_insert_with(|| Alert::new(self.receivers.len()));
        alert.unconfirmed_until = None;
        alert.episode.get_or_insert_with(|| Episode::new(&change.verdict));
        // By the sensor's clock, which may differ from ours.
        let lasted = change.verdict.at.since(change.verdict.since);
        for (slot, receiver) in alert.slots.iter_mut().zip(&self.receivers) {
            if slot.state == NoticeState::None && receiver.policy.troubles.contains(&key.trouble) {
                slot.state = NoticeState::Held(now + receiver.policy.hold.saturating_sub(lasted));
                self.is_changed = true;
            }
        }
    }

    fn end(&mut self, key: &Key, over: &Over) {
        let Some(alert) = self.by_key.get_mut(key) else { return };
        let Some(episode) = alert.episode.take() else { return };
        // Clocks may have been set.
        let over = Over { at: over.at.max(episode.since), because: over.because.clone() };
        alert.unconfirmed_until = None;
        for slot in &mut alert.slots {
            if std::mem::take(&mut slot.state) == NoticeState::Due {
                slot.set_notice(&mut self.next_id, &episode, Some(over.clone()));
            }
        }
        if alert.is_done() {
            self.by_key.remove(key);
        }
        self.is_changed = true;
    }

    fn forget_unconfirmed(&mut self, now: Timestamp) {
        let is_forgotten = |alert: &Alert| alert.unconfirmed_until.is_some_and(|until| until <= now);
        let forgotten = self.by_key.iter().filter(|(_, alert)| is_forgotten(alert)).map(|(key, _)| key.clone());
        for key in forgotten.collect::<Vec<_>>() {
            let because = "No report has named the server since the monitor restarted".to_owned();
            self.end(&key, &Over { at: now, because });
        }
    }

    /// Makes room for one more alert. Returns false if none can be dropped.
    fn make_room(&mut self) -> bool {
        if self.by_key.len() < ALERTS_MAX {
            return true;
        }
        let over = self.by_key.iter().filter_map(|(key, alert)| Some((alert.given_up_first()?, key)));
        let Some(key) = over.min().map(|(_, key)| key.clone()) else { return false };
        self.by_key.remove(&key);
        self.given_up += 1;
        true
    }

    /// The time of the next attempt for a receiver with due notices.
    fn next_try(&self, receiver: usize) -> Option<Timestamp> {
        let state = &self.receivers[receiver];
        let slots = self.by_key.values().map(|alert| &alert.slots[receiver]);
        let tries = slots.filter(|slot| slot.pending.is_some() && !state.is_busy).map(|slot| slot.not_before);
        tries.min().map(|at| at.unwrap_or(state.not_before).max(state.not_before))
    }
}

impl Receiver {
    const fn new(policy: Policy) -> Self {
        Self { policy, is_busy: false, failures: 0, not_before: Timestamp(0), delivered: 0, failed: 0 }
    }
}

impl Alert {
    fn new(receivers: usize) -> Self {
        Self::saved(None, vec![Slot::default(); receivers])
    }

    pub(super) const fn saved(episode: Option<Episode>, slots: Vec<Slot>) -> Self {
        Self { episode, unconfirmed_until: None, slots }
    }

    /// Whether the alert is over, and all its notices are delivered.
    fn is_done(&self) -> bool {
        self.episode.is_none() && self.slots.iter().all(|slot| slot.pending.is_none())
    }

    /// The end of the alert, if no receiver may have been notified of it.
    fn given_up_first(&self) -> Option<Timestamp> {
        if self.episode.is_some() || self.slots.iter().any(|slot| slot.may_know) {
            return None;
        }
        let over = self.slots.iter().filter_map(|slot| slot.pending.as_ref()?.over.as_ref());
        over.map(|over| over.at).max()
    }
}

impl Slot {
    pub(super) const fn saved(
        state: NoticeState,
        pending: Option<PendingNotice>,
        may_know: bool,
        repeat_at: Option<Timestamp>,
    ) -> Self {
        Self { state, pending, may_know, repeat_at, not_before: None }
    }

    /// The time at which the slot becomes due by itself.
    fn next_turn(&self, is_unconfirmed: bool) -> Option<Timestamp> {
        match self.state {
            NoticeState::Held(until) if !is_unconfirmed => Some(until),
            NoticeState::Due if self.pending.is_none() => self.repeat_at,
            NoticeState::None | NoticeState::Held(_) | NoticeState::Due => None,
        }
    }

    /// Sets the notice to send, in place of an earlier one.
    fn set_notice(&mut self, next_id: &mut u64, episode: &Episode, over: Option<Over>) {
        self.pending = Some(PendingNotice { id: fresh(next_id), episode: episode.clone(), over });
        self.repeat_at = None;
        self.not_before = None;
    }
}

impl PendingNotice {
    pub(super) const fn saved(episode: Episode, over: Option<Over>) -> Self {
        Self { id: 0, episode, over }
    }
}

impl Backoff {
    /// The default waits.
    pub const fn usual() -> Self {
        let (first, most, refused) = (Duration::from_secs(1), Duration::from_mins(5), Duration::from_mins(15));
        Self { first, most, refused }
    }

    fn after(&self, failures: u32) -> Duration {
        self.first.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX)).min(self.most)
    }
}

fn jittered(wait: Duration, random: u64) -> Duration {
    let half = wait / 2;
    half + half.mul_f64(f64::from(random as u32) / f64::from(u32::MAX))
}

fn fresh(next_id: &mut u64) -> u64 {
    *next_id += 1;
    *next_id
}

#[cfg(test)]
mod tests;
