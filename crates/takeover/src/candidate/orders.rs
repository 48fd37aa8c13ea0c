//! Changes of the owner while the owner lives: preemption, ordered switches, and the end of a node.

use std::collections::BTreeSet;
use std::time::Duration;

use watari_values::NodeName;
use watari_wire::{Advert, Predecessor, SwitchWanted, TakeoverMessage, Yielded};

use super::{Action, Candidate, Inquiry, State, Succession};
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
        let terms = &self.settings.terms;
        let to = to.or(self.others.best(terms, now)).ok_or(SwitchRefused::NoCandidate)?.clone();
        if to == self.settings.node {
            return Err(SwitchRefused::AlreadyThere(to));
        }
        match self.others.priority(&to, terms, now) {
            None => Err(SwitchRefused::UnknownCandidate(to)),
            Some(0) => Err(SwitchRefused::NotReady(to)),
            Some(_) => {
                self.leave(Some(to.clone()), true, Reason::OrderedTo(to), now, actions);
                Ok(())
            }
        }
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

    fn want_switch(&self, owner: NodeName, to: NodeName, by_order: bool, actions: &mut Vec<Action>) {
        let (address, priority) = (self.settings.address, self.priority());
        let wanted = SwitchWanted { address, to, priority, by_order };
        actions.push(Action::To(owner, TakeoverMessage::SwitchWanted(wanted)));
    }

    /// Whether the candidate has no lease and no address, after [`Event::End`](super::Event::End).
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
        let State::Owner { by_order, .. } = self.state else { return };
        let SwitchWanted { to, priority, .. } = wanted;
        if *to == self.settings.node {
            return;
        }
        if wanted.by_order {
            if self.others.priority(to, self.terms(), now).is_some_and(|priority| priority > 0) {
                self.leave(Some(to.clone()), true, Reason::OrderedTo(to.clone()), now, actions);
            }
        } else if to == from && *priority > self.priority() && (!by_order || self.priority() == 0) {
            self.leave(Some(to.clone()), false, Reason::PreemptedBy(to.clone()), now, actions);
        }
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
