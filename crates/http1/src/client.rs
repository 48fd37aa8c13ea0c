//! The client's side of a connection.

mod request;
#[cfg(test)]
mod tests;

use std::mem::MaybeUninit;

use http::{HeaderMap, request as http_request, response};

use crate::content::{Content, ContentSize, Decoded, Decoder, Encoder, Framed};
use crate::fault::{ContentFault, Misuse, ResponseFault, Truncated};
use crate::head::{FIELDS_ON_STACK, Field, HeadEnd, ResponseHead, field_room};
use crate::limits::{INFORMATIONAL_MAX, Limits};
use crate::next::Next;

/// The state of a client's connection: one request at a time, and its responses.
///
/// ```text
/// sending    Idle --start_request--> Content --finish--> Complete --next_exchange--> Idle
///             |                       '--abandon_content--> Stopped
///             '--start_request: no content--> Complete
///
/// receiving  Idle --start_request--> Head --parse_response--> Content --decode: end--> Complete --next_exchange--> Idle
///             |                      | ^ |                     | '--end_of_input, until close--> Complete
///             |       informational  '-' '--no content--> Complete
///             '--input, fault, end_of_input (from any)--> Stopped
/// ```
///
/// | receiving | sending | [`Client::next_exchange`] |
/// | --- | --- | --- |
/// | Complete | Complete | `Idle`, `Close` or `Tunnel`, as the heads say |
/// | Complete | Content | none: the caller sends the rest, or abandons it |
/// | Complete | Stopped | `Close` |
/// | Stopped | any | `Close` |
/// | Idle, Head, Content | any | none |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    pub(crate) limits: Limits,
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    pub(crate) exchange: Exchange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    Idle,
    Content(Encoder),
    Complete,
    /// The rest of the request is not sent.
    Stopped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receiving {
    Idle,
    /// A response is due.
    Head(HeadEnd),
    Content(Decoder),
    Complete,
    /// No byte is read any more.
    Stopped,
}

/// What the heads of request and response say about the rest of the exchange.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each holds independently of the others")]
pub(crate) struct Exchange {
    /// The method is HEAD.
    pub(crate) is_head: bool,
    /// The request asks for another protocol.
    pub(crate) asks_upgrade: bool,
    /// The response was a 101.
    pub(crate) is_tunnel: bool,
    /// The connection ends after the response.
    pub(crate) closes: bool,
    /// Informational responses so far.
    pub(crate) informational: u8,
}

/// A response whose head is complete. If its status is informational and not 101, another response follows (RFC 9110,
/// section 15.2).
#[derive(Debug)]
pub struct Response {
    pub head: response::Parts,
    /// The bytes that the caller removes from the front of its input.
    pub consumed: usize,
    pub content: Content,
}

impl Client {
    pub fn new(limits: Limits) -> Self {
        Self { limits, sending: Sending::Idle, receiving: Receiving::Idle, exchange: Exchange::default() }
    }

    /// Writes the head of a request in HTTP/1.1. Returns the framing of its content.
    ///
    /// Before that, the caller checks that its input is empty, for example with [`Client::parse_response`]: bytes of the
    /// server that precede a request are no response to it (RFC 9112, section 9.2).
    ///
    /// The target is written in origin form, or as `*`. If the head has no `Host`, the authority of its target becomes
    /// one. Decides `Content-Length` and `Transfer-Encoding`; `Connection` is the caller's.
    pub fn start_request(
        &mut self,
        head: &http_request::Parts,
        size: ContentSize,
        out: &mut Vec<u8>,
    ) -> Result<Content, Misuse> {
        if !self.is_reusable() {
            return Err(Misuse::NotDue);
        }
        let (content, exchange) = request::write(head, size, out)?;
        self.exchange = exchange;
        self.receiving = Receiving::Head(HeadEnd::default());
        self.sending = if content.is_empty() { Sending::Complete } else { Sending::Content(Encoder::new(content)) };
        Ok(content)
    }

    /// Notes that the caller has written a whole request itself, without an upgrade. Its response is due.
    pub fn expect_response(&mut self, to_head: bool) -> Result<(), Misuse> {
        if !self.is_reusable() {
            return Err(Misuse::NotDue);
        }
        self.exchange = Exchange { is_head: to_head, ..Exchange::default() };
        self.receiving = Receiving::Head(HeadEnd::default());
        self.sending = Sending::Complete;
        Ok(())
    }

    /// The framing of the next `len` bytes of the request's content.
    pub fn encode(&mut self, len: usize) -> Result<Framed, Misuse> {
        match &mut self.sending {
            Sending::Content(encoder) => encoder.encode(len),
            Sending::Idle | Sending::Stopped => Err(Misuse::NotDue),
            Sending::Complete => Encoder::Done.encode(len),
        }
    }

    /// Ends the request. Trailers are written if the content has chunks.
    ///
    /// After [`Misuse::TooShort`], the caller has to close the connection.
    pub fn finish(&mut self, trailers: Option<&HeaderMap>, out: &mut Vec<u8>) -> Result<(), Misuse> {
        match &mut self.sending {
            Sending::Content(encoder) => encoder.finish(trailers, out)?,
            Sending::Complete => {}
            Sending::Idle | Sending::Stopped => return Err(Misuse::NotDue),
        }
        self.sending = Sending::Complete;
        Ok(())
    }

    /// Gives up the rest of the request's content. The connection ends after the response.
    pub fn abandon_content(&mut self) {
        if let Sending::Content(_) = self.sending {
            self.sending = Sending::Stopped;
        }
    }

    /// Parses the head of the next response, which may be informational. `None`: it is incomplete, or none is due.
    ///
    /// The caller's buffer has to have room for [`Limits::head_bytes_max`] bytes.
    pub fn parse_response(&mut self, input: &[u8]) -> Result<Option<Response>, ResponseFault> {
        let mut room = field_room();
        let parsed = match self.parse_head(input, &mut room) {
            // A site may allow more fields than usual.
            Err(ResponseFault::Fields) if self.limits.fields_max > FIELDS_ON_STACK => {
                let mut room = vec![MaybeUninit::uninit(); self.limits.fields_max];
                return self.parse_head(input, &mut room).and_then(convert).map_err(|fault| self.stop(fault));
            }
            parsed => parsed.and_then(convert),
        };
        parsed.map_err(|fault| self.stop(fault))
    }

    /// Parses the head of the next response like [`Client::parse_response`], without a copy of it. The caller removes
    /// the length of [`ResponseHead::raw`] from its input. After an error, it closes the connection.
    pub fn parse_head<'a, 'r>(
        &mut self,
        input: &'a [u8],
        room: &'r mut [MaybeUninit<Field<'a>>],
    ) -> Result<Option<(ResponseHead<'a, 'r>, Content)>, ResponseFault> {
        let Receiving::Head(end) = &mut self.receiving else {
            let is_unsolicited = self.receiving == Receiving::Idle && !input.is_empty();
            return if is_unsolicited { Err(ResponseFault::Unsolicited) } else { Ok(None) };
        };
        // What is no HTTP may never have an empty line.
        if !(input.starts_with(VERSION_START) || VERSION_START.starts_with(input)) {
            return Err(ResponseFault::Version);
        }
        let head = &input[..input.len().min(self.limits.head_bytes_max)];
        let is_full = head.len() == self.limits.head_bytes_max;
        // Most heads come in one piece: those are parsed without a search. The others are parsed once more, at their end.
        if end.has_begun() && !is_full && !end.is_complete(head) {
            return Ok(None);
        }
        let Some(head) = ResponseHead::parse(head, room)? else {
            return match (end.is_complete(head), is_full) {
                (true, _) => Err(ResponseFault::LineEnd),
                (false, true) => Err(ResponseFault::HeadLen),
                (false, false) => Ok(None),
            };
        };
        if head.fields.len() > self.limits.fields_max {
            return Err(ResponseFault::Fields);
        }
        let content = head.content(self.exchange.is_head);
        self.accept(&head, content)?;
        Ok(Some((head, content)))
    }

    /// Decodes content of the response.
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, ContentFault> {
        let Receiving::Content(decoder) = &mut self.receiving else {
            return Ok(Decoded { is_end: self.receiving == Receiving::Complete, ..Decoded::default() });
        };
        let result = decoder.decode(input, &self.limits);
        match &result {
            Ok(found) if found.is_end => self.receiving = Receiving::Complete,
            Ok(_) => {}
            Err(_) => self.receiving = Receiving::Stopped,
        }
        result
    }

    /// The server sends nothing any more. If the response lasts until then, it is complete.
    pub fn end_of_input(&mut self) -> Result<(), Truncated> {
        self.exchange.closes = true;
        let (receiving, result) = match self.receiving {
            Receiving::Content(decoder) if decoder.ends_with_connection() => (Receiving::Complete, Ok(())),
            Receiving::Content(_) => (Receiving::Stopped, Err(Truncated::Content)),
            Receiving::Head(_) => (Receiving::Stopped, Err(Truncated::Head)),
            Receiving::Complete => (Receiving::Complete, Ok(())),
            Receiving::Idle | Receiving::Stopped => (Receiving::Stopped, Ok(())),
        };
        self.receiving = receiving;
        result
    }

    /// How the connection continues. `None`: the exchange is not complete. After `Idle`, the next request can start.
    pub fn next_exchange(&mut self) -> Option<Next> {
        match (self.receiving, self.sending) {
            (Receiving::Stopped, _) | (Receiving::Complete, Sending::Stopped) => Some(Next::Close),
            (Receiving::Complete, Sending::Complete) if self.exchange.is_tunnel => Some(Next::Tunnel),
            (Receiving::Complete, Sending::Complete) if self.exchange.closes => Some(Next::Close),
            (Receiving::Complete, Sending::Complete) => {
                *self = Self::new(self.limits);
                Some(Next::Idle)
            }
            (Receiving::Idle | Receiving::Head(_) | Receiving::Content(_), _)
            | (Receiving::Complete, Sending::Idle | Sending::Content(_)) => None,
        }
    }

    /// Whether a request can start.
    pub fn is_reusable(&self) -> bool {
        (self.sending, self.receiving) == (Sending::Idle, Receiving::Idle)
    }

    /// Whether the final response is complete.
    pub fn is_response_complete(&self) -> bool {
        self.receiving == Receiving::Complete
    }

    fn accept(&mut self, head: &ResponseHead<'_, '_>, content: Content) -> Result<(), ResponseFault> {
        match head.status {
            101 if !self.exchange.asks_upgrade => return Err(ResponseFault::Upgrade),
            101 => self.exchange.is_tunnel = true,
            100..=199 if self.exchange.informational == INFORMATIONAL_MAX => return Err(ResponseFault::Informational),
            100..=199 => {
                self.exchange.informational += 1;
                self.receiving = Receiving::Head(HeadEnd::default());
                return Ok(());
            }
            _ => {}
        }
        self.exchange.closes |= !head.persists();
        self.receiving =
            if content.is_empty() { Receiving::Complete } else { Receiving::Content(Decoder::new(content)) };
        Ok(())
    }

    fn stop(&mut self, fault: ResponseFault) -> ResponseFault {
        self.receiving = Receiving::Stopped;
        fault
    }
}

fn convert(parsed: Option<(ResponseHead<'_, '_>, Content)>) -> Result<Option<Response>, ResponseFault> {
    let Some((head, content)) = parsed else { return Ok(None) };
    let consumed = head.raw.len();
    Ok(Some(Response { head: head.into_parts()?, consumed, content }))
}

/// The first bytes of each response of HTTP/1.1 and HTTP/1.0.
const VERSION_START: &[u8] = b"HTTP/1.";
