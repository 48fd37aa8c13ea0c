//! Clear HTTP/1 (RFC 9112): pairs requests with answers, and finds where an answer ends.
//!
//! The parser reads heads line by line as they arrive, and keeps only the beginning of a line. After a gap or a
//! reordering a direction is blind until a segment begins with a request or an answer. Meanwhile the direction of data
//! separates requests and answers, as for any other protocol.

mod method;
mod parser;

use std::collections::VecDeque;

use watari_packets::{Flags, Segment, Timestamp};

use crate::turn::TurnState;
pub use method::Method;
pub(crate) use method::begins_request;
use parser::{Parser, Piece};

/// The most pipelined requests. Further ones are not separated.
const PENDING_MAX: usize = 16;

/// The captured part of a request and its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Http {
    /// The request's method, if it was seen.
    pub method: Option<Method>,
    /// The answer's status, if it was seen.
    pub status: Option<u16>,
    /// Octets of the answer's content, as far as they came.
    pub content: Option<u64>,
}

/// Both directions of a connection.
#[derive(Debug)]
pub(crate) struct Dialogue {
    client: Parser,
    server: Parser,
    /// Pipelined requests behind the current one.
    pending: VecDeque<Pending>,
    current: Option<Method>,
    /// The last answer that has begun.
    last: Http,
    /// The octets behind this answer are not HTTP (RFC 9110, sections 7.8 and 9.3.6).
    pub(crate) is_tunnel: bool,
}

/// A request that was sent before the previous answer was complete.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pending {
    method: Method,
    pub(crate) from: u32,
    pub(crate) at: Timestamp,
}

impl Dialogue {
    /// `client` and `server`: sequence numbers at which the two streams begin.
    pub(crate) fn new(client: u32, server: u32) -> Self {
        Self {
            client: Parser::new(client, true),
            server: Parser::new(server, false),
            pending: VecDeque::new(),
            current: None,
            last: Http::default(),
            is_tunnel: false,
        }
    }

    /// Takes data of the client. Returns whether they belong to the current request.
    pub(crate) fn see_client(&mut self, from: u32, segment: &Segment<'_>, turn: TurnState) -> bool {
        let is_busy = matches!(turn, TurnState::Asked | TurnState::Answering) && self.current.is_some();
        // The rest of a request that is already answered is not a new request.
        let is_rest = matches!(turn, TurnState::Answering | TurnState::Answered) && self.client.is_in_message();
        let mut asks = !is_rest && self.client.is_in_message() && self.pending.is_empty();
        // The answer was not seen, but the client has it.
        let is_lost = segment.flags.contains(Flags::ACK) && self.server.give_up(segment.acknowledgment);
        // The end of the answer is unknown, so the direction of data decides.
        let is_lost = is_lost || turn == TurnState::Answering && self.server.is_blind();
        if is_lost {
            self.pending.clear();
        }
        let mut has_current = is_busy && !is_lost;
        let mut rest = self.client.enter(from, segment);
        while let Some((piece, position)) = self.client.next(&mut rest) {
            let Piece::Request(method) = piece else { continue };
            if has_current {
                if self.pending.len() < PENDING_MAX {
                    self.pending.push_back(Pending { method, from: position, at: segment.time });
                }
            } else {
                (self.current, has_current, asks) = (Some(method), true, true);
                self.last = Http::default();
            }
        }
        asks || self.client.is_blind() || !is_rest && !has_current && self.client.is_in_message()
    }

    /// Takes data of the server. Returns the end of an answer.
    pub(crate) fn see_server(&mut self, from: u32, segment: &Segment<'_>) -> Option<u32> {
        let mut rest = self.server.enter(from, segment);
        let mut end = None;
        while let Some((piece, position)) = self.server.next(&mut rest) {
            match piece {
                Piece::Status(status) => {
                    self.last = Http { method: self.current, status: Some(status), content: None };
                    let asked = |name| self.current.is_some_and(|method| method.as_str() == name);
                    self.is_tunnel |= status == 101 || asked("CONNECT") && status / 100 == 2;
                    self.server.expect(status, self.is_tunnel || asked("HEAD"));
                }
                // An interim response; see [`Dialogue::is_interim`].
                Piece::End if !self.is_tunnel && self.last.status.is_some_and(|status| status < 200) => {}
                Piece::End => {
                    end = Some(position);
                    self.last.content = Some(self.server.content());
                    break;
                }
                Piece::Request(_) => {}
            }
        }
        // If the head was cut off, its rest is not seen, nor needed.
        let is_cut = self.is_tunnel && self.server.is_blind();
        end.or_else(|| is_cut.then_some(from.wrapping_add(segment.len)))
    }

    /// The client has acknowledged the server's data up to here. Returns the end of the answer if it is before that and
    /// was not seen.
    pub(crate) fn acknowledge(&mut self, upto: u32) -> Option<u32> {
        let end = self.server.acknowledge(upto)?;
        self.last.content = Some(self.server.content());
        Some(end)
    }

    /// Pipelined requests behind the current one.
    pub(crate) fn pending(&self) -> u32 {
        self.pending.len() as u32
    }

    /// The next request, after the answer to the current one.
    pub(crate) fn next_request(&mut self) -> Option<Pending> {
        self.current = None;
        let next = self.pending.pop_front()?;
        (self.current, self.last) = (Some(next.method), Http::default());
        Some(next)
    }

    /// The current exchange, or the one that was just completed.
    pub(crate) fn exchange(&self) -> Http {
        let is_known = self.last.status.is_some() && !self.server.is_blind();
        let content = is_known.then(|| self.server.content());
        Http { method: self.current.or(self.last.method), content: self.last.content.or(content), ..self.last }
    }

    /// Whether only an interim response has come, such as `100 Continue` (RFC 9110, section 15.2).
    pub(crate) fn is_interim(&self) -> bool {
        self.last.status.is_some_and(|status| status < 200) && !self.server.is_blind() && !self.is_tunnel
    }

    /// Whether the answer in progress ends when the server closes (RFC 9112, section 6.3).
    pub(crate) fn ends_with_stream(&self) -> bool {
        self.server.ends_with_stream()
    }

    /// Whether the answer in progress is known to be incomplete.
    pub(crate) fn lacks(&self) -> bool {
        self.server.is_in_message() && !self.server.is_blind() && !self.server.ends_with_stream()
    }
}
