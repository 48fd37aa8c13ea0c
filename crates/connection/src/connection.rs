//! One connection: requests come in, responses go out.

use std::fmt::Display;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use tokio::io::{AsyncBufRead, AsyncWrite};
use watari_http1::{ContentSize, Misuse, Next, Refused, Server};

use crate::content::{Content, Incomplete, Source};
use crate::interim::Interim;
use crate::outgoing::Outgoing;
use crate::resume::Resume;

/// The most content of a request that is read without use after its response, in bytes, if it has already come.
const UNWANTED_LEN_MAX: usize = 64 * 1024;

/// The longest last response that is not flushed, in bytes: it is written together with the end of the stream.
const UNFLUSHED_LEN_MAX: usize = 16 * 1024;

/// A rest of a response of at most this many bytes moves as bytes. A longer one has to be provided by the other site.
pub const REST_LEN_MAX: u64 = 256 * 1024;

/// A stream of plaintext to and from a client.
pub trait Plaintext: AsyncBufRead + AsyncWrite + Unpin {
    /// Whether the stream has to close soon, because its key is nearly used up.
    fn is_close_due(&self) -> bool;
}

/// Makes responses.
pub trait Service {
    /// The body of responses. An error cuts the response.
    type Body: Body<Data = Bytes, Error: Display> + Unpin;
    type Answering: Future<Output = Response<Self::Body>> + Unpin;

    /// Answers a request. An HTTP/1 connection has one at a time. Informational responses may precede the answer.
    fn answer(&mut self, request: Request<Content>, interim: &mut Interim) -> Self::Answering;

    /// The response to a request that the connection refuses.
    fn refuse(&mut self, status: StatusCode, cause: &dyn Display) -> Response<Self::Body>;

    /// The value of the `Date` field for a response without one (RFC 9110, section 6.6.1).
    fn date(&self) -> HeaderValue;
}

/// How a connection ended.
#[derive(Debug)]
pub enum End {
    /// All responses that were begun are complete. The stream may still have to be flushed.
    Complete,
    /// The connection follows another protocol after this response (101). All is flushed.
    Tunnel,
    /// A response was cut short, or may have been.
    Cut(Broken),
}

/// How fast a response's body is read. It holds for the request in progress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pace {
    /// As the client takes it.
    #[default]
    Client,
    /// A rest of at most [`REST_LEN_MAX`] bytes is read at once, so that the connection can depart although its client
    /// takes nothing.
    Ahead,
    /// Not at all: the position of the response stays.
    Held,
}

/// What the connection needs to continue elsewhere, if it is taken apart now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Departure {
    /// Its parts: it is idle, or the rest of its response has been read.
    Parts,
    /// Its parts, and this rest of its response.
    Rest(Resume),
    /// Its parts, and the body of its response from its position on: a stream of events, which no other site can
    /// provide, and which may never end.
    Events,
    /// It cannot continue elsewhere before the response has ended: the response has not begun, or it is of unknown
    /// length, or another site cannot provide its rest.
    Response,
    /// It cannot continue elsewhere before the request has ended: its content is still coming.
    Request,
}

/// Why a response was cut short.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    #[error("the stream failed: {0}")]
    Stream(#[from] io::Error),
    #[error("the source of the response failed: {0}")]
    Source(String),
    #[error("the response cannot be framed: {0}")]
    Framing(#[from] Misuse),
}

/// An HTTP/1 connection.
pub struct Connection<T, S: Service> {
    stream: T,
    service: S,
    http: Server,
    phase: Phase<S>,
    /// Plaintext taken from the stream: a part of a head, or of a trailer section.
    gathered: Vec<u8>,
    /// The content of the current request, until it is complete.
    source: Option<Source>,
    /// The client waits for 100 (Continue).
    expects_continue: bool,
    /// Informational responses to the request that has no response yet.
    interim: Interim,
    outgoing: Outgoing,
    /// Bytes written since the last flush.
    unflushed: usize,
    /// The client has ended its direction.
    has_ended: bool,
    awaited: Awaited,
    /// No request follows the one in progress.
    is_closing: bool,
    pace: Pace,
    /// The number of requests so far.
    requests: u64,
    /// Method and head of the request that has no response yet.
    request: Option<(Method, Bytes)>,
}

/// What was polled in this call of [`Connection::poll`] and had nothing. It wakes the task when it has.
#[derive(Default)]
struct Awaited {
    /// Bytes of the client.
    stream: bool,
    /// The service, which has no response yet.
    service: bool,
}

enum Phase<S: Service> {
    Idle,
    Answering(S::Answering),
    Responding(Responding<S::Body>),
    /// The response is written, and not all of it is flushed.
    Ending,
}

/// A response of which a part is written.
pub struct Responding<B> {
    pub body: B,
    /// Bytes of the body that are framed, or were skipped.
    pub position: u64,
    /// Data of the body that follows `position`.
    pub pending: Bytes,
    /// Bytes of the body from `position` on that are skipped, because the client has them already.
    pub skip: u64,
    /// What the whole response needs to continue elsewhere, with its first byte at position 0. `None`: it cannot, or is
    /// too short for that.
    pub resume: Option<Resume>,
    /// It is a stream of events (`text/event-stream`), of unknown length.
    pub is_events: bool,
}

/// The parts of a [`Connection`].
pub struct Parts<T, S: Service> {
    pub stream: T,
    pub service: S,
    pub http: Server,
    /// Plaintext that was taken from the stream: the beginning of a head.
    pub opened: Vec<u8>,
    /// Framed bytes of the response that the stream has not taken: at most one piece of a body.
    pub unwritten: Vec<u8>,
    /// The rest of the response in progress.
    pub responding: Option<Responding<S::Body>>,
}

/// A piece of a response's body.
enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
}

/// Whether a part of the connection could do something.
type Progress = Poll<Result<(), Stop>>;

enum Stop {
    End(End),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::End(End::Cut(error.into()))
    }
}

impl From<Broken> for Stop {
    fn from(broken: Broken) -> Self {
        Self::End(End::Cut(broken))
    }
}

impl From<Misuse> for Stop {
    fn from(misuse: Misuse) -> Self {
        Self::End(End::Cut(misuse.into()))
    }
}

impl<B: Body<Data = Bytes, Error: Display> + Unpin> Responding<B> {
    /// The next piece of the body, without the bytes to skip. `None`: the body has ended.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, Broken>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Err(Broken::Source(error.to_string()))),
                None => return Poll::Ready(Ok(None)),
            };
            let mut data = match frame.into_data() {
                Ok(data) => data,
                Err(frame) => return Poll::Ready(Ok(frame.into_trailers().ok().map(Piece::Trailers))),
            };
            let skipped = self.skip.min(data.len() as u64);
            data.advance(usize::try_from(skipped).unwrap_or(data.len()));
            self.skip -= skipped;
            self.position += skipped;
            if skipped == 0 || !data.is_empty() {
                return Poll::Ready(Ok(Some(Piece::Data(data))));
            }
        }
    }
}

impl<T: Plaintext, S: Service> Connection<T, S> {
    /// A connection between requests. `http` is new, or was imported.
    pub fn new(stream: T, http: Server, service: S) -> Self {
        Self::with_phase(stream, http, service, Phase::Idle)
    }

    /// Continues from [`Connection::into_parts`], here or elsewhere, when [`Connection::departure`] permitted it.
    pub fn resume(parts: Parts<T, S>) -> Self {
        let Parts { stream, service, http, opened, unwritten, responding } = parts;
        let phase = match responding {
            Some(responding) => Phase::Responding(responding),
            None if http.is_answering() => Phase::Ending,
            None => Phase::Idle,
        };
        let is_closing = http.is_closing();
        let outgoing = Outgoing::of(unwritten);
        // The stream may have bytes that were not flushed when the connection was taken apart.
        let unflushed = 1;
        Self { gathered: opened, is_closing, outgoing, unflushed, ..Self::with_phase(stream, http, service, phase) }
    }

    fn with_phase(stream: T, http: Server, service: S, phase: Phase<S>) -> Self {
        Self {
            stream,
            service,
            http,
            phase,
            gathered: Vec::new(),
            source: None,
            expects_continue: false,
            interim: Interim::default(),
            outgoing: Outgoing::default(),
            unflushed: 0,
            has_ended: false,
            awaited: Awaited::default(),
            is_closing: false,
            pace: Pace::default(),
            requests: 0,
            request: None,
        }
    }

    /// Takes the connection apart. Loses a request whose response has not begun, or whose content is still coming.
    pub fn into_parts(self) -> Parts<T, S> {
        let responding = match self.phase {
            Phase::Responding(responding) => Some(responding),
            Phase::Idle | Phase::Answering(_) | Phase::Ending => None,
        };
        Parts {
            stream: self.stream,
            service: self.service,
            http: self.http,
            opened: self.gathered,
            unwritten: self.outgoing.into_bytes(),
            responding,
        }
    }

    /// What the connection needs to continue elsewhere, if it is taken apart now.
    pub fn departure(&self) -> Departure {
        let is_request_complete = self.source.is_none() && !self.http.awaits_content();
        match &self.phase {
            Phase::Idle => Departure::Parts,
            _ if !is_request_complete => Departure::Request,
            Phase::Ending if !self.http.is_tunnel() => Departure::Parts,
            Phase::Responding(responding) => {
                let left = self.http.content_left();
                let rest = || responding.resume.as_ref()?.rest(responding.position);
                match (left, left.filter(|left| *left > REST_LEN_MAX).and_then(|_| rest())) {
                    (Some(left), _) if left == responding.pending.len() as u64 => Departure::Parts,
                    // What was skipped so far is not what a rest begins with.
                    (Some(_), Some(rest)) if responding.skip == 0 => Departure::Rest(rest),
                    (None, _) if responding.is_events => Departure::Events,
                    _ => Departure::Response,
                }
            }
            Phase::Answering(_) | Phase::Ending => Departure::Response,
        }
    }

    pub fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    pub fn service(&self) -> &S {
        &self.service
    }

    pub fn stream(&self) -> &T {
        &self.stream
    }

    pub fn stream_mut(&mut self) -> &mut T {
        &mut self.stream
    }

    /// Whether no request is in progress and all is flushed. A part of a head may have come.
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Whether all that was framed is written and flushed.
    pub fn is_flushed(&self) -> bool {
        self.outgoing.is_empty() && self.unflushed == 0
    }

    /// The number of requests that have begun.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Ends the connection after the response in progress, or at once if it is between two requests.
    pub fn close(&mut self) {
        self.is_closing = true;
        self.http.close_after_response();
    }

    /// The response in progress, once its head is written.
    pub fn responding(&self) -> Option<&Responding<S::Body>> {
        match &self.phase {
            Phase::Responding(responding) => Some(responding),
            _ => None,
        }
    }

    /// Continues as far as possible. Ready when the connection has ended.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.awaited = Awaited::default();
        loop {
            let mut is_waiting = true;
            for part in [Self::poll_read, Self::poll_answer, Self::poll_rest, Self::poll_body, Self::poll_write] {
                match part(self, cx) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(())) => is_waiting = false,
                    Poll::Ready(Err(Stop::End(end))) => return Poll::Ready(end),
                }
            }
            if is_waiting {
                return Poll::Pending;
            }
        }
    }
}

/// Reading.
impl<T: Plaintext, S: Service> Connection<T, S> {
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Progress {
        if matches!(self.phase, Phase::Idle) {
            return self.poll_head(cx);
        }
        match &self.source {
            Some(source) if source.is_dropped() => {
                self.source = None;
                Poll::Ready(Ok(()))
            }
            Some(source) if source.is_wanted(cx) => self.poll_content(cx),
            _ => self.poll_watch(cx),
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Progress {
        if self.is_closing || self.has_ended {
            return Poll::Ready(Err(Stop::End(End::Complete)));
        }
        if self.awaited.stream {
            return Poll::Pending;
        }
        let read = match ready!(Pin::new(&mut self.stream).poll_fill_buf(cx)) {
            Ok([]) => None,
            Ok(read) => Some(read),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => return Poll::Ready(Err(error.into())),
        };
        let Some(read) = read else {
            // No response is due, so nothing is cut off by the end.
            return Poll::Ready(Err(Stop::End(End::Complete)));
        };
        let (read_len, before) = (read.len(), self.gathered.len());
        let input = if before == 0 {
            read
        } else {
            self.gathered.extend_from_slice(read);
            &self.gathered
        };
        match self.http.parse_request(input) {
            Ok(Some(request)) => {
                self.gathered = Vec::new();
                Pin::new(&mut self.stream).consume(request.consumed - before);
                self.begin(request);
            }
            Ok(None) => {
                if before == 0 {
                    self.gathered.extend_from_slice(read);
                }
                Pin::new(&mut self.stream).consume(read_len);
            }
            Err(refused) => {
                self.gathered = Vec::new();
                Pin::new(&mut self.stream).consume(refused.consumed.saturating_sub(before));
                return Poll::Ready(self.refuse(&refused));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn begin(&mut self, request: watari_http1::Request) {
        self.requests += 1;
        self.expects_continue = request.expects_continue;
        self.request = Some((request.head.method.clone(), request.raw));
        let content = match request.content {
            // No byte follows that could complete it.
            watari_http1::Content::None | watari_http1::Content::Length(0) => Content::empty(),
            watari_http1::Content::Length(len) => self.content(Some(len)),
            _ => self.content(None),
        };
        self.phase =
            Phase::Answering(self.service.answer(Request::from_parts(request.head, content), &mut self.interim));
    }

    fn content(&mut self, len: Option<u64>) -> Content {
        let (content, source) = Content::new(len);
        self.source = Some(source);
        content
    }

    /// Decodes the next piece of the request's content.
    fn poll_content(&mut self, cx: &mut Context<'_>) -> Progress {
        if self.expects_continue && matches!(self.phase, Phase::Answering(_)) {
            self.expects_continue = false;
            self.http.send_continue(self.outgoing.before());
            return Poll::Ready(Ok(()));
        }
        let read = match ready!(Pin::new(&mut self.stream).poll_fill_buf(cx)) {
            Ok([]) => None,
            Ok(read) => Some(read),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => return Poll::Ready(Err(error.into())),
        };
        let Some(source) = self.source.take() else { return Poll::Pending };
        // The service gets a piece, or the end.
        self.awaited.service = false;
        let Some(read) = read else {
            self.has_ended = true;
            source.fail(Incomplete::Ended);
            // The content is incomplete, so this is an error that the service gets.
            let _ = self.http.end_of_input(&[]);
            return Poll::Ready(Ok(()));
        };
        let (read_len, before) = (read.len(), self.gathered.len());
        let input = if before == 0 {
            read
        } else {
            self.gathered.extend_from_slice(read);
            &self.gathered
        };
        let decoded = match self.http.decode(input) {
            Ok(decoded) => decoded,
            Err(fault) => {
                source.fail(Incomplete::Malformed(fault));
                return Poll::Ready(Ok(()));
            }
        };
        if !decoded.data.is_empty() {
            source.provide(Bytes::copy_from_slice(&input[decoded.data.clone()]));
        }
        if decoded.is_end || !decoded.data.is_empty() {
            self.gathered = Vec::new();
            Pin::new(&mut self.stream).consume(decoded.consumed - before);
        } else {
            // A part of a trailer section.
            self.gathered = input[decoded.consumed..].to_vec();
            Pin::new(&mut self.stream).consume(read_len);
        }
        if decoded.is_end {
            source.complete(decoded.trailers.map(|trailers| *trailers));
        } else {
            self.source = Some(source);
        }
        Poll::Ready(Ok(()))
    }

    /// Notices that the client goes away while it gets its response. Bytes of later requests stay in the stream.
    fn poll_watch(&mut self, cx: &mut Context<'_>) -> Progress {
        if self.has_ended || self.awaited.stream {
            return Poll::Pending;
        }
        let Poll::Ready(read) = Pin::new(&mut self.stream).poll_fill_buf(cx) else {
            self.awaited.stream = true;
            return Poll::Pending;
        };
        match read {
            Ok([]) => {}
            Ok(_) => return Poll::Pending,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Poll::Ready(Err(error.into())),
        }
        self.has_ended = true;
        if let Some(source) = self.source.take() {
            source.fail(Incomplete::Ended);
            let _ = self.http.end_of_input(&[]);
        }
        Poll::Pending
    }
}

/// Answering and writing.
impl<T: Plaintext, S: Service> Connection<T, S> {
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Progress {
        let Phase::Answering(answering) = &mut self.phase else { return Poll::Pending };
        // 100 (Continue) has to precede the response.
        if self.awaited.service || !self.outgoing.takes_data() {
            return Poll::Pending;
        }
        let response = Pin::new(answering).poll(cx);
        if response.is_ready() {
            self.discard_content(cx);
        }
        let interim = self.interim.take(cx);
        for (status, fields) in &interim {
            self.http.informational(*status, fields, self.outgoing.before())?;
        }
        match response {
            Poll::Ready(response) => Poll::Ready(self.respond(response)),
            Poll::Pending if interim.is_empty() => {
                self.awaited.service = true;
                Poll::Pending
            }
            Poll::Pending => Poll::Ready(Ok(())),
        }
    }

    fn refuse(&mut self, refused: &Refused) -> Result<(), Stop> {
        self.requests += 1;
        self.request = None;
        let response = self.service.refuse(refused.fault.status(), &refused.fault);
        self.respond(response)
    }

    fn respond(&mut self, response: Response<S::Body>) -> Result<(), Stop> {
        self.interim = Interim::default();
        let (head, body) = response.into_parts();
        if self.is_closing || self.stream.is_close_due() {
            self.close();
        }
        let size = match body.size_hint().exact() {
            _ if body.is_end_stream() => ContentSize::None,
            Some(len) => ContentSize::Known(len),
            None => ContentSize::Unknown,
        };
        let date = self.service.date();
        let content = self.http.start_response(&head, size, &date, self.outgoing.before())?;
        let request = self.request.take();
        let resume = match (content, request) {
            (watari_http1::Content::Length(len), Some((method, raw))) if len > REST_LEN_MAX => {
                Resume::of(&method, &raw, &head, len)
            }
            _ => None,
        };
        self.phase = if content.is_empty() {
            Phase::Ending
        } else {
            let is_events = size == ContentSize::Unknown && is_event_stream(&head.headers);
            Phase::Responding(Responding { body, position: 0, pending: Bytes::new(), skip: 0, resume, is_events })
        };
        Ok(())
    }

    /// Reads a short rest of the body to its end, ahead of what the client takes.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Progress {
        let (Pace::Ahead, Phase::Responding(responding)) = (self.pace, &mut self.phase) else { return Poll::Pending };
        let Some(left) = self.http.content_left().filter(|left| *left <= REST_LEN_MAX) else { return Poll::Pending };
        if responding.pending.len() as u64 >= left || responding.body.is_end_stream() {
            return Poll::Pending;
        }
        let piece = ready!(responding.poll_piece(cx))?;
        let Some(Piece::Data(data)) = piece else { return Poll::Ready(Err(Misuse::TooShort.into())) };
        responding.pending = Bytes::from([responding.pending.as_ref(), &data].concat());
        Poll::Ready(Ok(()))
    }

    /// Takes the next piece of the body, if there is room for it.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Progress {
        let Phase::Responding(responding) = &mut self.phase else { return Poll::Pending };
        if !self.outgoing.takes_data() || self.pace == Pace::Held {
            return Poll::Pending;
        }
        if responding.pending.is_empty() {
            if responding.body.is_end_stream() {
                return Poll::Ready(self.end_body(None));
            }
            match ready!(responding.poll_piece(cx))? {
                Some(Piece::Data(data)) => responding.pending = data,
                Some(Piece::Trailers(trailers)) => return Poll::Ready(self.end_body(Some(&trailers))),
                None => return Poll::Ready(self.end_body(None)),
            }
        }
        let data = std::mem::take(&mut responding.pending);
        responding.position += data.len() as u64;
        if data.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let framed = self.http.encode(data.len())?;
        let before = self.outgoing.before();
        before.extend_from_slice(framed.prefix());
        self.outgoing.set_data(data, framed.suffix);
        Poll::Ready(Ok(()))
    }

    fn end_body(&mut self, trailers: Option<&HeaderMap>) -> Result<(), Stop> {
        self.http.finish(trailers, self.outgoing.before())?;
        self.phase = Phase::Ending;
        Ok(())
    }

    /// Writes what there is to write, and flushes when nothing follows at once.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Progress {
        if !self.outgoing.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, &self.outgoing.slices()))?;
            if written == 0 {
                return Poll::Ready(Err(io::Error::from(io::ErrorKind::WriteZero).into()));
            }
            self.unflushed += written;
            self.outgoing.advance(written);
            return Poll::Ready(Ok(()));
        }
        let is_last = matches!(self.phase, Phase::Ending) && self.ends_after_response();
        // The end of the stream follows, and goes together with a short last response.
        if self.unflushed > 0 && !(is_last && self.unflushed <= UNFLUSHED_LEN_MAX) {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = 0;
        }
        match &self.phase {
            Phase::Ending => self.poll_end_request(cx),
            _ => Poll::Pending,
        }
    }

    fn ends_after_response(&self) -> bool {
        self.source.is_none() && !self.http.awaits_content() && self.http.ends_after_response()
    }

    /// If the service does not read the request's content, it is read here, if all of it has come and is short. If not,
    /// the connection closes after the response, which announces that if it has not started (RFC 9112, section 9.6).
    fn discard_content(&mut self, cx: &mut Context<'_>) {
        if self.source.as_ref().is_some_and(Source::is_dropped) {
            self.source = None;
        }
        let mut left = UNWANTED_LEN_MAX;
        while self.source.is_none() && self.http.awaits_content() {
            let read = match Pin::new(&mut self.stream).poll_fill_buf(cx) {
                // A part of a trailer section was gathered: the rest has not come.
                Poll::Ready(Ok(read @ [_, ..])) if self.gathered.is_empty() => read,
                _ => &[],
            };
            let decoded = self.http.decode(read).ok().filter(|decoded| (1..=left).contains(&decoded.consumed));
            let Some(decoded) = decoded else {
                self.http.abandon_content();
                break;
            };
            left -= decoded.consumed;
            Pin::new(&mut self.stream).consume(decoded.consumed);
        }
    }

    /// The response is complete and flushed. The service may still read the request.
    fn poll_end_request(&mut self, cx: &mut Context<'_>) -> Progress {
        self.discard_content(cx);
        if self.source.is_some() {
            return Poll::Pending;
        }
        self.pace = Pace::Client;
        self.phase = Phase::Idle;
        Poll::Ready(match self.http.next_exchange() {
            Some(Next::Tunnel) => Err(Stop::End(End::Tunnel)),
            Some(Next::Idle) => Ok(()),
            Some(Next::Close) | None => Err(Stop::End(End::Complete)),
        })
    }
}

/// Whether the media type is that of server-sent events (HTML, section 9.2).
fn is_event_stream(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = value.and_then(|value| value.split(';').next());
    media_type.is_some_and(|media_type| media_type.trim().eq_ignore_ascii_case("text/event-stream"))
}
