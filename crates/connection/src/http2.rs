//! An HTTP/2 connection of a client: requests come in, responses go out, many at a time.
//!
//! ```text
//!   stream --> Server::receive --> exchanges: a request and its response, one for each stream
//!   stream <-- Output <-- heads, content in turn, as the client's windows permit
//! ```
//!
//! * The owner calls [`Http2Connection::poll`] until it returns pending, whenever the task is woken, as with
//!   [`Connection`](crate::Connection). An exchange is polled only if it was woken ([`Wakers`]).
//! * Content of a request is kept until the service reads it. The client's windows bound it.
//! * A client that takes no answers is not read from.
//! * If the client ends its direction, complete requests are still answered.

mod exchange;
mod output;
mod slots;
mod wakers;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http::header::EXPECT;
use http::request::Parts as RequestHead;
use http::{Request, StatusCode};
use watari_http2::Code;
use watari_http2::server::{Event, Fault, Limits, Server, StreamId};

use crate::connection::{Plaintext, Service};
use crate::content::Content;
use crate::interim::Interim;
use exchange::{Exchange, Sending};
use output::Output;
use slots::{SLOTS, Slots};
use wakers::Wakers;

/// Requests in progress at a time, at most.
pub const STREAMS_MAX: u32 = SLOTS as u32;

/// No frame is read while this many bytes wait to be written: the client takes no answers.
const UNTAKEN_LEN_MAX: usize = 256 * 1024;
/// The most rounds before the task lets others run.
const ROUNDS_MAX: usize = 64;

/// How a connection ended.
#[derive(Debug)]
pub enum Http2End {
    /// All responses that were begun are complete. The stream may still have to be flushed.
    Complete,
    /// The client has broken a rule. The stream may still have to be flushed: it has the GOAWAY.
    Fault(Fault),
    /// The stream failed.
    Stream(io::Error),
}

/// An HTTP/2 connection.
pub struct Http2Connection<T, S: Service> {
    stream: T,
    /// Plaintext taken from the stream: a part of a frame.
    gathered: Vec<u8>,
    exchanges: Exchanges<S>,
    /// Bytes were written since the last flush.
    is_unflushed: bool,
    /// The client has ended its direction.
    has_ended: bool,
    /// The client has broken a rule. Only what waits is still written.
    fault: Option<Fault>,
    heard: Heard,
    clock: fn() -> Instant,
}

/// The requests in progress, and what they share.
struct Exchanges<S: Service> {
    service: S,
    http: Server,
    output: Output,
    slots: Vec<Option<Box<Exchange<S>>>>,
    wakers: Wakers,
    /// Slots that were woken when there was no room for a response.
    held: Slots,
    /// Slots that may have content to send.
    sending: Slots,
    /// The slot whose turn it is to send.
    turn: usize,
    /// The number of requests so far.
    requests: u64,
}

/// Whether the client shows that it is there.
enum Heard {
    /// Since the last look.
    Yes,
    No,
    /// Nor since a ping.
    Pinged,
}

impl<T: Plaintext, S: Service> Http2Connection<T, S> {
    /// A new connection. `clock` is read when the client seems to flood the connection.
    pub fn new(stream: T, limits: Limits, service: S, clock: fn() -> Instant) -> Self {
        let mut output = Output::default();
        let http = Server::new(limits, clock(), output.framing());
        let exchanges = Exchanges {
            service,
            http,
            output,
            slots: Vec::new(),
            wakers: Wakers::default(),
            held: Slots::default(),
            sending: Slots::default(),
            turn: 0,
            requests: 0,
        };
        let (is_unflushed, has_ended, fault) = (false, false, None);
        Self { stream, gathered: Vec::new(), exchanges, is_unflushed, has_ended, fault, heard: Heard::Yes, clock }
    }

    pub fn service(&self) -> &S {
        &self.exchanges.service
    }

    pub fn into_stream(self) -> T {
        self.stream
    }

    /// The number of requests that have begun.
    pub fn requests(&self) -> u64 {
        self.exchanges.requests
    }

    /// The number of streams: requests or responses that are not complete.
    pub fn streams(&self) -> usize {
        self.exchanges.http.streams()
    }

    /// Ends the connection after the requests in progress, and those that the client sends before it knows.
    pub fn close(&mut self) {
        let Exchanges { http, output, .. } = &mut self.exchanges;
        http.shut_down(output.framing());
    }

    /// Pings the client if it has sent nothing since the last call. Returns `false` if it has not answered a ping. A client
    /// that has ended its direction cannot.
    pub fn look(&mut self) -> bool {
        match self.heard {
            _ if self.has_ended => {}
            Heard::Yes => self.heard = Heard::No,
            Heard::No => {
                let Exchanges { http, output, .. } = &mut self.exchanges;
                http.ping(output.framing());
                self.heard = Heard::Pinged;
            }
            Heard::Pinged => return false,
        }
        true
    }

    /// Continues as far as possible. Ready when the connection has ended.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Http2End> {
        self.exchanges.wakers.begin(cx);
        let polled = self.poll_parts(cx);
        if self.exchanges.wakers.end() && polled.is_pending() {
            cx.waker().wake_by_ref();
        }
        polled
    }

    fn poll_parts(&mut self, cx: &mut Context<'_>) -> Poll<Http2End> {
        if self.stream.is_close_due() {
            self.close();
        }
        // What has nothing is polled again only when it wakes the task.
        let mut awaits_input = false;
        for _ in 0..ROUNDS_MAX {
            let mut is_waiting = true;
            if !awaits_input && self.is_reading() {
                match self.poll_read(cx) {
                    Poll::Ready(Ok(())) => is_waiting = false,
                    Poll::Ready(Err(error)) => return Poll::Ready(Http2End::Stream(error)),
                    Poll::Pending => awaits_input = true,
                }
            }
            self.exchanges.poll();
            match self.poll_write(cx) {
                Poll::Ready(Ok(true)) => is_waiting = false,
                Poll::Ready(Err(error)) => return Poll::Ready(Http2End::Stream(error)),
                Poll::Ready(Ok(false)) | Poll::Pending => {}
            }
            if is_waiting && !self.exchanges.wakers.are_woken() {
                return self.poll_end();
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn is_reading(&self) -> bool {
        !self.has_ended && self.fault.is_none() && self.exchanges.output.len() < UNTAKEN_LEN_MAX
    }

    /// Ready if nothing is left to do.
    fn poll_end(&self) -> Poll<Http2End> {
        let exchanges = &self.exchanges;
        if !exchanges.output.is_empty() || self.is_unflushed {
            return Poll::Pending;
        }
        if let Some(fault) = self.fault {
            return Poll::Ready(Http2End::Fault(fault));
        }
        let is_last = self.has_ended || exchanges.http.is_over();
        if is_last && exchanges.slots.is_empty() { Poll::Ready(Http2End::Complete) } else { Poll::Pending }
    }

    /// Takes the frames that have come.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let read = match ready!(Pin::new(&mut self.stream).poll_fill_buf(cx)) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => &[],
            Err(error) => return Poll::Ready(Err(error)),
        };
        if read.is_empty() {
            self.has_ended = true;
            self.exchanges.end_of_input();
            return Poll::Ready(Ok(()));
        }
        self.heard = Heard::Yes;
        let read_len = read.len();
        let taken = if self.gathered.is_empty() {
            let taken = self.exchanges.receive(read, self.clock);
            taken.map(|taken| self.gathered.extend_from_slice(&read[taken..]))
        } else {
            self.gathered.extend_from_slice(read);
            let taken = self.exchanges.receive(&self.gathered, self.clock);
            taken.map(|taken| drop(self.gathered.drain(..taken)))
        };
        if self.gathered.is_empty() {
            // An idle connection holds no buffer.
            self.gathered = Vec::new();
        }
        Pin::new(&mut self.stream).consume(read_len);
        if let Err(fault) = taken {
            self.fault = Some(fault);
            self.exchanges.slots.clear();
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what there is to write, and flushes when nothing follows at once. Returns whether there was anything.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let output = &mut self.exchanges.output;
        if !output.is_empty() {
            let (slices, count) = output.slices();
            let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..count]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            output.advance(written);
            self.is_unflushed = true;
            return Poll::Ready(Ok(true));
        }
        if !self.is_unflushed {
            return Poll::Ready(Ok(false));
        }
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.is_unflushed = false;
        Poll::Ready(Ok(true))
    }
}

impl<S: Service> Exchanges<S> {
    /// Takes the frames at the start of `input`. Returns how many bytes that is.
    fn receive(&mut self, input: &[u8], clock: fn() -> Instant) -> Result<usize, Fault> {
        let mut taken = 0;
        loop {
            let received = self.http.receive(&input[taken..], clock, self.output.framing())?;
            if let Some(event) = received.event {
                self.take(event, &input[taken..]);
            }
            if received.taken == 0 {
                return Ok(taken);
            }
            taken += received.taken;
        }
    }

    fn take(&mut self, event: Event, input: &[u8]) {
        match event {
            Event::Request { stream, head, content_len, ends } => self.begin(stream, *head, content_len, ends),
            Event::TooLong { stream } => {
                let Some(slot) = self.free_slot(stream) else { return };
                self.requests += 1;
                let refused = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
                let response = self.service.refuse(refused, &"the request has too long fields");
                let Self { service, http, output, .. } = self;
                let exchange = Exchange::refused(stream, response, &mut Sending { http, output, service });
                self.insert(slot, exchange);
            }
            Event::Data { stream, data, ends } => {
                let Some(slot) = self.slot(stream) else { return };
                self.poll_slot(slot, |exchange, sending, cx| exchange.receive(&input[data], ends, sending, cx));
            }
            Event::Trailers { stream, fields } => {
                let Some(slot) = self.slot(stream) else { return };
                self.poll_slot(slot, |exchange, sending, cx| exchange.complete(fields, sending, cx));
            }
            Event::Reset { stream } => {
                if let Some(slot) = self.slot(stream) {
                    self.remove(slot);
                }
            }
            Event::Window { stream: Some(stream) } => {
                self.slot(stream).into_iter().for_each(|slot| self.sending.insert(slot));
            }
            Event::Window { stream: None } => self.sending = Slots::ALL,
        }
    }

    fn begin(&mut self, stream: StreamId, head: RequestHead, content_len: Option<u64>, ends: bool) {
        let Some(slot) = self.free_slot(stream) else { return };
        self.requests += 1;
        let expects_continue =
            head.headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let (content, source) = if ends {
            (Content::empty(), None)
        } else {
            let (content, source) = Content::new(content_len);
            (content, Some((source, expects_continue)))
        };
        let mut interim = Interim::default();
        let answering = self.service.answer(Request::from_parts(head, content), &mut interim);
        self.insert(slot, Exchange::answering(stream, source, answering, interim));
    }

    /// A slot for the exchange on this stream. If there is none, services still read requests whose responses are
    /// complete, and the stream is refused.
    fn free_slot(&mut self, stream: StreamId) -> Option<usize> {
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if free == SLOTS {
            self.http.reset(stream, Code::RefusedStream, self.output.framing());
            return None;
        }
        Some(free)
    }

    fn insert(&mut self, slot: usize, exchange: Exchange<S>) {
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot] = Some(Box::new(exchange));
        self.wakers.wake(slot);
    }

    fn remove(&mut self, slot: usize) {
        self.slots[slot] = None;
        self.held.remove(slot);
        self.sending.remove(slot);
        while self.slots.last().is_some_and(Option::is_none) {
            self.slots.pop();
        }
    }

    fn slot(&self, stream: StreamId) -> Option<usize> {
        self.slots.iter().position(|slot| slot.as_ref().is_some_and(|exchange| exchange.stream() == stream))
    }

    fn end_of_input(&mut self) {
        for (slot, exchange) in self.slots.iter_mut().enumerate() {
            if let Some(exchange) = exchange {
                exchange.end_of_input();
                self.wakers.wake(slot);
            }
        }
    }

    /// Polls the exchanges that were woken, and frames content in turn while there is room.
    fn poll(&mut self) {
        let mut woken = self.wakers.take();
        if self.output.has_room() {
            woken = woken.union(std::mem::take(&mut self.held));
        }
        for slot in woken.iter() {
            if self.poll_slot(slot, Exchange::poll) == Some(true) {
                self.held.insert(slot);
            }
            self.sending.insert(slot);
        }
        while self.output.has_room()
            && let Some(slot) = self.sending.next_from(self.turn)
        {
            if self.poll_slot(slot, Exchange::send) != Some(true) {
                self.sending.remove(slot);
            }
            self.turn = (slot + 1) % SLOTS;
        }
    }

    fn poll_slot<R>(
        &mut self,
        slot: usize,
        poll: impl FnOnce(&mut Exchange<S>, &mut Sending<'_, S>, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let Self { service, http, output, slots, wakers, .. } = self;
        let exchange = slots.get_mut(slot)?.as_mut()?;
        let result =
            poll(exchange, &mut Sending { http, output, service }, &mut Context::from_waker(wakers.waker(slot)));
        if exchange.is_over() {
            self.remove(slot);
        }
        Some(result)
    }
}
