//! An HTTP/1.1 connection that carries requests one after the other.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::fault::ProtocolFault;
use super::response::{Fed, LastHead, ResponseReader};
use crate::connect::{Opened, Route};
use crate::ending::{Ending, EndingKind, Phase, Side};
use crate::exchange::{Broken, Response};
use crate::keep::Keep;
use crate::request::Request;
use crate::run::Run;
use crate::sample::ConnectionSample;
use crate::stream::{self, Stream};
use crate::watchdog::Watchdog;

/// Size of the read buffer in bytes.
const READ_BYTES: usize = 64 * 1024;

thread_local! {
    /// It holds no bytes of a connection between two polls, so all connections of a thread share it.
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch { buffer: vec![0; READ_BYTES].into(), last: LastHead::default() });
}

/// The state that the connections of a thread share.
struct Scratch {
    buffer: Box<[u8]>,
    last: LastHead,
}

/// A connection. `sample` collects its times and counts.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) sample: ConnectionSample,
    pub(crate) route: Route,
    stream: Stream,
    /// Bytes after the end of a response: the beginning of the next one.
    ahead: Vec<u8>,
    persistent: bool,
}

impl Connection {
    pub(crate) fn new(opened: Opened) -> Self {
        let Opened { stream, sample, route } = opened;
        Self { sample, route, stream, ahead: Vec::new(), persistent: true }
    }

    /// Writes `data`, and returns the time at which that was done. `begun`: when the client began with the request.
    pub(crate) async fn write(
        &mut self,
        run: &Run,
        data: &[u8],
        begun: Duration,
        watchdog: &mut Watchdog,
    ) -> Result<Duration, Ending> {
        // Reading the clock takes long. The connection may have been opened since.
        let begun = self.sample.secured.or(self.sample.connected).map_or(begun, |ready| ready.max(begun));
        let deadline = run.shared.instant(begun + run.plan.timeouts.response);
        let (mut rest, stream) = (data, &mut self.stream);
        let write = poll_fn(|cx| poll_write_all(Pin::new(stream), cx, &mut rest));
        match watchdog.within(deadline, write).await {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(stream::cut(&error, Phase::Request)),
            None => return Err(Ending::new(EndingKind::Timeout, Phase::Request, Side::Server)),
        }
        let now = run.now();
        self.sample.written.get_or_insert(now);
        self.sample.bytes_written += data.len() as u64;
        Ok(now)
    }

    /// Reads the response to `request`. The client wrote the request at `written`.
    pub(crate) async fn read(
        &mut self,
        run: &Run,
        request: &Request,
        keep: Keep,
        written: Duration,
        watchdog: &mut Watchdog,
    ) -> Result<Response, Broken> {
        let deadline = run.shared.instant(written + run.plan.timeouts.response);
        let reader = ResponseReader::new(request.method == http::Method::HEAD, keep);
        let mut reading = Reading { reader, first_byte: None, last_read: written };
        loop {
            let (stream, sample, ahead) = (&mut self.stream, &mut self.sample, &mut self.ahead);
            let step = poll_fn(|cx| reading.poll(run, Pin::new(stream), sample, ahead, cx));
            match watchdog.within(deadline, step).await {
                Some(Ok(false)) => {}
                Some(Ok(true)) => {
                    self.persistent = reading.reader.is_persistent();
                    return Ok(reading.response(&mut self.sample));
                }
                Some(Err(ending)) => return Err(reading.broken(ending)),
                None => {
                    let phase = reading.phase();
                    return Err(reading.broken(Ending::new(EndingKind::Timeout, phase, Side::Server)));
                }
            }
        }
    }

    /// Closes the connection.
    pub(crate) fn close(self: Box<Self>) -> ConnectionSample {
        self.sample
    }

    /// Whether it may carry another request after the last response.
    pub(crate) fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// Whether bytes arrived after the end of the last response.
    pub(crate) fn has_more(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Reads until the server closes, as the paper's ANMA does, and returns the ending.
    pub(crate) async fn read_to_end(&mut self, run: &Run, watchdog: &mut Watchdog) -> Ending {
        if self.stream.is_read_to_end() {
            return Ending::new(EndingKind::Normal, Phase::Close, Side::Server);
        }
        let stream = &mut self.stream;
        let read = poll_fn(|cx| poll_read(Pin::new(stream), cx, |data, _| data.len()));
        match watchdog.within(run.response_deadline(), read).await {
            None => Ending::new(EndingKind::Timeout, Phase::Close, Side::Server),
            Some(Ok(0)) => Ending::new(EndingKind::Normal, Phase::Close, Side::Server),
            // Bytes without a request.
            Some(Ok(_)) => Ending::new(EndingKind::Protocol, Phase::Close, Side::Server),
            // End without close_notify. No data is lost, because the response is complete.
            Some(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Ending::new(EndingKind::Normal, Phase::Close, Side::Server)
            }
            Some(Err(error)) => stream::cut(&error, Phase::Close),
        }
    }
}

/// A response in progress.
struct Reading {
    reader: ResponseReader,
    first_byte: Option<Duration>,
    /// Time of the last read that returned bytes.
    last_read: Duration,
}

impl Reading {
    /// Reads once; true when the response is complete.
    fn poll(
        &mut self,
        run: &Run,
        stream: Pin<&mut Stream>,
        sample: &mut ConnectionSample,
        ahead: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<bool, Ending>> {
        if !ahead.is_empty() {
            let before = std::mem::take(ahead);
            self.came(run);
            return Poll::Ready(SCRATCH.with_borrow_mut(|scratch| self.take(run, &before, ahead, &mut scratch.last)));
        }
        let read = ready!(poll_read(stream, cx, |data, last| {
            if !data.is_empty() {
                self.came(run);
                sample.first_byte = sample.first_byte.or(self.first_byte);
                sample.bytes_read += data.len() as u64;
            }
            self.take(run, data, ahead, last)
        }));
        Poll::Ready(read.unwrap_or_else(|error| Err(stream::cut(&error, self.phase()))))
    }

    fn came(&mut self, run: &Run) {
        self.last_read = run.now();
        self.first_byte.get_or_insert(self.last_read);
    }

    /// Enters the bytes of a read. An empty slice is the end of the connection.
    fn take(&mut self, run: &Run, data: &[u8], ahead: &mut Vec<u8>, last: &mut LastHead) -> Result<bool, Ending> {
        let fed = if data.is_empty() { self.reader.end().map(|()| Fed::Done(0)) } else { self.reader.feed(data, last) };
        match fed {
            Ok(Fed::More) => Ok(false),
            Ok(Fed::Done(taken)) => {
                ahead.extend_from_slice(&data[taken..]);
                Ok(true)
            }
            Err(ProtocolFault::Truncated(_)) => Err(Ending::new(EndingKind::Reset, self.phase(), Side::Server)),
            Err(fault) => {
                run.shared.causes.add(fault.to_string(), 1);
                Err(Ending::new(EndingKind::Protocol, Phase::Response, Side::Server))
            }
        }
    }

    fn phase(&self) -> Phase {
        if self.first_byte.is_some() { Phase::Response } else { Phase::Wait }
    }

    fn response(self, sample: &mut ConnectionSample) -> Response {
        sample.last_byte = Some(self.last_read);
        Response {
            status: self.reader.status(),
            body_bytes: self.reader.body_bytes(),
            first_byte: self.first_byte.unwrap_or(self.last_read),
            ended: self.last_read,
            keep: self.reader.into_keep(),
        }
    }

    fn broken(self, ending: Ending) -> Broken {
        let status = Some(self.reader.status()).filter(|&status| status != 0);
        Broken { ending, status, body_bytes: self.reader.body_bytes(), first_byte: self.first_byte }
    }
}

/// Reads once into the thread's buffer, and passes the bytes to `take`. An empty slice is the end of the connection.
fn poll_read<T>(
    stream: Pin<&mut Stream>,
    cx: &mut Context<'_>,
    take: impl FnOnce(&[u8], &mut LastHead) -> T,
) -> Poll<io::Result<T>> {
    SCRATCH.with_borrow_mut(|scratch| {
        let mut buffer = ReadBuf::new(&mut scratch.buffer);
        ready!(stream.poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(take(buffer.filled(), &mut scratch.last)))
    })
}

fn poll_write_all(mut stream: Pin<&mut Stream>, cx: &mut Context<'_>, rest: &mut &[u8]) -> Poll<io::Result<()>> {
    while !rest.is_empty() {
        let written = ready!(stream.as_mut().poll_write(cx, rest))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        *rest = &rest[written..];
    }
    stream.poll_flush(cx)
}
