//! How an HTTP/1 connection leaves for another agent.
//!
//! ```text
//!                          the connection is idle
//!              .-------------------------------------------------------------------------------.
//!              |                                                                               v
//!  Staying -> Wanted -----> Preparing ----------> Prepared -----------------> Flushing -----> Parks
//!     leave    ^  within a   |     can continue    |  |  within that response    flushed, timeout
//!              |  response   |                     |  |                                        ^
//!              |             | refused, timeout    |  '- too far ahead: held, prepared again --'
//!              |             v                     |
//!              '-------- Declined                  |
//!              |  the next response                |
//!              '-----------------------------------'
//!                 another response
//! ```
//!
//! * Nothing is fenced before the target can continue the response. A refusal costs the client nothing.
//! * The target prepares the rest of the response from its position at that time. The source holds the response for
//!   [`BRIEF_TIMEOUT`]: most targets answer sooner, and the client meanwhile gets what the system has buffered. Then
//!   the source goes on. What it has sent until the target answers, the target skips. If that is more than
//!   `SKIP_LEN_MAX` (4 MiB), the source holds the response and asks again.
//! * Before a response parks that the target continues, it is held until all that is sealed has been sent. Otherwise
//!   these bytes, up to 150 KiB, would go to the target over the mesh. A slow client does not delay the move by more
//!   than [`FLUSH_TIMEOUT`].
//! * A target prepares for one response. The number of the preparation ensures that it continues no other: numbers
//!   begin at random, because the target may have one of an earlier [`Leaving`] of the same connection.

use std::time::Duration;

use watari_values::NodeName;

use crate::{Departure, Pace, Resume};

/// The most bytes of a response that a target reads without use.
const SKIP_LEN_MAX: u64 = 4 << 20;

/// How long a target may take to prepare.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a response is held for a target to prepare.
pub const BRIEF_TIMEOUT: Duration = Duration::from_millis(2);

/// How long a target may take to prepare once more, while the response is held.
const HELD_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a response is held until all that is sealed has been sent.
pub const FLUSH_TIMEOUT: Duration = Duration::from_millis(50);

/// Decides when and how a connection leaves.
#[derive(Debug)]
pub struct Leaving {
    state: LeavingState,
    /// The number of the last preparation.
    number: u32,
}

#[derive(Debug, Default)]
enum LeavingState {
    #[default]
    Staying,
    Wanted {
        target: NodeName,
        /// Whether the dispatcher has the reason that the connection stays.
        is_reported: bool,
    },
    Preparing(Preparing),
    Prepared(Preparing),
    Flushing {
        prepared: Preparing,
        is_over: bool,
    },
    /// The target cannot continue the response to `request`.
    Declined {
        target: NodeName,
        request: u64,
    },
}

#[derive(Debug, Clone)]
struct Preparing {
    target: NodeName,
    request: u64,
    /// The offset in the resource from which the target provides the rest. `None`: it does not.
    first: Option<u64>,
    hold: Hold,
}

/// Whether the response is held while the target prepares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    No,
    /// For [`BRIEF_TIMEOUT`].
    Briefly,
    /// [`BRIEF_TIMEOUT`] is over, and the rest of [`PREPARE_TIMEOUT`] begins.
    NoLonger,
    /// Until the target answers.
    Yes,
}

/// The state of the connection that [`Leaving::next`] depends on.
pub struct Situation {
    /// What the connection needs to continue elsewhere.
    pub departure: Departure,
    /// Whether no request is in progress.
    pub is_idle: bool,
    /// Whether all that was written has been sent.
    pub is_flushed: bool,
    /// The number of requests so far.
    pub request: u64,
}

/// What the driver does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Goes on.
    Serve,
    /// Reports to the dispatcher that the connection stays for now.
    Report,
    /// Asks `target` to prepare, and calls [`Leaving::on_timeout`] after `timeout`.
    Prepare { target: NodeName, number: u32, rest: PreparedRest, timeout: Duration },
    /// Goes on at the pace, and calls [`Leaving::on_timeout`] after `timeout`.
    Wait { timeout: Duration },
    /// Takes the connection apart, and gives it to the agent.
    Park(NodeName, Option<InResponse>),
}

/// What the target prepares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreparedRest {
    /// The rest moves as bytes.
    Bytes,
    /// A part of a resource, which the target provides.
    Part(Resume),
    /// The bytes come from the anchor.
    Anchored,
}

/// How a response in progress continues at the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InResponse {
    /// The number of the preparation.
    pub number: u32,
    pub rest: InResponseRest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InResponseRest {
    /// The rest moves as bytes.
    Bytes,
    /// The target has the rest, and skips these bytes of it.
    Prepared { skip: u64 },
    /// The bytes come from the anchor.
    Anchored,
}

impl Leaving {
    /// A connection that stays. The numbers of its preparations come after `number`, which the caller draws at random.
    pub fn new(number: u32) -> Self {
        Self { state: LeavingState::Staying, number }
    }

    /// The connection is to leave for `target`. An attempt that has begun goes on. `None`: it stays, and an attempt ends.
    pub fn on_leave(&mut self, target: Option<NodeName>) {
        match (&mut self.state, target) {
            (LeavingState::Preparing(_) | LeavingState::Prepared(_) | LeavingState::Flushing { .. }, Some(_)) => {}
            (LeavingState::Declined { target: declined, .. }, Some(target)) if *declined == target => {}
            (state, Some(target)) => *state = LeavingState::Wanted { target, is_reported: false },
            (state, None) => *state = LeavingState::Staying,
        }
    }

    /// Whether the connection is to leave.
    pub fn is_wanted(&self) -> bool {
        !matches!(self.state, LeavingState::Staying)
    }

    /// Whether an attempt has begun: the target prepares, or has prepared.
    pub fn is_attempting(&self) -> bool {
        matches!(self.state, LeavingState::Preparing(_) | LeavingState::Prepared(_) | LeavingState::Flushing { .. })
    }

    /// The pace of the response in progress.
    pub fn pace(&self) -> Pace {
        match &self.state {
            LeavingState::Staying => Pace::Client,
            LeavingState::Preparing(preparing) if matches!(preparing.hold, Hold::Briefly | Hold::Yes) => Pace::Held,
            LeavingState::Flushing { .. } => Pace::Held,
            _ => Pace::Ahead,
        }
    }

    /// An agent has answered the preparation `number`.
    pub fn on_prepared(&mut self, from: &NodeName, number: u32, is_refused: bool) {
        if number == self.number
            && let LeavingState::Preparing(preparing) = &self.state
            && preparing.target == *from
        {
            if is_refused {
                self.decline();
            } else {
                self.state = LeavingState::Prepared(preparing.clone());
            }
        }
    }

    /// The time limit of the last step has been reached. If the target has not answered, its answer no longer counts.
    pub fn on_timeout(&mut self) {
        match &mut self.state {
            LeavingState::Flushing { is_over, .. } => *is_over = true,
            LeavingState::Preparing(Preparing { hold: hold @ Hold::Briefly, .. }) => *hold = Hold::NoLonger,
            _ => self.decline(),
        }
    }

    fn decline(&mut self) {
        if let LeavingState::Preparing(Preparing { target, request, .. }) = &self.state {
            self.state = LeavingState::Declined { target: target.clone(), request: *request };
        }
    }

    /// What to do in this situation. Called until it returns [`Step::Serve`].
    pub fn next(&mut self, situation: Situation) -> Step {
        let Situation { departure, is_idle, is_flushed, request } = situation;
        if is_idle {
            return match std::mem::take(&mut self.state) {
                LeavingState::Staying => Step::Serve,
                LeavingState::Wanted { target, .. }
                | LeavingState::Preparing(Preparing { target, .. })
                | LeavingState::Prepared(Preparing { target, .. })
                | LeavingState::Flushing { prepared: Preparing { target, .. }, .. }
                | LeavingState::Declined { target, .. } => Step::Park(target, None),
            };
        }
        match &mut self.state {
            LeavingState::Wanted { target, is_reported } => match departure {
                Departure::Parts => {
                    let target = target.clone();
                    self.prepare(target, request, PreparedRest::Bytes, Hold::No)
                }
                Departure::Rest(rest) => {
                    let target = target.clone();
                    self.prepare(target, request, PreparedRest::Part(rest), Hold::Briefly)
                }
                Departure::Events => {
                    let target = target.clone();
                    self.prepare(target, request, PreparedRest::Anchored, Hold::No)
                }
                _ if !*is_reported => {
                    *is_reported = true;
                    Step::Report
                }
                _ => Step::Serve,
            },
            LeavingState::Preparing(Preparing { request: before, hold: hold @ Hold::NoLonger, .. })
                if *before == request =>
            {
                *hold = Hold::No;
                Step::Wait { timeout: PREPARE_TIMEOUT }
            }
            LeavingState::Prepared(prepared) if prepared.request == request => {
                let prepared = prepared.clone();
                self.park_prepared(prepared, departure, is_flushed)
            }
            LeavingState::Flushing { prepared, is_over } if prepared.request == request => {
                if is_flushed || *is_over {
                    let prepared = prepared.clone();
                    self.park_prepared(prepared, departure, true)
                } else {
                    Step::Serve
                }
            }
            LeavingState::Preparing(Preparing { target, request: before, .. })
            | LeavingState::Prepared(Preparing { target, request: before, .. })
            | LeavingState::Flushing { prepared: Preparing { target, request: before, .. }, .. }
            | LeavingState::Declined { target, request: before }
                if *before != request =>
            {
                let target = target.clone();
                self.state = LeavingState::Wanted { target, is_reported: false };
                self.next(Situation { departure, is_idle, is_flushed, request })
            }
            _ => Step::Serve,
        }
    }

    fn park_prepared(&mut self, prepared: Preparing, departure: Departure, is_flushed: bool) -> Step {
        let rest = match (departure, prepared.first) {
            // A part may have become so short that it moves as bytes.
            (Departure::Parts, _) => InResponseRest::Bytes,
            (Departure::Events, _) => InResponseRest::Anchored,
            (Departure::Rest(rest), Some(first)) => match rest.part.first.checked_sub(first) {
                Some(skip) if skip <= SKIP_LEN_MAX && is_flushed => InResponseRest::Prepared { skip },
                Some(skip) if skip <= SKIP_LEN_MAX => {
                    self.state = LeavingState::Flushing { prepared, is_over: false };
                    return Step::Wait { timeout: FLUSH_TIMEOUT };
                }
                _ => return self.prepare(prepared.target, prepared.request, PreparedRest::Part(rest), Hold::Yes),
            },
            // The rest is about to be read.
            _ => return Step::Serve,
        };
        self.state = LeavingState::Staying;
        Step::Park(prepared.target, Some(InResponse { number: self.number, rest }))
    }

    fn prepare(&mut self, target: NodeName, request: u64, rest: PreparedRest, hold: Hold) -> Step {
        self.number = self.number.wrapping_add(1);
        let first = match &rest {
            PreparedRest::Part(part) => Some(part.part.first),
            PreparedRest::Bytes | PreparedRest::Anchored => None,
        };
        self.state = LeavingState::Preparing(Preparing { target: target.clone(), request, first, hold });
        let timeout = match hold {
            Hold::Briefly => BRIEF_TIMEOUT,
            Hold::Yes => HELD_TIMEOUT,
            Hold::No | Hold::NoLonger => PREPARE_TIMEOUT,
        };
        Step::Prepare { target, number: self.number, rest, timeout }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use bytes::Bytes;
    use http::HeaderValue;

    use super::*;
    use crate::Part;

    fn name(text: &str) -> NodeName {
        NodeName::new(text).unwrap()
    }

    fn rest(first: u64) -> Departure {
        let part = Part { first, last: 99_999_999, complete_len: 100_000_000 };
        Departure::Rest(Resume { request: Bytes::from_static(b"GET"), etag: HeaderValue::from_static("\"v\""), part })
    }

    fn within(departure: Departure) -> Situation {
        Situation { departure, is_idle: false, is_flushed: true, request: 1 }
    }

    fn idle() -> Situation {
        Situation { departure: Departure::Parts, is_idle: true, is_flushed: true, request: 1 }
    }

    fn wanted() -> Leaving {
        let mut leaving = Leaving::new(0);
        leaving.on_leave(Some(name("b")));
        leaving
    }

    /// The number of the preparation that begins, and its time limit.
    fn prepares(leaving: &mut Leaving, situation: Situation) -> (u32, Duration) {
        match leaving.next(situation) {
            Step::Prepare { target, number, timeout, .. } if target == name("b") => (number, timeout),
            other => panic!("{other:?}"),
        }
    }

    /// The same for a part. The target does not answer at once, so the response is held no longer.
    fn prepares_slowly(leaving: &mut Leaving, situation: impl Fn() -> Situation) -> u32 {
        let (number, timeout) = prepares(leaving, situation());
        assert_eq!((timeout, leaving.pace()), (BRIEF_TIMEOUT, Pace::Held));
        leaving.on_timeout();
        assert_eq!(leaving.next(situation()), Step::Wait { timeout: PREPARE_TIMEOUT });
        assert_eq!(leaving.pace(), Pace::Ahead);
        number
    }

    fn park(number: u32, skip: Option<u64>) -> Step {
        let rest = skip.map_or(InResponseRest::Bytes, |skip| InResponseRest::Prepared { skip });
        Step::Park(name("b"), Some(InResponse { number, rest }))
    }

    #[test]
    fn an_idle_connection_parks_at_once() {
        assert_eq!(Leaving::new(0).next(idle()), Step::Serve);
        assert_eq!(wanted().next(idle()), Step::Park(name("b"), None));
        let mut leaving = wanted();
        leaving.on_leave(None);
        assert_eq!(leaving.next(idle()), Step::Serve, "the wish was withdrawn");
    }

    #[test]
    fn a_response_that_cannot_continue_is_reported_once() {
        for departure in [Departure::Request, Departure::Response] {
            let mut leaving = wanted();
            assert_eq!(leaving.next(within(departure.clone())), Step::Report);
            assert_eq!(leaving.next(within(departure.clone())), Step::Serve);
            leaving.on_leave(Some(name("b")));
            assert_eq!(leaving.next(within(departure)), Step::Report, "it was asked again");
            assert_eq!(leaving.next(idle()), Step::Park(name("b"), None));
        }
    }

    #[test]
    fn the_target_skips_what_was_sent_while_it_prepared() {
        let mut leaving = wanted();
        let number = prepares_slowly(&mut leaving, || within(rest(1000)));
        assert_eq!(leaving.next(within(rest(1500))), Step::Serve, "the response goes on");
        leaving.on_prepared(&name("b"), number, false);
        assert_eq!(leaving.next(within(rest(1700))), park(number, Some(700)));
        assert!(!leaving.is_wanted());
    }

    #[test]
    fn what_is_sealed_is_sent_before_the_response_parks() {
        for is_flushed in [true, false] {
            let unflushed = |first| Situation { is_flushed: false, ..within(rest(first)) };
            let mut leaving = wanted();
            let (number, _) = prepares(&mut leaving, unflushed(1000));
            leaving.on_prepared(&name("b"), number, false);
            assert_eq!(leaving.next(unflushed(1700)), Step::Wait { timeout: FLUSH_TIMEOUT });
            assert_eq!(leaving.next(unflushed(1700)), Step::Serve);
            assert_eq!(leaving.pace(), Pace::Held);
            leaving.on_leave(Some(name("c")));
            assert_eq!(leaving.next(unflushed(1700)), Step::Serve, "the attempt goes on");
            if !is_flushed {
                leaving.on_timeout();
            }
            assert_eq!(leaving.next(Situation { is_flushed, ..within(rest(1700)) }), park(number, Some(700)));
            assert_eq!(leaving.pace(), Pace::Client);
        }
    }

    #[test]
    fn a_target_that_is_too_far_behind_prepares_again_while_the_response_is_held() {
        let mut leaving = wanted();
        let first = prepares_slowly(&mut leaving, || within(rest(0)));
        leaving.on_prepared(&name("b"), first, false);
        let (second, timeout) = prepares(&mut leaving, within(rest(SKIP_LEN_MAX + 1)));
        assert!(second != first);
        assert_eq!((timeout, leaving.pace()), (HELD_TIMEOUT, Pace::Held));
        leaving.on_prepared(&name("b"), first, false);
        assert_eq!(leaving.next(within(rest(SKIP_LEN_MAX + 1))), Step::Serve, "the first answer is late");
        leaving.on_prepared(&name("b"), second, false);
        assert_eq!(leaving.next(within(rest(SKIP_LEN_MAX + 1))), park(second, Some(0)));
    }

    #[test]
    fn a_rest_that_has_become_short_moves_as_bytes() {
        let mut leaving = wanted();
        let (number, _) = prepares(&mut leaving, within(rest(0)));
        leaving.on_prepared(&name("b"), number, false);
        assert_eq!(leaving.next(within(Departure::Response)), Step::Serve, "the rest is being read");
        assert_eq!(leaving.next(within(Departure::Parts)), park(number, None));
    }

    #[test]
    fn a_stream_of_events_gets_its_bytes_from_the_anchor() {
        let mut leaving = wanted();
        let step = leaving.next(within(Departure::Events));
        assert!(matches!(step, Step::Prepare { rest: PreparedRest::Anchored, .. }), "{step:?}");
        assert_eq!(leaving.next(within(Departure::Events)), Step::Serve);
        leaving.on_prepared(&name("b"), 1, false);
        let how = InResponse { number: 1, rest: InResponseRest::Anchored };
        assert_eq!(leaving.next(within(Departure::Events)), Step::Park(name("b"), Some(how)));
    }

    #[test]
    fn a_refusal_holds_until_the_next_response() {
        for refuse in [true, false] {
            let mut leaving = wanted();
            let number = prepares_slowly(&mut leaving, || within(rest(0)));
            if refuse {
                leaving.on_prepared(&name("b"), number, true);
            } else {
                leaving.on_timeout();
            }
            leaving.on_leave(Some(name("b")));
            assert_eq!(leaving.next(within(rest(500))), Step::Serve);
            leaving.on_prepared(&name("b"), number, false);
            assert_eq!(leaving.next(within(rest(500))), Step::Serve, "a late answer does not count");
            prepares(&mut leaving, Situation { request: 2, ..within(rest(0)) });
        }
    }

    #[test]
    fn another_target_is_asked_after_a_refusal() {
        let mut leaving = wanted();
        let (number, _) = prepares(&mut leaving, within(rest(0)));
        leaving.on_prepared(&name("b"), number, true);
        leaving.on_leave(Some(name("c")));
        assert!(matches!(leaving.next(within(rest(0))), Step::Prepare { target, .. } if target == name("c")));
    }

    #[test]
    fn a_preparation_counts_for_its_response_and_its_agent_only() {
        let mut leaving = wanted();
        let (number, _) = prepares(&mut leaving, within(rest(0)));
        leaving.on_prepared(&name("c"), number, false);
        leaving.on_leave(Some(name("c")));
        assert_eq!(leaving.next(within(rest(0))), Step::Serve, "the attempt goes on");
        leaving.on_prepared(&name("b"), number, false);
        let (again, _) = prepares(&mut leaving, Situation { request: 2, ..within(rest(0)) });
        assert_ne!(again, number);
    }
}
