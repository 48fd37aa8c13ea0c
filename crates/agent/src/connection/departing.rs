//! Makes an HTTP/1 connection leave: follows its orders, and asks targets whether they can continue it, within a time
//! limit. [`Leaving`] decides.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Sleep, sleep};
use watari_connection::Pace;
use watari_values::{NodeName, StayReason};
use watari_wire::Leave;

use super::leaving::{InResponse, Leaving, Situation, Step};
use super::preparations;
use crate::handoff::live::About;
use crate::handoff::registry::Order;
use crate::node::peers::Peers;

#[derive(Default)]
pub(super) struct Departing {
    leaving: Leaving,
    /// The time limit of a preparation, from its start until the connection leaves or the limit is reached.
    preparing: Option<Pin<Box<Sleep>>>,
}

impl Departing {
    /// Follows an order. Returns it if it is to leave or to stay.
    pub(super) fn follow(&mut self, order: Order) -> Option<Leave> {
        match order {
            Order::Leave(leave) => {
                self.leaving.on_leave(leave.target.clone());
                Some(leave)
            }
            Order::Prepared(from, prepared) => {
                self.leaving.on_prepared(&from, prepared.number, prepared.refused.is_some());
                None
            }
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.leaving.is_wanted()
    }

    /// The pace of the response in progress.
    pub(super) fn pace(&self) -> Pace {
        self.leaving.pace()
    }

    /// Ready when a time limit was reached.
    pub(super) fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(limit) = &mut self.preparing else { return Poll::Pending };
        limit.as_mut().poll(cx).map(|()| {
            self.preparing = None;
            self.leaving.on_timeout();
        })
    }

    /// Does the next step in `situation`, and returns whether the connection leaves now. Called until it returns
    /// [`Departs::Later`].
    ///
    /// `anchor`: the agent that has the origin's side of a stream, if that is another agent. `stays`: what to report if
    /// the connection has to stay for now.
    pub(super) fn depart(
        &mut self,
        situation: Situation,
        anchor: Option<&NodeName>,
        stays: StayReason,
        peers: &Peers,
        about: &About,
    ) -> Departs {
        match self.leaving.next(situation) {
            Step::Serve => return Departs::Later,
            Step::Report => about.report_stay(peers, stays),
            Step::Park(target, how) => return Departs::Now(target, how),
            Step::Prepare { target, number, rest, timeout } => {
                let question = preparations::question(about, number, rest, anchor.unwrap_or(peers.name()));
                if !peers.send(&target, question) {
                    self.leaving.on_timeout();
                    about.report_stay(peers, StayReason::NoLink);
                }
                self.preparing = Some(Box::pin(sleep(timeout)));
            }
        }
        Departs::Again
    }
}

/// Whether a connection leaves.
pub(super) enum Departs {
    /// For this agent.
    Now(NodeName, Option<InResponse>),
    /// The next step is due at once.
    Again,
    /// When something changes.
    Later,
}
