//! Makes an HTTP/1 connection leave: follows its orders, and asks targets whether they can continue it, within a time
//! limit. [`Leaving`] decides.
//!
//! A connection passes to a successor of this process in the same way. Its target is then this node itself, and
//! messages to this node go to the successor (`node::other_process`).

use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Sleep, sleep};
use watari_connection::leaving::{InResponse, Leaving, Situation, Step};
use watari_connection::{Departure, Pace};
use watari_values::{NodeName, StayReason};
use watari_wire::{ETAG_LEN_MAX, Leave, REQUEST_LEN_MAX};

use super::preparations;
use crate::handoff::live::About;
use crate::handoff::registry::{Order, Undecided};
use crate::node::peers::Peers;

pub(super) struct Departing {
    leaving: Leaving,
    /// The time limit of the last step, until the connection leaves or the limit is reached.
    limit: Option<Pin<Box<Sleep>>>,
    /// Whether the target is a successor of this process.
    is_passing: bool,
    /// Until it is decided whether the connection passes now.
    undecided: Option<Undecided>,
}

impl Departing {
    /// A connection that stays.
    pub(super) fn new() -> Self {
        // The keys of this hasher are random in each process, and differ between its instances.
        let number = RandomState::new().hash_one(()) as u32;
        Self { leaving: Leaving::new(number), limit: None, is_passing: false, undecided: None }
    }

    /// Follows an order. Returns it if it is to leave or to stay. `own`: this node.
    pub(super) fn follow(&mut self, order: Order, own: &NodeName) -> Option<Leave> {
        match order {
            Order::PassOn(undecided) => {
                // Another agent that has prepared a response drops it after a while.
                self.leaving.on_leave(None);
                self.leaving.on_leave(Some(own.clone()));
                self.limit = None;
                self.is_passing = true;
                self.undecided = Some(undecided);
                None
            }
            Order::Stay => {
                if self.is_passing {
                    *self = Self::new();
                }
                None
            }
            Order::End(_) => None,
            // The dispatcher asks again, and then asks the successor.
            Order::Leave(leave) if self.is_passing => Some(leave),
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

    /// Held until the connection has passed.
    pub(super) fn take_undecided(&mut self) -> Option<Undecided> {
        self.undecided.take()
    }

    /// The pace of the response in progress.
    pub(super) fn pace(&self) -> Pace {
        self.leaving.pace()
    }

    /// Ready when a time limit was reached.
    pub(super) fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(limit) = &mut self.limit else { return Poll::Pending };
        limit.as_mut().poll(cx).map(|()| {
            self.limit = None;
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
        let departure = match shippable(situation.departure) {
            // The source of its bytes stays in this process.
            Departure::Events if self.is_passing => Departure::Response,
            departure => departure,
        };
        let situation = Situation { departure, ..situation };
        match self.leaving.next(situation) {
            Step::Serve => {
                if !self.leaving.is_attempting() {
                    self.undecided = None;
                }
                return Departs::Later;
            }
            Step::Report if self.is_passing => {}
            Step::Report => about.report_stay(peers, stays),
            Step::Park(target, how) => return Departs::Now(target, how),
            Step::Prepare { target, number, rest, timeout } => {
                let question = preparations::question(about, number, rest, anchor.unwrap_or(peers.name()));
                if peers.send(&target, question) {
                    self.limit = Some(Box::pin(sleep(timeout)));
                } else {
                    // Like a refusal: another target may be asked at once.
                    self.leaving.on_prepared(&target, number, true);
                    if !self.is_passing {
                        about.report_stay(peers, StayReason::NoLink);
                    }
                }
            }
            Step::Wait { timeout } => self.limit = Some(Box::pin(sleep(timeout))),
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

/// A response whose request does not fit into a message stays until it has ended.
fn shippable(departure: Departure) -> Departure {
    match departure {
        Departure::Rest(rest) if rest.request.len() > REQUEST_LEN_MAX || rest.etag.len() > ETAG_LEN_MAX => {
            Departure::Response
        }
        departure => departure,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderValue;
    use watari_connection::{Part, Resume};

    use super::*;
    use crate::handoff::testing::{ID, RecordedLinks, about, name};

    fn rest(request_len: usize) -> Departure {
        let request = Bytes::from(vec![b'x'; request_len]);
        let part = Part { first: 0, last: 9, complete_len: 10 };
        Departure::Rest(Resume { request, etag: HeaderValue::from_static("\"v\""), part })
    }

    #[tokio::test]
    async fn without_a_link_to_its_target_a_response_stays_and_another_target_is_asked_at_once() {
        let links = RecordedLinks::default();
        let (peers, about) = (Peers::new(name("a"), links.clone()), about());
        links.set_down("b");
        let mut departing = Departing::new();
        let next = |departing: &mut Departing| {
            let situation = Situation { departure: rest(3), is_idle: false, is_flushed: true, request: 1 };
            departing.depart(situation, None, StayReason::InRequest, &peers, &about)
        };
        for (target, asked) in [("b", "d"), ("c", "c")] {
            let leave = Leave { connection: ID, target: Some(name(target)), or_end: false };
            departing.follow(Order::Leave(leave), &name("a"));
            assert!(matches!(next(&mut departing), Departs::Again));
            assert!(matches!(next(&mut departing), Departs::Later));
            let to: Vec<_> = links.take().into_iter().map(|(to, _)| to).collect();
            assert_eq!(to, [name(asked)]);
        }
    }

    #[test]
    fn a_response_whose_request_is_too_long_to_ship_stays() {
        assert_eq!(shippable(rest(REQUEST_LEN_MAX)), rest(REQUEST_LEN_MAX));
        assert_eq!(shippable(rest(REQUEST_LEN_MAX + 1)), Departure::Response);
    }
}
