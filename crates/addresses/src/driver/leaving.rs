//! What happens before an owner leaves an address to another candidate in a planned way.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use tokio::time::timeout;
use watari_takeover::{Action, Candidate, Event, SwitchRefused, Time};
use watari_values::NodeName;
use watari_wire::TakeoverMessage;

use super::{Entry, Shared};

/// What comes before this node leaves an address.
#[derive(Clone)]
pub struct BeforeLeaving {
    step: Arc<dyn Fn(LeavingStep) -> BoxFuture<'static, bool> + Send + Sync>,
    prepare_max: Duration,
}

impl BeforeLeaving {
    /// `step` carries out each step. [`LeavingStep::Prepare`] may take `prepare_max`, and returns whether the node may leave
    /// the address. A node that ends leaves it in any case. The results of other steps do not count.
    pub fn new<F>(prepare_max: Duration, step: impl Fn(LeavingStep) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = bool> + Send + 'static,
    {
        Self { step: Arc::new(move |next| Box::pin(step(next))), prepare_max }
    }
}

/// What this node does about an address that it owns. [`Prepare`](Self::Prepare) comes first, then one of the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeavingStep {
    /// It prepares to leave the address to the node, and renews its lease meanwhile. The future is dropped after
    /// the time that [`BeforeLeaving::new`] got, and if the node loses its lease.
    Prepare { address: IpAddr, to: NodeName },
    /// It is about to leave the address. The future is dropped after [`LEAVE_MAX`].
    Leave { address: IpAddr },
    /// It does not leave the address after all, because the other node cannot take it over any more. Or it has lost its
    /// lease. The future is dropped after [`LEAVE_MAX`].
    Cancel { address: IpAddr },
}

/// How long the steps after it may take.
pub const LEAVE_MAX: Duration = Duration::from_millis(100);

/// What an owner does with an event.
enum Handled {
    /// The candidate has handled it.
    Done,
    /// It would leave the address to this node. The preparation has begun.
    Preparing(NodeName),
    /// It prepares to leave the address already.
    Changing,
}

/// Ends a preparation, whatever happens to its task.
struct PreparationGuard<'a>(&'a AtomicBool);

impl Drop for PreparationGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Entry {
    pub(super) fn is_preparing(&self) -> bool {
        self.is_preparing.load(Ordering::SeqCst)
    }
}

impl Shared {
    /// Handles a message by which a candidate may ask this owner to leave the address. Drops it while another leave is
    /// prepared: the candidate asks again.
    pub(super) fn on_switch_wanted(self: &Arc<Self>, number: usize, from: &NodeName, message: &TakeoverMessage) {
        let Handled::Preparing(to) = self.handle_or_prepare(number, Event::Message { from, message }) else { return };
        let (shared, from, message) = (self.clone(), from.clone(), message.clone());
        self.spawn(async move {
            let may_leave = shared.prepare(number, &to).await;
            let can_leave = |machine: &Candidate, now| may_leave && shared.can_leave(machine, &to, now);
            shared.conclude(number, can_leave).await;
            let event = Event::Message { from: &from, message: &message };
            shared.with_machine(number, |machine, now, actions| {
                if can_leave(machine, now) {
                    machine.handle(event, now, actions);
                }
            });
        });
    }

    /// Orders a switch. An order that this node is to carry out counts as accepted when its preparation has begun.
    pub(super) fn order_or_prepare(
        self: &Arc<Self>,
        number: usize,
        node: Option<&NodeName>,
    ) -> Result<(), SwitchRefused> {
        let order = |machine: &mut Candidate, now, actions: &mut Vec<Action>| {
            if self.candidates[number].is_preparing() {
                return Err(SwitchRefused::Changing);
            }
            let successor = machine.successor_by_order(node, now);
            if let Some(to) = successor.as_ref().filter(|to| !self.mesh.is_up(to)) {
                return Err(SwitchRefused::UnknownCandidate(to.clone()));
            }
            match successor.filter(|_| self.begin_preparation(number)) {
                Some(to) => Ok(Some(to)),
                None => machine.order_switch(node, now, actions).map(|()| None),
            }
        };
        // A candidate that has passed to a successor is about to change.
        let Some(to) = self.with_machine(number, order).unwrap_or(Err(SwitchRefused::Changing))? else { return Ok(()) };
        let shared = self.clone();
        self.spawn(async move {
            let may_leave = shared.prepare(number, &to).await;
            let can_leave = |machine: &Candidate, now| may_leave && shared.can_leave(machine, &to, now);
            shared.conclude(number, can_leave).await;
            shared.with_machine(number, |machine, now, actions| {
                if can_leave(machine, now) {
                    let _ = machine.order_switch(Some(&to), now, actions);
                }
            });
        });
        Ok(())
    }

    /// Ends all candidates, each after its preparation.
    pub(super) async fn end_candidates(self: &Arc<Self>) {
        join_all((0..self.candidates.len()).map(|number| self.end_candidate(number))).await;
    }

    async fn end_candidate(self: &Arc<Self>, number: usize) {
        loop {
            let changed = self.changed.notified();
            match self.handle_or_prepare(number, Event::End) {
                Handled::Done => return,
                Handled::Preparing(to) => {
                    self.prepare(number, &to).await;
                    // It leaves the address in any case.
                    self.conclude(number, |_, _| true).await;
                    return self.step(number, Event::End);
                }
                Handled::Changing => changed.await,
            }
        }
    }

    /// Has the candidate handle an event, or begins the preparation that comes before it.
    fn handle_or_prepare(self: &Arc<Self>, number: usize, event: Event<'_>) -> Handled {
        let handled = self.with_machine(number, |machine, now, actions| {
            // An owner that cannot serve clients any more leaves at once. That ends the preparation.
            if self.candidates[number].is_preparing() && machine.status(now).ready {
                return Handled::Changing;
            }
            let successor = machine.successor_by(&event, now);
            if let Some(to) = successor.filter(|_| self.begin_preparation(number)) {
                return Handled::Preparing(to);
            }
            machine.handle(event, now, actions);
            Handled::Done
        });
        handled.unwrap_or(Handled::Done)
    }

    /// Returns whether there is something to prepare.
    fn begin_preparation(&self, number: usize) -> bool {
        self.candidates[number].is_preparing.store(self.before_leaving.is_some(), Ordering::SeqCst);
        self.before_leaving.is_some()
    }

    /// Prepares to leave the address. Further orders are refused meanwhile. Returns whether the node may leave it.
    async fn prepare(self: &Arc<Self>, number: usize, to: &NodeName) -> bool {
        let entry = &self.candidates[number];
        let _guard = PreparationGuard(&entry.is_preparing);
        let Some(before_leaving) = &self.before_leaving else { return true };
        let address = entry.service.address.addr();
        tracing::info!(%address, %to, "prepares to leave the address");
        tokio::select! {
            biased;
            () = self.loses(number) => {
                tracing::warn!(%address, "the preparation to leave the address ends with its lease");
                false
            }
            done = timeout(before_leaving.prepare_max, (before_leaving.step)(LeavingStep::Prepare { address, to: to.clone() })) => {
                if done.is_err() {
                    tracing::warn!(%address, "the preparation to leave the address takes too long");
                }
                done.unwrap_or(true)
            }
        }
    }

    /// Carries out the step after the preparation.
    async fn conclude(&self, number: usize, leaves: impl Fn(&Candidate, Time) -> bool) {
        let Some(before_leaving) = &self.before_leaving else { return };
        let entry = &self.candidates[number];
        let address = entry.service.address.addr();
        let leaves = leaves(&entry.machine(), crate::clock::now());
        let step = if leaves { LeavingStep::Leave { address } } else { LeavingStep::Cancel { address } };
        let _ = timeout(LEAVE_MAX, (before_leaving.step)(step)).await;
    }

    /// Whether the node still owns the address, and the other one can take it over. Adverts of a node count for a while
    /// after it has died, and its link ends sooner.
    fn can_leave(&self, machine: &Candidate, to: &NodeName, now: Time) -> bool {
        let is_owner = machine.status(now).lease_end.is_some();
        let is_able = machine.is_able(to, now) && self.mesh.is_up(to);
        if is_owner && !is_able {
            let address = machine.settings().address;
            tracing::warn!(%address, %to, "does not leave the address: the other node cannot take it over any more");
        }
        is_owner && is_able
    }

    /// Returns when this node does not own the address any more.
    async fn loses(&self, number: usize) {
        loop {
            let changed = self.changed.notified();
            if self.candidates[number].machine().status(crate::clock::now()).lease_end.is_none() {
                return;
            }
            changed.await;
        }
    }
}
