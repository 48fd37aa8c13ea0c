//! A dispatcher's part in the ownership of one service address.

mod orders;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use watari_values::NodeName;
use watari_wire::{
    Advert, LeaseNumber, LeaseRefused, LeaseReturned, LeaseWanted, Predecessor, TakeoverMessage, Yielded,
};

use crate::others::Others;
use crate::renewals::Renewals;
use crate::status::{OwnershipRole, Reason, Status};
use crate::terms::{Terms, Time};

/// The pause after a failure that another attempt would probably meet again, such as an address in use.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);

/// The settings of a candidate for one address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Settings {
    /// The candidate's node.
    pub node: NodeName,
    /// A random number, drawn when the process started.
    pub incarnation: u64,
    pub address: IpAddr,
    /// 1 to 254. Of the candidates that can serve clients, the one with the highest priority gets a free address first.
    pub priority: u8,
    /// Whether the candidate asks an owner with a lower priority to leave it the address.
    pub preempt: bool,
    pub terms: Terms,
}

/// Tries to own one address.
///
/// ```text
///              no advert for a lease, or Yielded          a majority grants
///   Standby ------------------------------------> Asking -------------------> Checking (not after Yielded)
///    ^  ^  ^                                        |                          |    |
///    |  |  +--- refused, or no majority: Return ----+       in use: Return     |    | Checked(free):
///    |  +----------------------------------------------------------------------+    | Activate
///    |                                                                              v
///    |  Removed: Return, Yielded             lease over, order, higher priority   Owner
///    +---------------------------- Leaving <------------------------------------- (Extend)
///                                            Deactivate
/// ```
///
/// Only an `Owner` answers at the address, and only as long as its gate is open. See [`Action`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Candidate {
    settings: Settings,
    state: State,
    reason: Reason,
    since: Time,
    renewals: Renewals,
    others: Others,
    /// Whether the node can serve clients at the address.
    ready: bool,
    ending: bool,
    /// When the next advert, and the next request of an owner, is due.
    beat_at: Time,
    /// Until then, the candidate neither asks nor preempts.
    pause_until: Time,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum State {
    Standby {
        /// When to ask for the lease.
        ask_at: Time,
        inquiry: Option<Inquiry>,
    },
    Asking {
        give_up_at: Time,
        /// The voters that refused the last request, with the time until they can grant a lease.
        refused: BTreeMap<NodeName, Duration>,
        succession: Option<Succession>,
    },
    Checking {
        succession: Option<Succession>,
    },
    Owner {
        /// The end of the lease, which the gate has.
        until: Time,
        by_order: bool,
        /// Whether the address is active: see [`Event::Activated`].
        is_active: bool,
    },
    Leaving {
        to: Option<NodeName>,
        by_order: bool,
    },
}

/// An inquiry whether a majority of voters can be reached, before the owner is asked to leave the address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Inquiry {
    number: LeaseNumber,
    asked: Time,
    answered: BTreeSet<NodeName>,
}

/// The previous owner leaves the address to this candidate.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Succession {
    before: Predecessor,
    by_order: bool,
}

/// Events of a candidate. Each call of [`Candidate::handle`] also does what is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event<'a> {
    /// It is [`Candidate::wake_at`].
    Tick,
    /// A message about the address.
    Message {
        /// The authenticated sender.
        from: &'a NodeName,
        message: &'a TakeoverMessage,
    },
    /// Whether the node can serve clients at the address has changed.
    Ready(bool),
    /// The result of [`Action::Check`]: the link-layer address of the machine that answers at the address.
    Checked(Option<[u8; 6]>),
    /// [`Action::Activate`] is done: the node answers at the address.
    Activated,
    /// [`Action::Activate`] or [`Action::Extend`] failed.
    Failed,
    /// [`Action::Deactivate`] is done: the gate is closed, and the interface does not have the address.
    Removed,
    /// Renew the lease now, and not when the next advert is due.
    Renew,
    /// The node ends. The candidate leaves the address to another.
    End,
}

/// Actions of a candidate, to carry out in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send this to all voters, this node included if it is one.
    ToVoters(TakeoverMessage),
    /// Send this to all other dispatchers.
    ToDispatchers(TakeoverMessage),
    /// Send this to a candidate.
    To(NodeName, TakeoverMessage),
    /// Ask on the link whether another machine has the address, then report [`Event::Checked`].
    Check,
    /// Open the gate until then, add the address to the interface, and announce it, then report [`Event::Activated`].
    /// The gate has to close by itself, at most [`GATE_SLACK`](crate::GATE_SLACK) after this time, whatever happens to
    /// the process.
    Activate { until: Time },
    /// Keep the gate open until then.
    Extend { until: Time },
    /// Close the gate and remove the address, then report [`Event::Removed`]. Repeat it until it succeeds.
    Deactivate,
}

impl Candidate {
    /// A candidate whose process starts at `now`. The interface must not have the address.
    pub fn new(settings: Settings, now: Time) -> Self {
        Self {
            renewals: Renewals::new(settings.incarnation),
            // An owner, if there is one, has sent an advert by then.
            state: State::Standby { ask_at: now + 2 * settings.terms.advert_interval, inquiry: None },
            settings,
            reason: Reason::Started,
            since: now,
            others: Others::default(),
            ready: false,
            ending: false,
            beat_at: now,
            pause_until: now,
        }
    }

    /// Handles one event, and appends the actions to carry out.
    pub fn handle(&mut self, event: Event<'_>, now: Time, actions: &mut Vec<Action>) {
        // First: after a stall, the lease of an owner is over.
        self.end_lease_in_time(now, actions);
        match event {
            Event::Tick => {}
            Event::Message { from, message } => self.on_message(from, message, now, actions),
            Event::Ready(ready) => {
                if ready != self.ready {
                    self.ready = ready;
                    self.beat_at = now;
                }
            }
            Event::Checked(in_use) => self.on_checked(in_use, now, actions),
            Event::Activated => {
                if let State::Owner { is_active, .. } = &mut self.state {
                    *is_active = true;
                    self.beat_at = now;
                }
            }
            Event::Failed => {
                if matches!(self.state, State::Owner { .. }) {
                    self.pause_until = now + FAILURE_PAUSE;
                    self.leave(None, false, Reason::SystemRefused, now, actions);
                }
            }
            Event::Removed => self.on_removed(now, actions),
            Event::Renew => self.beat_at = now,
            Event::End => self.on_end(now, actions),
        }
        self.ask_in_time(now, actions);
        self.beat(now, actions);
    }

    /// Goes on in another process of the node, from a copy that has handled all events. The previous process carries out
    /// nothing more. These settings may differ from then on. Appends the actions that may not have been carried out yet.
    /// It does no harm to carry out one of them again.
    pub fn resume(&mut self, priority: u8, preempt: bool, advert_interval: Duration, actions: &mut Vec<Action>) {
        (self.settings.priority, self.settings.preempt) = (priority, preempt);
        self.settings.terms.advert_interval = advert_interval;
        match self.state {
            State::Standby { .. } | State::Asking { .. } => {}
            State::Checking { .. } => actions.push(Action::Check),
            State::Owner { until, .. } => actions.push(Action::Activate { until }),
            State::Leaving { .. } => actions.push(Action::Deactivate),
        }
    }

    /// When [`Candidate::handle`] has to be called again at the latest. Later than the time of the last call.
    pub fn wake_at(&self) -> Time {
        let due = match &self.state {
            State::Standby { ask_at, .. } if self.ready => (*ask_at).max(self.pause_until),
            State::Standby { .. } | State::Leaving { .. } => Time::MAX,
            State::Asking { give_up_at, .. } => *give_up_at,
            State::Checking { .. } => self.renewals.end(self.terms()).unwrap_or(Time::MAX),
            State::Owner { until, .. } => *until,
        };
        due.min(self.beat_at)
    }

    /// The state, for operators.
    pub fn status(&self, now: Time) -> Status {
        let role = match self.state {
            State::Standby { .. } => OwnershipRole::Standby,
            State::Owner { is_active: true, .. } => OwnershipRole::Active,
            State::Asking { .. } | State::Checking { .. } | State::Owner { .. } => OwnershipRole::Asking,
            State::Leaving { .. } => OwnershipRole::Leaving,
        };
        let owner = match role {
            OwnershipRole::Active => Some(&self.settings.node),
            _ => self.others.owner(self.terms(), now),
        };
        let lease_end = match self.state {
            State::Owner { until, .. } => Some(until),
            _ => None,
        };
        Status {
            role,
            reason: self.reason.clone(),
            since: self.since,
            owner: owner.cloned(),
            lease_end,
            ready: self.ready,
            other_terms: self.others.with_other_terms(self.terms(), now).cloned(),
        }
    }

    /// The settings of the candidate.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    fn terms(&self) -> &Terms {
        &self.settings.terms
    }

    /// The priority that others see. 0: this node cannot serve clients.
    fn priority(&self) -> u8 {
        if self.ready && !self.ending { self.settings.priority } else { 0 }
    }

    fn enter(&mut self, state: State, reason: Reason, now: Time) {
        (self.state, self.reason, self.since) = (state, reason, now);
    }

    /// Ends what has lasted as long as it may.
    fn end_lease_in_time(&mut self, now: Time, actions: &mut Vec<Action>) {
        match &self.state {
            State::Owner { until, .. } if *until <= now => self.leave(None, false, Reason::LeaseLost, now, actions),
            State::Checking { .. } if self.renewals.end(self.terms()).is_none_or(|end| end <= now) => {
                self.give_back(Reason::LeaseLost, Duration::ZERO, now, actions);
            }
            State::Asking { give_up_at, .. } if *give_up_at <= now => {
                self.give_back(Reason::NoMajority, Duration::ZERO, now, actions);
            }
            _ => {}
        }
    }

    /// Begins to ask for the lease when it is time.
    fn ask_in_time(&mut self, now: Time, actions: &mut Vec<Action>) {
        let may_ask = self.priority() > 0 && self.others.with_other_terms(self.terms(), now).is_none();
        let later = now + self.terms().advert_interval;
        let State::Standby { ask_at, .. } = &mut self.state else { return };
        if *ask_at > now || self.pause_until > now {
            return;
        }
        if may_ask {
            self.begin_asking(None, Reason::NoOwner, now, actions);
        } else {
            *ask_at = later;
        }
    }

    fn begin_asking(&mut self, succession: Option<Succession>, reason: Reason, now: Time, actions: &mut Vec<Action>) {
        let give_up_at = now + self.terms().lease;
        self.enter(State::Asking { give_up_at, refused: BTreeMap::new(), succession }, reason, now);
        self.ask(now, actions);
    }

    /// Sends a request to all voters.
    fn ask(&mut self, now: Time, actions: &mut Vec<Action>) {
        let lease = self.renewals.ask(&self.settings.terms, now);
        let after = match &mut self.state {
            State::Asking { refused, succession, .. } => {
                refused.clear();
                succession.as_ref().map(|succession| succession.before.clone())
            }
            _ => None,
        };
        actions.push(Action::ToVoters(TakeoverMessage::LeaseWanted(self.wanted(lease, false, after))));
    }

    fn wanted(&self, lease: LeaseNumber, inquiry: bool, after: Option<Predecessor>) -> LeaseWanted {
        LeaseWanted { address: self.settings.address, lease, lease_ms: self.terms().lease_ms(), inquiry, after }
    }

    /// Sends what is due every `advert_interval`.
    fn beat(&mut self, now: Time, actions: &mut Vec<Action>) {
        if now < self.beat_at {
            return;
        }
        self.beat_at = now + self.terms().advert_interval;
        if matches!(self.state, State::Asking { .. } | State::Checking { .. } | State::Owner { .. }) {
            self.ask(now, actions);
        }
        actions.push(Action::ToDispatchers(self.advert()));
    }

    fn advert(&self) -> TakeoverMessage {
        let (is_owner, by_order) = match self.state {
            State::Owner { by_order, is_active, .. } => (is_active, by_order),
            _ => (false, false),
        };
        TakeoverMessage::Advert(Advert {
            address: self.settings.address,
            is_owner,
            priority: self.priority(),
            by_order,
            lease_ms: self.terms().lease_ms(),
            voters: self.terms().voters.iter().cloned().collect(),
        })
    }

    fn on_message(&mut self, from: &NodeName, message: &TakeoverMessage, now: Time, actions: &mut Vec<Action>) {
        if message.address() != self.settings.address {
            return;
        }
        match message {
            TakeoverMessage::LeaseGranted(granted) => {
                self.renewals.granted(from, granted.lease, &self.settings.terms.voters);
                self.use_lease(now, actions);
            }
            TakeoverMessage::LeaseRefused(refused) => self.on_refused(from, refused, now, actions),
            TakeoverMessage::Advert(advert) if *from != self.settings.node => {
                self.on_advert(from, advert, now, actions);
            }
            TakeoverMessage::SwitchWanted(wanted) => self.on_switch_wanted(from, wanted, now, actions),
            TakeoverMessage::Yielded(yielded) => self.on_yielded(from, yielded, now, actions),
            // Voters handle requests.
            TakeoverMessage::LeaseWanted(_) | TakeoverMessage::LeaseReturned(_) | TakeoverMessage::Advert(_) => {}
        }
    }

    /// Goes on when a majority has granted the lease, or has renewed it.
    fn use_lease(&mut self, now: Time, actions: &mut Vec<Action>) {
        let Some(end) = self.renewals.end(&self.settings.terms).filter(|end| *end > now) else { return };
        match &mut self.state {
            State::Asking { succession, .. } => {
                let succession = succession.take();
                let (reason, is_successor) = (self.reason.clone(), succession.is_some());
                self.enter(State::Checking { succession }, reason, now);
                if is_successor {
                    // No other machine has the address: the previous owner has answered at it until just now.
                    self.on_checked(None, now, actions);
                } else {
                    actions.push(Action::Check);
                }
            }
            State::Owner { until, .. } if end > *until => {
                *until = end;
                actions.push(Action::Extend { until: end });
            }
            _ => {}
        }
    }

    fn on_checked(&mut self, in_use: Option<[u8; 6]>, now: Time, actions: &mut Vec<Action>) {
        let State::Checking { succession } = &mut self.state else { return };
        let by_order = succession.take().is_some_and(|succession| succession.by_order);
        if let Some(by) = in_use {
            return self.give_back(Reason::AddressInUse { by }, FAILURE_PAUSE, now, actions);
        }
        // `end_lease_in_time` has ended a lease that is over.
        let Some(until) = self.renewals.end(&self.settings.terms) else { return };
        let reason = self.reason.clone();
        self.enter(State::Owner { until, by_order, is_active: false }, reason, now);
        actions.push(Action::Activate { until });
    }

    fn on_refused(&mut self, from: &NodeName, answer: &LeaseRefused, now: Time, actions: &mut Vec<Action>) {
        if !self.settings.terms.voters.contains(from) {
            return;
        }
        if let State::Standby { inquiry: Some(inquiry), .. } = &mut self.state {
            if inquiry.number == answer.lease {
                inquiry.answered.insert(from.clone());
                self.preempt_if_reachable(now, actions);
            }
            return;
        }
        let (last, voters, majority) = (self.renewals.last(), self.terms().voters.len(), self.terms().majority());
        let interval = self.terms().advert_interval;
        let State::Asking { refused, .. } = &mut self.state else { return };
        if last != answer.lease {
            return;
        }
        refused.insert(from.clone(), Duration::from_millis(answer.remaining_ms.into()));
        if voters - refused.len() < majority {
            // A dead owner's lease may end soon. Another candidate may give up soon, too.
            let remaining = refused.values().min().copied().unwrap_or_default();
            let reason = answer.holder.clone().map_or(Reason::NoMajority, Reason::HeldBy);
            self.give_back(reason, remaining.min(interval), now, actions);
        }
    }

    /// Gives up a lease of which no use was made, and asks again after `pause`.
    fn give_back(&mut self, reason: Reason, pause: Duration, now: Time, actions: &mut Vec<Action>) {
        self.return_lease(actions);
        let ask_at = now + pause.max(self.terms().advert_interval / 8) + self.skew(now);
        if pause >= FAILURE_PAUSE {
            self.pause_until = now + pause;
        }
        self.enter(State::Standby { ask_at, inquiry: None }, reason, now);
    }

    /// Gives all leases back to the voters. The gate must be closed.
    fn return_lease(&mut self, actions: &mut Vec<Action>) -> LeaseNumber {
        let (address, lease) = (self.settings.address, self.renewals.last());
        self.renewals.give_up();
        actions.push(Action::ToVoters(TakeoverMessage::LeaseReturned(LeaseReturned { address, lease })));
        lease
    }

    /// How much later than others this candidate asks for a free address, so that they do not ask all at once.
    fn skew(&self, now: Time) -> Duration {
        let Settings { node, priority, terms, .. } = &self.settings;
        let step = terms.advert_interval / 4;
        self.others.ahead_of(node, *priority, terms, now) * step + step * u32::from(u8::MAX - priority) / 256
    }

    /// Closes the gate and removes the address.
    fn leave(&mut self, to: Option<NodeName>, by_order: bool, reason: Reason, now: Time, actions: &mut Vec<Action>) {
        self.enter(State::Leaving { to, by_order }, reason, now);
        actions.push(Action::Deactivate);
    }

    fn on_removed(&mut self, now: Time, actions: &mut Vec<Action>) {
        let State::Leaving { to, by_order } = &mut self.state else { return };
        let (to, by_order) = (to.take(), *by_order);
        let lease = self.return_lease(actions);
        let terms = self.terms();
        // A successor gets the time of a lease. Otherwise voters were out of reach.
        let pause = if to.is_some() { terms.lease } else { terms.advert_interval };
        let ask_at = now + pause + self.skew(now);
        if let Some(to) = to {
            let yielded = Yielded { address: self.settings.address, lease, by_order };
            actions.push(Action::To(to, TakeoverMessage::Yielded(yielded)));
        }
        self.beat_at = now;
        let reason = self.reason.clone();
        self.enter(State::Standby { ask_at, inquiry: None }, reason, now);
    }
}

#[cfg(test)]
mod tests;
