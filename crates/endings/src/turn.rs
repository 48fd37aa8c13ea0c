//! Separates requests and answers by the direction of data alone. This works for TLS and for truncated packets, too.

use std::time::Duration;

use watari_packets::Timestamp;

use crate::sequence::{follow, is_upto, later};

/// The last request of a connection.
///
/// ```text
///           ask                 answer              complete
///   Quiet ───────▶ Asked ─────────────▶ Answering ───────────▶ Answered
///                    ▲ │ ask: the same     │  │ answer            │
///                    │ └─ request goes on, │  └─ goes on          │
///                    │    answer: rest of  │                      │
///                    │    the previous one │                      │
///                    └─────────────────────┴──────────────────────┘ ask: the next request
/// ```
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) state: TurnState,
    /// Whether this request was reported overdue.
    pub(crate) is_overdue: bool,
    /// Requests that have begun.
    pub(crate) requests: u32,
    /// Sequence number at which the request begins in the client's stream.
    pub(crate) asked: u32,
    /// Sequence numbers at which the answer begins in the server's stream, and behind its last octet so far.
    pub(crate) answer: u32,
    pub(crate) end: u32,
    /// Whether there was an answer to any request. (An `Option` of `acked` would take 8 octets for each connection.)
    has_answer: bool,
    /// The client's data that the server had acknowledged when its last answer began, if there was one.
    acked: u32,
    /// When the last octets of the request were sent.
    pub(crate) asked_at: Option<Timestamp>,
    /// When the first octets of the last answer were sent, and the last ones, if there was an answer.
    pub(crate) first_at: Timestamp,
    pub(crate) last_at: Timestamp,
}

/// See [`Turn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnState {
    Quiet,
    Asked,
    Answering,
    Answered,
}

/// The times of a request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// When the last octets of the request were sent; `None` if they were not seen.
    pub asked_at: Option<Timestamp>,
    /// When the first octets of the answer were sent; `None` if there was no answer.
    pub first_at: Option<Timestamp>,
    /// When the last octets of the answer were sent.
    pub last_at: Option<Timestamp>,
    /// Whether the answer is known to be complete. Only clear HTTP/1 shows it, or the server's FIN if that ends the
    /// answer (RFC 9112, section 6.3). Otherwise an answer counts as complete when the client sends the next request.
    pub is_complete: bool,
}

impl Exchange {
    /// From the request to the first octet of the answer.
    pub fn first_octet(&self) -> Option<Duration> {
        Some(self.first_at?.since(self.asked_at?))
    }

    /// From the request to the last octet of the answer.
    pub fn response(&self) -> Option<Duration> {
        Some(self.last_at?.since(self.asked_at?))
    }
}

impl Turn {
    pub(crate) const fn new() -> Self {
        Self {
            state: TurnState::Quiet,
            is_overdue: false,
            requests: 0,
            asked: 0,
            answer: 0,
            end: 0,
            has_answer: false,
            acked: 0,
            asked_at: None,
            first_at: Timestamp(0),
            last_at: Timestamp(0),
        }
    }

    /// Takes octets of a request. `answer`: the next sequence number of the server. Returns the exchange that this
    /// ends.
    pub(crate) fn ask(&mut self, from: u32, upto: u32, at: Timestamp, answer: u32) -> Option<Exchange> {
        match self.state {
            TurnState::Asked => {
                (self.asked, self.asked_at) = (follow(self.asked, upto), Some(at));
                None
            }
            // The request was captured behind its own answer.
            TurnState::Answering | TurnState::Answered if is_upto(upto, self.acked) => {
                self.asked_at.get_or_insert(at);
                None
            }
            _ => self.ask_next(from, Some(at), answer),
        }
    }

    /// Begins the next request. The last answer is complete.
    fn ask_next(&mut self, from: u32, at: Option<Timestamp>, answer: u32) -> Option<Exchange> {
        let over = (self.state == TurnState::Answering).then(|| self.exchange(true)).flatten();
        self.begin(from, at, answer);
        over
    }

    /// Begins a request, which may have been sent before the last answer was complete.
    pub(crate) fn begin(&mut self, from: u32, at: Option<Timestamp>, answer: u32) {
        self.state = TurnState::Asked;
        self.is_overdue = false;
        self.requests = self.requests.saturating_add(1);
        (self.asked, self.answer, self.asked_at) = (from, answer, at);
    }

    /// Begins a request that was not captured, but that the server acknowledged.
    pub(crate) fn imply_ask(&mut self, from: u32, answer: u32) -> Option<Exchange> {
        self.ask_next(from, None, answer)
    }

    /// The client's data that the server had acknowledged when its last answer began.
    pub(crate) fn acked(&self) -> Option<u32> {
        self.has_answer.then_some(self.acked)
    }

    /// Takes octets of the server up to `end`. It had acknowledged the client's data up to `acked`.
    pub(crate) fn answer(&mut self, acked: u32, end: u32, at: Timestamp) {
        match self.state {
            // The server sent it before the request arrived, so it is the rest of the previous answer.
            TurnState::Asked if is_upto(acked, self.asked) => self.pass(end),
            TurnState::Asked => {
                self.state = TurnState::Answering;
                (self.first_at, self.last_at, self.acked, self.end) = (at, at, acked, end);
                self.has_answer = true;
            }
            TurnState::Answering => {
                (self.last_at, self.end) = (self.last_at.max(at), later(self.end, end));
                (self.answer, self.acked) = (follow(self.answer, self.end), follow(self.acked, acked));
            }
            TurnState::Quiet | TurnState::Answered => {}
        }
    }

    /// The answer has come up to `end`, although not all of it was seen.
    pub(crate) fn reach(&mut self, end: u32, at: Timestamp) {
        if self.state == TurnState::Answering {
            (self.last_at, self.end) = (self.last_at.max(at), later(self.end, end));
        }
    }

    /// Takes octets of the server up to `end` that do not answer the request.
    pub(crate) fn pass(&mut self, end: u32) {
        if self.state == TurnState::Asked {
            self.answer = later(self.answer, end);
        }
    }

    /// Takes octets that belong to no request. `acked`: what the client has acknowledged.
    pub(crate) fn pass_through(&mut self, acked: Option<u32>, at: Timestamp) {
        self.last_at = self.last_at.max(at);
        self.end = acked.map_or(self.end, |acked| later(self.end, acked));
        self.answer = follow(self.answer, self.end);
    }

    /// Ends the answer before the octet at `end`.
    pub(crate) fn complete(&mut self, end: u32) -> Option<Exchange> {
        if self.state != TurnState::Answering {
            return None;
        }
        let over = self.exchange(true);
        (self.state, self.end) = (TurnState::Answered, end);
        over
    }

    /// The exchange in progress.
    pub(crate) fn exchange(&self, is_complete: bool) -> Option<Exchange> {
        let asked_at = self.asked_at;
        match self.state {
            TurnState::Quiet | TurnState::Answered => None,
            TurnState::Asked => Some(Exchange { asked_at, first_at: None, last_at: None, is_complete: false }),
            TurnState::Answering => {
                let (first_at, last_at) = (Some(self.first_at), Some(self.last_at));
                Some(Exchange { asked_at, first_at, last_at, is_complete })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A capture whose clock begins at 0 may have its first answer at 0.
    #[test]
    fn zero_is_a_time() {
        let mut turn = Turn::new();
        assert_eq!(turn.acked(), None);
        assert_eq!(turn.ask(0, 9, Timestamp(0), 0), None);
        turn.answer(9, 5, Timestamp(0));
        assert_eq!(turn.acked(), Some(9));
        let over = turn.imply_ask(9, 5).map(|it| (it.asked_at, it.first_at));
        assert_eq!(over, Some((Some(Timestamp(0)), Some(Timestamp(0)))));
        turn.answer(18, 10, Timestamp(3));
        assert_eq!(turn.exchange(true).map(|it| (it.asked_at, it.response())), Some((None, None)));
    }
}
