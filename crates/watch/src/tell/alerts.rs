//! Which alerts there are, and what each receiver still has to be told.
//!
//! What one receiver is told of one alert; each is a *slot*:
//!
//! ```text
//!                 begins                lasts for hold                 told
//!     (nothing) ─────────▶ Held ──────────────────────▶ Due, untold ─────────▶ Due, told ──┐
//!         ▲                 │                                ▲ │                  │        │ repeat
//!         │      over       │                                └─┼──────────────────┼────────┘
//!         ├─────────────────┘                                  │ over             │ over
//!         │                            told                    ▼                  ▼
//!         └────────────────────────────────────────────── its end, untold ◀───────┘
//! ```
//!
//! 1. A slot holds one notice at most, the latest: what was not told yet is superseded by what comes after it, so memory is
//!    bounded by alerts and not by how often servers change. The end of an episode says also when and why it began, so a
//!    receiver that was away for all of it learns what has been.
//! 2. What did not last for a receiver's `hold`, as far as was known, it is never told.
//! 3. Nothing that is due is given up before it is told, but see [`ALERTS_MAX`].
//! 4. A receiver is told one thing at a time, so it hears what happened to an alert in order. After a failure something else
//!    is tried first: a notice that a receiver cannot bear holds up no other.
//! 5. After a restart ([`Alerts::restore`]) an alert goes on as if it had never stopped. If it is not heard of for
//!    [`UNCONFIRMED`], nobody watches its server any more, and it is over. What was held is not told unless confirmed.

use std::collections::BTreeMap;
use std::time::Duration;

use watari_endings::Change;
use watari_packets::Timestamp;

use super::notice::{Episode, Key, Notice, Over, Trouble};

/// All alerts. After each call that changes them, call [`Alerts::advance`], then [`Alerts::next`] for each receiver; do what
/// it says and report it by [`Alerts::told`] or [`Alerts::failed`]. Call again at [`Alerts::timeout`].
#[derive(Debug)]
pub struct Alerts {
    receivers: Vec<Receiver>,
    by_key: BTreeMap<Key, Alert>,
    next_id: u64,
    given_up: u64,
    is_changed: bool,
}

/// What a receiver wants to be told, and how often it is tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Which receiver, in logs and in the journal.
    pub name: String,
    /// How long a state must have lasted.
    pub hold: Duration,
    /// How long after it was told that goes on it is told again; `None`: never.
    pub repeat: Option<Duration>,
    /// Of which states.
    pub troubles: Vec<Trouble>,
    /// How long after a failure it is tried again.
    pub backoff: Backoff,
}

/// How long after a failure a receiver is tried again: twice as long each time, the second half of it at random, so that many
/// that were turned away do not come back at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first.
    pub first: Duration,
    /// The longest.
    pub most: Duration,
    /// After a notice was refused that would be refused again.
    pub refused: Duration,
}

/// Something to be told now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// To which receiver.
    pub receiver: usize,
    /// What.
    pub notice: Notice,
    id: u64,
}

/// When it makes sense to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The receiver cannot be told anything now, and may say for how long.
    Later(Option<Duration>),
    /// It does not want this notice. Others it may.
    Slowly,
}

/// What was told to a receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Notices.
    pub told: u64,
    /// Tries that failed.
    pub failed: u64,
    /// Notices that wait to be told.
    pub waiting: usize,
}

/// How many alerts are held. Beyond it, one that is over and that nobody was told of is given up for a new one; if there is
/// none, the new one is not taken.
pub const ALERTS_MAX: usize = 1024;
/// How long after a restart an alert of which nothing is heard is believed to go on: longer than the spans by which servers
/// are judged usually are.
pub const UNCONFIRMED: Duration = Duration::from_mins(30);

#[derive(Debug)]
struct Receiver {
    policy: Policy,
    is_busy: bool,
    failures: u32,
    not_before: Timestamp,
    told: u64,
    failed: u64,
}

#[derive(Debug)]
pub(super) struct Alert {
    /// `None`: it is over.
    pub(super) episode: Option<Episode>,
    /// Whether somebody has seen it since a restart, and how long it is believed until then.
    unconfirmed_until: Option<Timestamp>,
    /// In the order of receivers.
    pub(super) slots: Vec<Slot>,
}

/// What one receiver has to be told of an alert.
#[derive(Debug, Clone, Default)]
pub(super) struct Slot {
    pub(super) standing: Standing,
    pub(super) untold: Option<Untold>,
    /// It was told, or may have been, that the alert goes on, and not yet that it is over.
    pub(super) may_know: bool,
    pub(super) repeat_at: Option<Timestamp>,
    /// It was refused.
    not_before: Option<Timestamp>,
}

/// What the episode of now is to a receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// There is none, or it is none of its business.
    #[default]
    None,
    /// Told then, if it lasts.
    Held(Timestamp),
    /// Its end has to be told, too.
    Due,
}

#[derive(Debug, Clone)]
pub(super) struct Untold {
    id: u64,
    pub(super) episode: Episode,
    pub(super) over: Option<Over>,
}

impl Alerts {
    /// None yet.
    pub fn new(policies: impl IntoIterator<Item = Policy>) -> Self {
        let receivers = policies.into_iter().map(Receiver::new).collect();
        Self { receivers, by_key: BTreeMap::new(), next_id: 0, given_up: 0, is_changed: false }
    }

    /// A server is in another state, or is still in one after a restart.
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

    /// Time has come to `now`.
    pub fn advance(&mut self, now: Timestamp) {
        self.forget_unconfirmed(now);
        for alert in self.by_key.values_mut() {
            let Some(episode) = &alert.episode else { continue };
            for slot in &mut alert.slots {
                if slot.next_turn(alert.unconfirmed_until.is_some()).is_some_and(|at| at <= now) {
                    slot.standing = Standing::Due;
                    slot.say(&mut self.next_id, episode, None);
                    self.is_changed = true;
                }
            }
        }
    }

    /// What a receiver is to be told now. It is busy until [`Alerts::told`] or [`Alerts::failed`].
    pub fn next(&mut self, receiver: usize, now: Timestamp) -> Option<Delivery> {
        let state = self.receivers.get_mut(receiver)?;
        if state.is_busy || state.not_before > now {
            return None;
        }
        let slots = self.by_key.iter_mut().map(|(key, alert)| (key, &mut alert.slots[receiver]));
        let waiting = slots.filter(|(_, slot)| slot.untold.is_some() && slot.not_before <= Some(now));
        let (key, slot) = waiting.min_by_key(|(_, slot)| slot.untold.as_ref().map(|untold| untold.id))?;
        let Untold { id, episode, over } = slot.untold.clone()?;
        state.is_busy = true;
        if over.is_none() && !slot.may_know {
            slot.may_know = true;
            self.is_changed = true;
        }
        Some(Delivery { receiver, notice: Notice { key: key.clone(), episode, over }, id })
    }

    /// It was told.
    pub fn told(&mut self, delivery: &Delivery, now: Timestamp) {
        let receiver = &mut self.receivers[delivery.receiver];
        receiver.is_busy = false;
        receiver.failures = 0;
        receiver.not_before = Timestamp(0);
        receiver.told += 1;
        let repeat = receiver.policy.repeat;
        let Some(alert) = self.by_key.get_mut(&delivery.notice.key) else { return };
        let slot = &mut alert.slots[delivery.receiver];
        slot.may_know = delivery.notice.over.is_none();
        if slot.untold.as_ref().is_some_and(|untold| untold.id == delivery.id) {
            slot.untold = None;
            slot.repeat_at = repeat.map(|repeat| now + repeat);
        }
        if alert.is_done() {
            self.by_key.remove(&delivery.notice.key);
        }
        self.is_changed = true;
    }

    /// It could not be told. `random`: any number.
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
        if let Some(untold) = slot.untold.as_mut().filter(|untold| untold.id == delivery.id) {
            untold.id = fresh(&mut self.next_id);
            slot.not_before = slot_not_before;
        }
    }

    /// When there is something to do next, if nothing happens before.
    pub fn timeout(&self) -> Option<Timestamp> {
        let alerts = self.by_key.values().flat_map(|alert| {
            let turns = alert.slots.iter().filter_map(|slot| slot.next_turn(alert.unconfirmed_until.is_some()));
            turns.filter(|_| alert.episode.is_some()).chain(alert.unconfirmed_until)
        });
        alerts.chain(self.receivers.iter().enumerate().filter_map(|(at, _)| self.next_try(at))).min()
    }

    /// Whether what the journal keeps has changed since this was asked last.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Of each receiver, in their order.
    pub fn counts(&self) -> impl Iterator<Item = (&Policy, Counts)> {
        self.receivers.iter().enumerate().map(|(at, receiver)| {
            let waiting = self.by_key.values().filter(|alert| alert.slots[at].untold.is_some()).count();
            (&receiver.policy, Counts { told: receiver.told, failed: receiver.failed, waiting })
        })
    }

    /// What a receiver wants to be told.
    pub fn policy(&self, receiver: usize) -> &Policy {
        &self.receivers[receiver].policy
    }

    /// How many servers are in trouble.
    pub fn firing(&self) -> usize {
        self.by_key.values().filter(|alert| alert.episode.is_some()).count()
    }

    /// How many alerts were given up, or not taken, because there were [`ALERTS_MAX`].
    pub const fn given_up(&self) -> u64 {
        self.given_up
    }
}

/// Their past.
impl Alerts {
    /// What was before a restart, in slots of receivers in their order of now.
    pub(super) fn restore(policies: Vec<Policy>, saved: Vec<(Key, Alert)>, now: Timestamp) -> Self {
        let mut alerts = Self::new(policies);
        for (key, mut alert) in saved.into_iter().take(ALERTS_MAX) {
            alert.unconfirmed_until = alert.episode.is_some().then_some(now + UNCONFIRMED);
            for untold in alert.slots.iter_mut().filter_map(|slot| slot.untold.as_mut()) {
                untold.id = fresh(&mut alerts.next_id);
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
        // By the clock of who saw it: ours may be another.
        let lasted = change.verdict.at.since(change.verdict.since);
        for (slot, receiver) in alert.slots.iter_mut().zip(&self.receivers) {
            if slot.standing == Standing::None && receiver.policy.troubles.contains(&key.trouble) {
                slot.standing = Standing::Held(now + receiver.policy.hold.saturating_sub(lasted));
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
            if std::mem::take(&mut slot.standing) == Standing::Due {
                slot.say(&mut self.next_id, &episode, Some(over.clone()));
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
            let because = "Nothing was heard of it since a restart of the monitor".to_owned();
            self.end(&key, &Over { at: now, because });
        }
    }

    /// Whether one more alert may be held.
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

    /// When a receiver can be told the next of what waits for it.
    fn next_try(&self, receiver: usize) -> Option<Timestamp> {
        let state = &self.receivers[receiver];
        let slots = self.by_key.values().map(|alert| &alert.slots[receiver]);
        let tries = slots.filter(|slot| slot.untold.is_some() && !state.is_busy).map(|slot| slot.not_before);
        tries.min().map(|at| at.unwrap_or(state.not_before).max(state.not_before))
    }
}

impl Receiver {
    const fn new(policy: Policy) -> Self {
        Self { policy, is_busy: false, failures: 0, not_before: Timestamp(0), told: 0, failed: 0 }
    }
}

impl Alert {
    fn new(receivers: usize) -> Self {
        Self::saved(None, vec![Slot::default(); receivers])
    }

    pub(super) const fn saved(episode: Option<Episode>, slots: Vec<Slot>) -> Self {
        Self { episode, unconfirmed_until: None, slots }
    }

    /// Nobody has to be told anything any more.
    fn is_done(&self) -> bool {
        self.episode.is_none() && self.slots.iter().all(|slot| slot.untold.is_none())
    }

    /// When it was over, if nobody would miss it.
    fn given_up_first(&self) -> Option<Timestamp> {
        if self.episode.is_some() || self.slots.iter().any(|slot| slot.may_know) {
            return None;
        }
        let over = self.slots.iter().filter_map(|slot| slot.untold.as_ref()?.over.as_ref());
        over.map(|over| over.at).max()
    }
}

impl Slot {
    pub(super) const fn saved(
        standing: Standing,
        untold: Option<Untold>,
        may_know: bool,
        repeat_at: Option<Timestamp>,
    ) -> Self {
        Self { standing, untold, may_know, repeat_at, not_before: None }
    }

    /// When it has something to say by itself.
    fn next_turn(&self, is_unconfirmed: bool) -> Option<Timestamp> {
        match self.standing {
            Standing::Held(until) if !is_unconfirmed => Some(until),
            Standing::Due if self.untold.is_none() => self.repeat_at,
            Standing::None | Standing::Held(_) | Standing::Due => None,
        }
    }

    /// Whatever was not told before is not told any more.
    fn say(&mut self, next_id: &mut u64, episode: &Episode, over: Option<Over>) {
        self.untold = Some(Untold { id: fresh(next_id), episode: episode.clone(), over });
        self.repeat_at = None;
        self.not_before = None;
    }
}

impl Untold {
    pub(super) const fn saved(episode: Episode, over: Option<Over>) -> Self {
        Self { id: 0, episode, over }
    }
}

impl Backoff {
    /// As it is unless something else is configured.
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
