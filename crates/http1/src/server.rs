//! The server's side of a connection.

mod response;
#[cfg(test)]
mod tests;

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, Version, request, response as http_response};

use crate::content::{Content, ContentSize, Decoded, Decoder, Encoder, Framed};
use crate::fault::{ContentFault, Misuse, RequestFault, Truncated};
use crate::head::end::empty_lines_len;
use crate::head::{FIELDS_ON_STACK, HeadEnd, RequestHead, field_room};
use crate::limits::Limits;
use crate::next::Next;

/// The state of a server's connection: one request at a time, and its response. Pipelined requests stay in the caller's
/// input until [`Server::next_exchange`].
///
/// ```text
/// receiving  Head --parse_request--> Content --decode: end--> Complete --next_exchange--> Head
///             | |                     '--abandon_content, fault, end_of_input--> Stopped
///             | '--parse_request: no content--> Complete
///             '--refused, end_of_input--> Stopped
///
/// sending    Idle --parse_request--> Due --start_response--> Content --finish--> Complete --next_exchange--> Idle
///                       (or refused)  |                                              ^
///                                     '--start_response: no content------------------'
/// ```
///
/// | receiving | sending | [`Server::next_exchange`] |
/// | --- | --- | --- |
/// | Complete | Complete | `Idle`, `Close` or `Tunnel`, as the heads say |
/// | Stopped | Complete, Idle | `Close` |
/// | Content | Complete | none: the caller decodes the rest, or abandons it |
/// | any | Due, Content | none |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    pub(crate) limits: Limits,
    pub(crate) receiving: Receiving,
    pub(crate) sending: Sending,
    pub(crate) exchange: Exchange,
    /// No request is read after this one.
    pub(crate) is_closing: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receiving {
    /// Between requests, or in a head.
    Head(HeadEnd),
    Content(Decoder),
    /// The request is complete.
    Complete,
    /// No byte is read any more.
    Stopped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    /// There is no request.
    Idle,
    /// A response is due.
    Due,
    Content(Encoder),
    /// The response is complete.
    Complete,
}

/// What the heads of request and response say about the rest of the exchange.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each holds independently of the others")]
pub(crate) struct Exchange {
    /// The method is HEAD.
    pub(crate) is_head: bool,
    pub(crate) is_http10: bool,
    /// The client sends `TE: trailers`.
    pub(crate) takes_trailers: bool,
    /// The client waits for a 100.
    pub(crate) is_continue_due: bool,
    /// The client asks for another protocol.
    pub(crate) asks_upgrade: bool,
    /// The response was a 101.
    pub(crate) is_tunnel: bool,
    /// The connection ends after the response.
    pub(crate) closes: bool,
}

/// A request whose head is complete.
#[derive(Debug)]
pub struct Request {
    pub head: request::Parts,
    /// The head as it came. It shares its memory with the fields of `head`.
    pub raw: Bytes,
    /// The bytes that the caller removes from the front of its input.
    pub consumed: usize,
    pub content: Content,
    /// Whether the client waits for a 100 before it sends the content. See [`Server::send_continue`].
    pub expects_continue: bool,
    /// Whether the client asks for another protocol. A 101 may follow.
    pub asks_upgrade: bool,
    /// Whether the client announces that it sends no further request.
    pub is_last: bool,
}

/// A request that the server refuses. A response is due: [`Server::start_response`] writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct Refused {
    pub fault: RequestFault,
    /// The bytes that the caller removes from the front of its input.
    pub consumed: usize,
    /// Whether the connection ends after the response, because the start of the next request is uncertain.
    pub closes: bool,
}

impl Server {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            receiving: Receiving::Head(HeadEnd::default()),
            sending: Sending::Idle,
            exchange: Exchange::default(),
            is_closing: false,
        }
    }

    /// Parses the head of the next request. `None`: it is incomplete, or the last exchange is.
    ///
    /// The caller's buffer has to have room for [`Limits::head_bytes_max`] bytes, and for some empty lines before them.
    pub fn parse_request(&mut self, input: &[u8]) -> Result<Option<Request>, Refused> {
        let (Receiving::Head(end), Sending::Idle) = (&mut self.receiving, self.sending) else { return Ok(None) };
        let Some(skipped) = empty_lines_len(input) else { return Err(self.refuse(RequestFault::EmptyLines)) };
        let head = &input[skipped..];
        if matches!(head, [] | b"\r") {
            return Ok(None);
        }
        let head = &head[..head.len().min(self.limits.head_bytes_max)];
        if !end.is_complete(head) {
            let is_too_long = head.len() == self.limits.head_bytes_max;
            return if is_too_long { Err(self.refuse(RequestFault::HeadLen)) } else { Ok(None) };
        }
        self.parse_head(head, skipped).map(Some)
    }

    /// Decodes content. The first call with input ends the wait for a 100.
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, ContentFault> {
        let Receiving::Content(decoder) = &mut self.receiving else {
            return Ok(Decoded { is_end: self.receiving != Receiving::Stopped, ..Decoded::default() });
        };
        let result = decoder.decode(input, &self.limits);
        self.exchange.is_continue_due &= input.is_empty();
        match &result {
            Ok(found) if found.is_end => self.receiving = Receiving::Complete,
            Ok(_) => {}
            Err(_) => self.receiving = Receiving::Stopped,
        }
        result
    }

    /// Writes a 100 if the client waits for it. The caller does this when it wants the content (RFC 9110, section
    /// 10.1.1).
    pub fn send_continue(&mut self, out: &mut Vec<u8>) -> bool {
        let is_due = self.exchange.is_continue_due && self.sending == Sending::Due;
        if is_due {
            out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            self.exchange.is_continue_due = false;
        }
        is_due
    }

    /// Writes an informational response (RFC 9110, section 15.2), unless the client cannot take it. Returns whether it
    /// was written. A 100 is written only if the client waits for it.
    pub fn informational(&mut self, status: StatusCode, fields: &HeaderMap, out: &mut Vec<u8>) -> Result<bool, Misuse> {
        if self.sending != Sending::Due {
            return Err(Misuse::NotDue);
        }
        if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Misuse::Status);
        }
        let is_unasked = status == StatusCode::CONTINUE && !self.exchange.is_continue_due;
        if self.exchange.is_http10 || is_unasked {
            return Ok(false);
        }
        self.exchange.is_continue_due &= status != StatusCode::CONTINUE;
        response::write_informational(status, fields, out);
        Ok(true)
    }

    /// Writes the head of the response. Returns the framing of the content: if it is [`Content::None`], the response
    /// has no content, and the caller drops what it has.
    ///
    /// Decides `Content-Length`, `Transfer-Encoding` and `Connection`, and adds `date` if the head has no `Date`. If the
    /// client still waits for a 100, this abandons the request's content.
    pub fn start_response(
        &mut self,
        head: &http_response::Parts,
        size: ContentSize,
        date: &HeaderValue,
        out: &mut Vec<u8>,
    ) -> Result<Content, Misuse> {
        if self.sending != Sending::Due {
            return Err(Misuse::NotDue);
        }
        // A client that still waits for a 100 may send the content or not, so the next request would not be found.
        if self.exchange.is_continue_due {
            self.abandon_content();
        }
        self.exchange.closes |= self.is_closing || self.receiving == Receiving::Stopped;
        let content = response::write(&mut self.exchange, head, size, date, out)?;
        self.exchange.is_continue_due = false;
        self.sending = if content.is_empty() { Sending::Complete } else { Sending::Content(Encoder::new(content)) };
        Ok(content)
    }

    /// The framing of the next `len` bytes of the response's content.
    pub fn encode(&mut self, len: usize) -> Result<Framed, Misuse> {
        match &mut self.sending {
            Sending::Content(encoder) => encoder.encode(len),
            Sending::Idle | Sending::Due => Err(Misuse::NotDue),
            Sending::Complete => Encoder::Done.encode(len),
        }
    }

    /// Ends the response. Trailers are written if the client takes them and the content has chunks.
    ///
    /// After [`Misuse::TooShort`], the caller has to reset the connection.
    pub fn finish(&mut self, trailers: Option<&HeaderMap>, out: &mut Vec<u8>) -> Result<(), Misuse> {
        match &mut self.sending {
            Sending::Content(encoder) => encoder.finish(trailers.filter(|_| self.exchange.takes_trailers), out)?,
            Sending::Complete => {}
            Sending::Idle | Sending::Due => return Err(Misuse::NotDue),
        }
        self.sending = Sending::Complete;
        Ok(())
    }

    /// Gives up the rest of the request's content. The connection ends after the response, because the start of the
    /// next request is not found. A response that starts later announces that.
    pub fn abandon_content(&mut self) {
        if let Receiving::Content(_) = self.receiving {
            self.receiving = Receiving::Stopped;
        }
    }

    /// How the connection continues. `None`: the exchange is not complete. After `Idle`, the next request can be parsed.
    pub fn next_exchange(&mut self) -> Option<Next> {
        match (self.receiving, self.sending) {
            (Receiving::Complete, Sending::Complete) if self.exchange.is_tunnel => Some(Next::Tunnel),
            (Receiving::Complete, Sending::Complete) if self.exchange.closes || self.is_closing => Some(Next::Close),
            (Receiving::Complete, Sending::Complete) => {
                *self = Self::new(self.limits);
                Some(Next::Idle)
            }
            (Receiving::Stopped, Sending::Complete | Sending::Idle) => Some(Next::Close),
            (Receiving::Head(_) | Receiving::Content(_), _)
            | (_, Sending::Idle | Sending::Due | Sending::Content(_)) => None,
        }
    }

    /// Whether the connection ends after the response in progress, whose head is written.
    pub fn ends_after_response(&self) -> bool {
        !self.exchange.is_tunnel && (self.exchange.closes || self.is_closing || self.receiving == Receiving::Stopped)
    }

    /// Ends the connection after the response in progress, or the next one. The response announces that if it has not
    /// started.
    pub fn close_after_response(&mut self) {
        self.is_closing = true;
    }

    /// Whether no request follows the one in progress.
    pub fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Whether there is a request that has not been answered completely, or not been read completely.
    pub fn is_answering(&self) -> bool {
        self.sending != Sending::Idle
    }

    /// Whether the connection follows another protocol after the response in progress.
    pub fn is_tunnel(&self) -> bool {
        self.exchange.is_tunnel
    }

    /// The bytes of the response's content that are to come. `None`: their number is unknown, or no response has begun.
    pub fn content_left(&self) -> Option<u64> {
        match self.sending {
            Sending::Content(Encoder::Length(left)) => Some(left),
            Sending::Complete => Some(0),
            _ => None,
        }
    }

    /// Whether there is no request, not even a part of one.
    pub fn is_idle(&self) -> bool {
        matches!((self.receiving, self.sending), (Receiving::Head(end), Sending::Idle) if !end.has_begun())
    }

    /// Whether the connection is between two requests, with this input. Empty lines are not the start of a request.
    pub fn is_between_requests(&self, input: &[u8]) -> bool {
        self.is_idle() && empty_lines_len(input).is_some_and(|len| matches!(input[len..], [] | [b'\r']))
    }

    /// Whether a byte of the request in progress is still to come.
    pub fn awaits_content(&self) -> bool {
        matches!(self.receiving, Receiving::Content(_))
    }

    /// The client sends nothing any more. `input` is what was not consumed. A response that is due can still be sent.
    pub fn end_of_input(&mut self, input: &[u8]) -> Result<(), Truncated> {
        self.is_closing = true;
        let result = match self.receiving {
            Receiving::Head(_) if self.is_between_requests(input) => Ok(()),
            Receiving::Head(_) => Err(Truncated::Head),
            Receiving::Content(_) => Err(Truncated::Content),
            Receiving::Complete | Receiving::Stopped => return Ok(()),
        };
        self.receiving = Receiving::Stopped;
        result
    }

    fn parse_head(&mut self, input: &[u8], skipped: usize) -> Result<Request, Refused> {
        let mut room = field_room();
        match RequestHead::parse(input, &mut room) {
            // A site may allow more fields than usual.
            Err(RequestFault::Fields) if self.limits.fields_max > FIELDS_ON_STACK => {
                let mut room = vec![MaybeUninit::uninit(); self.limits.fields_max];
                self.accept(RequestHead::parse(input, &mut room), skipped)
            }
            parsed => self.accept(parsed, skipped),
        }
    }

    fn accept(
        &mut self,
        parsed: Result<Option<RequestHead<'_, '_>>, RequestFault>,
        skipped: usize,
    ) -> Result<Request, Refused> {
        let head = parsed.and_then(|head| head.ok_or(RequestFault::LineEnd)).map_err(|fault| self.refuse(fault))?;
        let (content, is_last, asks_upgrade) = (head.content, head.is_last(), head.asks_upgrade());
        let (expects_continue, consumed) = (head.expects_continue(), skipped + head.raw.len());
        let exchange = Exchange {
            is_head: head.method == "HEAD",
            is_http10: head.version == Version::HTTP_10,
            takes_trailers: head.takes_trailers(),
            is_continue_due: expects_continue,
            asks_upgrade,
            is_tunnel: false,
            closes: !head.persists(),
        };
        let has_too_many_fields = head.fields.len() > self.limits.fields_max;
        let parts = head.into_parts();
        // The answer to HEAD has no content, even if it refuses the request.
        self.exchange = exchange;
        let (parts, raw) = parts.map_err(|fault| self.refuse(fault))?;
        self.sending = Sending::Due;
        self.receiving =
            if content.is_empty() { Receiving::Complete } else { Receiving::Content(Decoder::new(content)) };
        let target_len = parts.uri.path_and_query().map_or(0, |path| path.as_str().len());
        let is_target_too_long = target_len > self.limits.target_bytes_max;
        // The framing of a request that only exceeds a limit is certain, so the connection can continue.
        let over = |fault| Refused { fault, consumed, closes: false };
        match (has_too_many_fields, is_target_too_long) {
            (true, _) => Err(over(RequestFault::Fields)),
            (_, true) => Err(over(RequestFault::TargetLen)),
            _ => Ok(Request { head: parts, raw, consumed, content, expects_continue, asks_upgrade, is_last }),
        }
    }

    fn refuse(&mut self, fault: RequestFault) -> Refused {
        self.receiving = Receiving::Stopped;
        self.sending = Sending::Due;
        self.exchange = Exchange { is_continue_due: false, asks_upgrade: false, closes: true, ..self.exchange };
        Refused { fault, consumed: 0, closes: true }
    }
}
