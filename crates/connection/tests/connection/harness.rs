//! A client's pipe, and a site that answers by path.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Display;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use watari_connection::{Connection, Content, End, Interim, InterimSender, Plaintext, Service};
use watari_http1::{Limits, Server};

/// The client's end of a connection. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Pipe(Rc<RefCell<Ends>>);

#[derive(Default)]
struct Ends {
    /// Records that the client has sent: a read gets one at a time.
    records: VecDeque<Vec<u8>>,
    end: Option<io::ErrorKind>,
    has_ended: bool,
    /// Bytes that the client still takes. `None`: all.
    room: Option<usize>,
    written: Vec<u8>,
    writes: usize,
    flushes: usize,
    holds_flushes: bool,
}

impl Pipe {
    pub(crate) fn send(&self, record: impl AsRef<[u8]>) {
        self.0.borrow_mut().records.push_back(record.as_ref().to_vec());
    }

    /// `close_notify`.
    pub(crate) fn end(&self) {
        self.0.borrow_mut().has_ended = true;
    }

    /// Reading fails after the records.
    pub(crate) fn fail(&self, kind: io::ErrorKind) {
        self.0.borrow_mut().end = Some(kind);
    }

    pub(crate) fn give_room(&self, len: usize) {
        self.0.borrow_mut().room = Some(len);
    }

    /// The client takes `len` bytes more.
    pub(crate) fn give_more_room(&self, len: usize) {
        let room = &mut self.0.borrow_mut().room;
        *room = room.map(|room| room + len);
    }

    pub(crate) fn take_all(&self) {
        self.0.borrow_mut().room = None;
    }

    /// What the connection has written since the last call, without the values of `date`.
    pub(crate) fn written(&self) -> String {
        let written = std::mem::take(&mut self.0.borrow_mut().written);
        String::from_utf8_lossy(&written).replace(&format!("date: {DATE}\r\n"), "")
    }

    /// Whether flushes wait for a client that takes nothing.
    pub(crate) fn hold_flushes(&self, holds_flushes: bool) {
        self.0.borrow_mut().holds_flushes = holds_flushes;
    }

    /// Writes of which the client took at least one byte.
    pub(crate) fn writes(&self) -> usize {
        self.0.borrow().writes
    }

    pub(crate) fn flushes(&self) -> usize {
        self.0.borrow().flushes
    }

    /// Bytes of the client that no part of the connection has taken.
    pub(crate) fn unread(&self) -> Vec<u8> {
        self.0.borrow().records.iter().flatten().copied().collect()
    }
}

/// The connection's end.
pub(crate) struct Stream {
    pipe: Pipe,
    current: Vec<u8>,
}

impl Stream {
    pub(crate) fn unread(&self) -> Vec<u8> {
        [self.current.clone(), self.pipe.unread()].concat()
    }
}

impl Plaintext for Stream {
    fn is_close_due(&self) -> bool {
        false
    }
}

impl AsyncBufRead for Stream {
    fn poll_fill_buf(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        if this.current.is_empty() {
            let mut ends = this.pipe.0.borrow_mut();
            match ends.records.pop_front() {
                Some(record) => this.current = record,
                None if ends.has_ended => {}
                None => match ends.end {
                    Some(kind) => return Poll::Ready(Err(kind.into())),
                    None => return Poll::Pending,
                },
            }
        }
        Poll::Ready(Ok(&this.current))
    }

    fn consume(self: Pin<&mut Self>, len: usize) {
        self.get_mut().current.drain(..len);
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        unreachable!("a connection reads the buffer")
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut ends = self.pipe.0.borrow_mut();
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
        let len = bytes.len().min(ends.room.unwrap_or(usize::MAX));
        if len == 0 {
            return Poll::Pending;
        }
        ends.room = ends.room.map(|room| room - len);
        ends.written.extend_from_slice(&bytes[..len]);
        ends.writes += 1;
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut ends = self.pipe.0.borrow_mut();
        if ends.holds_flushes {
            return Poll::Pending;
        }
        ends.flushes += 1;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

pub(crate) const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// A body of these pieces. `Err` cuts it. It waits before each piece while `gate` is closed.
pub(crate) struct Pieces {
    left: VecDeque<Result<Bytes, &'static str>>,
    is_sized: bool,
    gate: Rc<RefCell<bool>>,
}

impl Pieces {
    pub(crate) fn new<const N: usize>(pieces: [&'static str; N]) -> Self {
        let pieces = pieces.into_iter().map(|piece| Ok(Bytes::from_static(piece.as_bytes()))).collect();
        Self { left: pieces, is_sized: true, gate: Rc::new(RefCell::new(true)) }
    }

    /// The body from offset `first` on, in other pieces.
    pub(crate) fn starting_at(self, first: u64) -> Self {
        let all: Vec<u8> = self.left.into_iter().flat_map(|piece| piece.unwrap()).collect();
        let left = all[first as usize..].chunks(700).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        Self { left, ..Self::new([]) }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        if !*self.gate.borrow() {
            return Poll::Pending;
        }
        Poll::Ready(self.get_mut().left.pop_front().map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let len = |piece: &Result<Bytes, _>| piece.as_ref().map_or(5, Bytes::len) as u64;
        if self.is_sized { SizeHint::with_exact(self.left.iter().map(len).sum()) } else { SizeHint::new() }
    }
}

/// A site.
///
/// | path | response |
/// | --- | --- |
/// | `/` | `hello` |
/// | `/long` | [`long`] in pieces of 7 bytes |
/// | `/big` | [`big`] in pieces of 1000 bytes, with a strong validator |
/// | `/chunked` | `one`, `two` without a length |
/// | `/events` | the same, as a stream of events |
/// | `/known-events` | a stream of events with a length |
/// | `/cut` | 5 of 10 bytes |
/// | `/wait` | `hello`, while the gate is open |
/// | `/echo` | the content of the request |
/// | `/hints` | `hello`, when the gate is open. Informational responses may precede it |
/// | `/early` | `early`, without reading the request |
/// | `/tunnel` | 101 |
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) gate: Rc<RefCell<bool>>,
    pub(crate) paths: Rc<RefCell<Vec<String>>>,
    /// Sends informational responses to the last request of `/hints`.
    pub(crate) hints: Rc<RefCell<Option<InterimSender>>>,
}

impl Default for Site {
    fn default() -> Self {
        Self { gate: Rc::new(RefCell::new(true)), paths: Rc::default(), hints: Rc::default() }
    }
}

/// The body of `/long`.
pub(crate) fn long() -> String {
    (0..1000_u32).flat_map(|number| [number.to_string(), ".".to_owned()]).collect()
}

/// The body of `/big`. It can continue elsewhere for as long as more than 256 KiB of it are left.
pub(crate) fn big() -> String {
    (0..60_000_u32).flat_map(|number| [number.to_string(), ".".to_owned()]).collect()
}

fn pieces(body: &str, len: usize) -> VecDeque<Result<Bytes, &'static str>> {
    body.as_bytes().chunks(len).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect()
}

impl Site {
    pub(crate) fn body(&self, path: &str) -> Pieces {
        let gate = self.gate.clone();
        match path {
            "/long" => Pieces { left: pieces(&long(), 7), is_sized: true, gate },
            "/big" => Pieces { left: pieces(&big(), 1000), is_sized: true, gate },
            "/chunked" | "/events" => Pieces { is_sized: false, ..Pieces::new(["one", "two"]) },
            "/cut" => Pieces { left: [Ok(Bytes::from_static(b"five!")), Err("cut")].into(), is_sized: true, gate },
            "/wait" => Pieces { gate, ..Pieces::new(["hello"]) },
            "/early" => Pieces::new(["early"]),
            "/tunnel" => Pieces::new([]),
            _ => Pieces::new(["hello"]),
        }
    }
}

impl Service for Site {
    type Body = Pieces;
    type Answering = Pin<Box<dyn Future<Output = Response<Pieces>>>>;

    fn answer(&mut self, request: Request<Content>, interim: &mut Interim) -> Self::Answering {
        let path = request.uri().path().to_owned();
        self.paths.borrow_mut().push(path.clone());
        let mut response = Response::new(self.body(&path));
        if path == "/hints" {
            *self.hints.borrow_mut() = Some(interim.sender());
            let gate = self.gate.clone();
            return Box::pin(async move {
                poll_fn(|_| if *gate.borrow() { Poll::Ready(()) } else { Poll::Pending }).await;
                response
            });
        }
        Box::pin(async move {
            if path == "/echo" {
                match request.into_body().collect().await {
                    Ok(content) => response.body_mut().left = [Ok(content.to_bytes())].into(),
                    Err(error) => {
                        *response.status_mut() = StatusCode::BAD_REQUEST;
                        response.body_mut().left = [Ok(Bytes::from(error.to_string()))].into();
                    }
                }
            }
            if path == "/big" {
                response.headers_mut().insert("etag", HeaderValue::from_static("\"big\""));
            }
            if path.ends_with("events") {
                response.headers_mut().insert("content-type", HeaderValue::from_static("Text/Event-Stream; charset=x"));
            }
            if path == "/tunnel" {
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                response.headers_mut().insert("connection", HeaderValue::from_static("upgrade"));
                response.headers_mut().insert("upgrade", HeaderValue::from_static("chat"));
            }
            response
        })
    }

    fn refuse(&mut self, status: StatusCode, _: &dyn Display) -> Response<Pieces> {
        let mut response = Response::new(Pieces::new(["refused"]));
        *response.status_mut() = status;
        response
    }

    fn date(&self) -> HeaderValue {
        HeaderValue::from_static(DATE)
    }
}

pub(crate) type Http = Connection<Stream, Site>;

pub(crate) fn connection() -> (Pipe, Site, Http) {
    let (pipe, site) = (Pipe::default(), Site::default());
    let stream = Stream { pipe: pipe.clone(), current: Vec::new() };
    let http = Connection::new(stream, Server::new(Limits::default()), site.clone());
    (pipe, site, http)
}

pub(crate) fn poll(http: &mut Http) -> Poll<End> {
    http.poll(&mut Context::from_waker(Waker::noop()))
}

#[track_caller]
pub(crate) fn wait(http: &mut Http) {
    let polled = poll(http);
    assert!(polled.is_pending(), "{polled:?}");
}

#[track_caller]
pub(crate) fn end(http: &mut Http) -> End {
    match poll(http) {
        Poll::Ready(end) => end,
        Poll::Pending => panic!("the connection goes on"),
    }
}

pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

pub(crate) fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}
