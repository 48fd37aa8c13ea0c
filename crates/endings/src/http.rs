//! Clear HTTP/1 (RFC 9112): which request got which answer, and where the answer ends.
//!
//! Heads are read line by line as they come, and nothing but a line's beginning is kept. What was not captured, or not in
//! order, makes a direction blind until a segment begins with a request or an answer again; meanwhile it is whose
//! turn it is that counts, as with any other data.

mod parser;

use std::collections::VecDeque;

use watari_packets::{Flags, Segment, Timestamp};

use crate::turn::State;
use parser::{Parser, Piece};

/// Requests that may wait for their answers; more are not told apart.
const PENDING_MAX: usize = 16;

/// What was seen of a request and its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Http {
    /// The request's, if it was seen.
    pub method: Option<Method>,
    /// The answer's, if it was seen.
    pub status: Option<u16>,
    /// Octets of the answer's content, as far as they came.
    pub content: Option<u64>,
}

/// A method's name; of a longer one its beginning.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Method([u8; 8]);

impl Method {
    /// The name.
    pub fn as_str(&self) -> &str {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        str::from_utf8(&self.0[..len]).unwrap_or_default()
    }

    fn new(name: &[u8]) -> Self {
        let mut method = [0; 8];
        let len = name.len().min(method.len());
        method[..len].copy_from_slice(&name[..len]);
        Self(method)
    }
}

impl std::fmt::Debug for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Both directions of a connection.
#[derive(Debug)]
pub(crate) struct Dialogue {
    client: Parser,
    server: Parser,
    /// Requests behind the current one.
    pending: VecDeque<Pending>,
    current: Option<Method>,
    /// The last answer that has begun.
    last: Http,
    /// What follows this answer is no more HTTP (RFC 9110, sections 7.8 and 9.3.6).
    pub(crate) is_tunnel: bool,
}

/// A request that was sent before the answer to the one before it was complete.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pending {
    method: Method,
    pub(crate) from: u32,
    pub(crate) at: Timestamp,
}

/// Whether these may be the first octets of a request: a name and a blank.
pub(crate) fn begins_request(data: &[u8]) -> bool {
    let name = data.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    (3..=16).contains(&name) && data.get(name) == Some(&b' ') && !data.starts_with(b"PRI * HTTP/2")
}

impl Dialogue {
    /// The client's stream begins at `client`.
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

    /// Data of the client; whether they belong to a request that is the current one.
    pub(crate) fn see_client(&mut self, from: u32, segment: &Segment<'_>, turn: State) -> bool {
        let is_busy = matches!(turn, State::Asked | State::Answering) && self.current.is_some();
        // The rest of a request that is answered already asks for nothing more.
        let is_rest = matches!(turn, State::Answering | State::Answered) && self.client.is_in_message();
        let mut asks = !is_rest && self.client.is_in_message() && self.pending.is_empty();
        // The answer was not seen, but the client has it.
        let is_lost = segment.flags.contains(Flags::ACK) && self.server.give_up(segment.acknowledgment);
        // Where it ends cannot be told, so it is whose turn it is that counts.
        let is_lost = is_lost || turn == State::Answering && self.server.is_blind();
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

    /// Data of the server; where answers end.
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
                // See `is_interim`.
                Piece::End if !self.is_tunnel && self.last.status.is_some_and(|status| status < 200) => {}
                Piece::End => {
                    end = Some(position);
                    self.last.content = Some(self.server.content());
                    break;
                }
                Piece::Request(_) => {}
            }
        }
        // Of a head that was cut off the rest is not seen, nor needed.
        let is_cut = self.is_tunnel && self.server.is_blind();
        end.or_else(|| is_cut.then_some(from.wrapping_add(segment.len)))
    }

    /// The client has all of the server's up to this. Where the answer ends, if that is before, and it was not seen.
    pub(crate) fn acknowledge(&mut self, upto: u32) -> Option<u32> {
        let end = self.server.acknowledge(upto)?;
        self.last.content = Some(self.server.content());
        Some(end)
    }

    /// How many requests wait for the one before them.
    pub(crate) fn pending(&self) -> u32 {
        self.pending.len() as u32
    }

    /// The next request, now that the current one has its answer.
    pub(crate) fn next_request(&mut self) -> Option<Pending> {
        self.current = None;
        let next = self.pending.pop_front()?;
        (self.current, self.last) = (Some(next.method), Http::default());
        Some(next)
    }

    /// Of the current exchange, or the one that was just completed.
    pub(crate) fn exchange(&self) -> Http {
        let is_known = self.last.status.is_some() && !self.server.is_blind();
        let content = is_known.then(|| self.server.content());
        Http { method: self.current.or(self.last.method), content: self.last.content.or(content), ..self.last }
    }

    /// Whether all that came is an answer that is none yet, such as `100 Continue` (RFC 9110, section 15.2).
    pub(crate) fn is_interim(&self) -> bool {
        self.last.status.is_some_and(|status| status < 200) && !self.server.is_blind() && !self.is_tunnel
    }

    /// Whether the answer in progress ends when the server closes (RFC 9112, section 6.3).
    pub(crate) fn ends_with_stream(&self) -> bool {
        self.server.ends_with_stream()
    }

    /// Whether the answer in progress is known to lack something.
    pub(crate) fn lacks(&self) -> bool {
        self.server.is_in_message() && !self.server.is_blind() && !self.server.ends_with_stream()
    }
}
