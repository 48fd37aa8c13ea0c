//! Changes of the owner while the owner lives: preemption, ordered switches, and the end of a node.

use std::collections::BTreeSet;
use std::time::Duration;

use watari_values::NodeName;
use watari_wire::{Advert, Predecessor, SwitchWanted, TakeoverMessage, Yielded};

use super::{Action, Candidate, Event, Inquiry, State, Succession};
use crate::status::{Reason, SwitchRefused};
use crate::terms::Time;

impl Candidate {
    /// Orders a switch to `to`, or to the best other candidate. A candidate that is not the owner passes the order on.
    /// [`Candidate::status`] shows whether it has had its effect.
    pub fn order_switch(
        &mut self,
        to: Option<&NodeName>,
        now: Time,
        actions: &mut Vec<Action>,
    ) -> Result<(), SwitchRefused> {
        match &self.state {
            State::Owner { is_active: true, .. } => self.switch_from_here(to, now, actions),
            State::Standby { .. } => self.pass_switch_on(to, now, actions),
            State::Asking { .. } | State::Checking { .. } | State::Owner { .. } | State::Leaving { .. } => {
                Err(SwitchRefused::Changing)
            }
        }
    }

    fn switch_from_here(
        &mut self,
        to: Option<&NodeName>,
        now: Time,
        actions: &mut Vec<Action>,
    ) -> Result<(), SwitchRefused> {
        let to = self.ordered_successor(to, now)?;
        self.leave(Some(to.clone()), true, Reason::OrderedTo(to), now, actions);
        Ok(())
    }

    /// The candidate to which the owner leaves the address by an order.
    fn ordered_successor(&self, to: Option<&NodeName>, now: Time) -> Result<NodeName, SwitchRefused> {
        let terms = &self.settings.terms;
        let to = to.or(self.others.best(terms, now)).ok_or(SwitchRefused::NoCandidate)?.clone();
        if to == self.settings.node {
            return Err(SwitchRefused::AlreadyThere(to));
        }
        match self.others.priority(&to, terms, now) {
            None => Err(SwitchRefused::UnknownCandidate(to)),
            Some(0) => Err(SwitchRefused::NotReady(to)),
            Some(_) => Ok(to),
        }
    }

    /// The candidate to which [`Candidate::order_switch`] would make this owner leave the address in a planned way.
    /// `None`: the order would not make this candidate leave it, or would be refused.
    pub fn successor_by_order(&self, to: Option<&NodeName>, now: Time) -> Option<NodeName> {
        match self.state {
            State::Owner { is_active: true, .. } if self.can_leave_in_a_planned_way(now) => {
                self.ordered_successor(to, now).ok()
            }
            _ => None,
        }
    }

    /// The candidate to which this event would make this owner leave the address in a planned way: both nodes can serve
    /// clients now. An owner that cannot leaves at once, whatever the event.
    pub fn successor_by(&self, event: &Event<'_>, now: Time) -> Option<NodeName> {
        if !self.can_leave_in_a_planned_way(now) {
            return None;
        }
        let to = match event {
            Event::Message { from, message: TakeoverMessage::SwitchWanted(wanted) } => {
                self.leaves_to(from, wanted, now)?
            }
            Event::End => self.others.best(self.terms(), now)?,
            _ => return None,
        };
        Some(to.clone())
    }

    /// Whether another candidate can serve clients, by its last advert.
    pub fn is_able(&self, other: &NodeName, now: Time) -> bool {
        self.others.priority(other, self.terms(), now).is_some_and(|priority| priority > 0)
    }

    fn can_leave_in_a_planned_way(&self, now: Time) -> bool {
        matches!(self.state, State::Owner { until, is_active: true, .. } if until > now) && self.priority() > 0
    }

    fn pass_switch_on(
        &mut self,
        to: Option<&NodeName>,
        now: Time,
        actions: &mut Vec<Action>,
    ) -> Result<(), SwitchRefused> {
        let owner = self.others.owner(self.terms(), now).ok_or(SwitchRefused::NoOwner)?.clone();
        let to = to.unwrap_or(&self.settings.node).clone();
        if to == owner {
            return Err(SwitchRefused::AlreadyThere(to));
        }
        if to == self.settings.node && self.priority() == 0 {
            return Err(SwitchRefused::NotReady(to));
        }
        self.want_switch(owner, to, true, actions);
        Ok(())
    }

    /// Asks the owner to leave the address to `to`. An advert precedes the request: an owner does not leave the address
    /// to a candidate of which it has no advert, and the link may be new.
    fn want_switch(&self, owner: NodeName, to: NodeName, by_order: bool, actions: &mut Vec<Action>) {
        let (address, priority) = (self.settings.address, self.priority());
        actions.push(Action::To(owner.clone(), self.advert()));
        let wanted = SwitchWanted { address, to, priority, by_order };
        actions.push(Action::To(owner, TakeoverMessage::SwitchWanted(wanted)));
    }

    /// Whether the candidate has no lease and no address, after [`Event::End`].
    pub fn has_ended(&self) -> bool {
        self.ending && matches!(self.state, State::Standby { .. })
    }

    pub(super) fn on_advert(&mut self, from: &NodeName, advert: &Advert, now: Time, actions: &mut Vec<Action>) {
        self.others.heard(from, advert, &self.settings.terms, now);
        if !advert.is_owner {
            return;
        }
        let silent_at = now + self.terms().lease + self.skew(now);
        let State::Standby { ask_at, .. } = &mut self.state else { return };
        *ask_at = (*ask_at).max(silent_at);
        // Priority 0: the owner cannot serve clients.
        let may_preempt = advert.priority == 0 || self.settings.preempt && !advert.by_order;
        if may_preempt && self.priority() > advert.priority && self.pause_until <= now {
            self.inquire(now, actions);
        }
    }

    /// Asks the voters whether a majority of them can be reached. An owner that left its address to a candidate that
    /// cannot get the lease would only cause an outage.
    fn inquire(&mut self, now: Time, actions: &mut Vec<Action>) {
        let interval = self.terms().advert_interval;
        let State::Standby { inquiry, .. } = &mut self.state else { return };
        if inquiry.as_ref().is_some_and(|inquiry| inquiry.asked + 2 * interval > now) {
            return;
        }
        let number = self.renewals.inquire();
        *inquiry = Some(Inquiry { number, asked: now, answered: BTreeSet::new() });
        actions.push(Action::ToVoters(TakeoverMessage::LeaseWanted(self.wanted(number, true, None))));
    }

    /// Asks the owner to leave the address when a majority of voters has answered the inquiry.
    pub(super) fn preempt_if_reachable(&mut self, now: Time, actions: &mut Vec<Action>) {
        let majority = self.terms().majority();
        let State::Standby { inquiry, .. } = &mut self.state else { return };
        if inquiry.as_ref().is_none_or(|inquiry| inquiry.answered.len() < majority) {
            return;
        }
        *inquiry = None;
        // If nothing comes of it, the next attempt is later.
        self.pause_until = now + 2 * self.terms().lease;
        if let Some(owner) = self.others.owner(self.terms(), now).cloned() {
            self.want_switch(owner, self.settings.node.clone(), false, actions);
        }
    }

    pub(super) fn on_switch_wanted(
        &mut self,
        from: &NodeName,
        wanted: &SwitchWanted,
        now: Time,
        actions: &mut Vec<Action>,
    ) {
        let Some(to) = self.leaves_to(from, wanted, now).cloned() else { return };
        let reason = if wanted.by_order { Reason::OrderedTo } else { Reason::PreemptedBy };
        self.leave(Some(to.clone()), wanted.by_order, reason(to), now, actions);
    }

    /// The candidate to which the message makes the owner leave the address.
    fn leaves_to<'a>(&self, from: &NodeName, wanted: &'a SwitchWanted, now: Time) -> Option<&'a NodeName> {
        let State::Owner { by_order, .. } = self.state else { return None };
        let SwitchWanted { to, priority, .. } = wanted;
        if *to == self.settings.node {
            return None;
        }
        let may_want =
            wanted.by_order || to == from && *priority > self.priority() && (!by_order || self.priority() == 0);
        (may_want && self.is_able(to, now)).then_some(to)
    }

    pub(super) fn on_yielded(&mut self, from: &NodeName, yielded: &Yielded, now: Time, actions: &mut Vec<Action>) {
        let begins = match &self.state {
            State::Standby { .. } => true,
            // The voters have refused, or will refuse, a request that came before the message.
            State::Asking { succession, .. } => succession.is_none(),
            State::Checking { .. } | State::Owner { .. } | State::Leaving { .. } => false,
        };
        if begins && self.priority() > 0 {
            let before = Predecessor { node: from.clone(), lease: yielded.lease };
            let reason = if yielded.by_order { Reason::OrderedFrom } else { Reason::LeftBy };
            let succession = Succession { before, by_order: yielded.by_order };
            self.begin_asking(Some(succession), reason(from.clone()), now, actions);
        }
    }

    /// An owner leaves the address to the best other candidate.
    pub(super) fn on_end(&mut self, now: Time, actions: &mut Vec<Action>) {
        match self.state {
            State::Owner { .. } => {
                let to = self.others.best(self.terms(), now).cloned();
                self.leave(to, false, Reason::Ending, now, actions);
            }
            State::Asking { .. } | State::Checking { .. } => {
                self.give_back(Reason::Ending, Duration::ZERO, now, actions);
            }
            State::Standby { .. } | State::Leaving { .. } => {}
        }
        (self.ending, self.beat_at) = (true, now);
    }
}
