//! The stream of an HTTP/2 connection. hyper reads and writes it. The connection's task, its owner, flushes it and takes
//! it back.
//!
//! h2 flushes after each DATA frame of 16 KiB. The owner flushes once after it has polled h2, so that one system call
//! sends several frames.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use watari_stream::{ReadEnd, TlsStream};

use super::client_end::ClientEnd;
use super::early_data::gate::Gate;
use super::early_data::opening::{Opening, Unfinished};
use super::early_data::stream::EarlyStream;
use super::streams::Streams;
use crate::leg::Leg;

/// hyper's handle. It never waits for a flush.
pub(crate) struct BorrowedStream {
    stream: SharedStream,
    end: ClientEnd,
    /// Number of writes.
    writes: u64,
    /// `writes`, and the number of requests begun, when the end was last considered.
    seen: Option<(u64, usize)>,
    /// Whether the last write is blocked by the client.
    is_blocked: bool,
    streams: Arc<Streams>,
}

/// The owner's handle.
pub(crate) struct StreamOwner {
    stream: SharedStream,
    /// Boxed, because few connections have one, and only for a short time.
    opening: Option<Box<Opening>>,
    is_close_asked: bool,
    /// Whether the client will send no more.
    pub(crate) end: ClientEnd,
}

pub(crate) enum Stream {
    /// Used until the handshake is done. An [`Opening`] drives it.
    EarlyConnection(EarlyStream),
    Open(Box<TlsStream<Leg>>),
    Taken,
}

#[derive(Clone)]
struct SharedStream(Arc<Mutex<Stream>>);

impl SharedStream {
    fn lock(&self) -> MutexGuard<'_, Stream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream {
    fn duplex(&mut self) -> Pin<&mut dyn Duplex> {
        if let Self::EarlyConnection(early) = self
            && let Some(open) = early.take_open()
        {
            *self = Self::Open(open);
        }
        match self {
            Self::EarlyConnection(early) => Pin::new(early),
            Self::Open(open) => Pin::new(&mut **open),
            Self::Taken => unreachable!("the owner takes the stream after hyper"),
        }
    }
}

/// Lends a stream for these requests. `opening` drives an early one.
pub(crate) fn lend(stream: Stream, streams: &Arc<Streams>, opening: Option<Opening>) -> (BorrowedStream, StreamOwner) {
    let stream = SharedStream(Arc::new(Mutex::new(stream)));
    let opening = opening.map(Box::new);
    let owner = StreamOwner { stream, opening, is_close_asked: false, end: ClientEnd::default() };
    let borrowed = BorrowedStream {
        stream: owner.stream.clone(),
        end: owner.end.clone(),
        writes: 0,
        seen: None,
        is_blocked: false,
        streams: streams.clone(),
    };
    (borrowed, owner)
}

impl StreamOwner {
    /// The gate for requests on this connection.
    pub(crate) fn gate(&self) -> Gate {
        self.opening.as_ref().map(|opening| opening.gate()).unwrap_or_default()
    }

    /// Continues the handshake, if it is not done. Returns `false` if it failed. The caller calls this before it polls
    /// the borrower.
    pub(crate) fn poll_opening(&mut self, cx: &mut Context<'_>) -> bool {
        self.opening.as_mut().is_none_or(|opening| opening.poll(cx) != Poll::Ready(false))
    }

    /// Returns once whether the connection should close soon, because its key is nearly used up.
    pub(crate) fn asks_for_close(&mut self) -> bool {
        let is_due = !self.is_close_asked
            && matches!(&*self.stream.lock(), Stream::Open(stream) if stream.connection().close_due());
        self.is_close_asked |= is_due;
        is_due
    }

    /// Sends what the borrower has written. The caller calls this after it has polled the borrower.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.lock().duplex().poll_flush(cx)
    }

    /// Returns the stream, after the borrower was dropped, when the handshake is done.
    pub(crate) async fn take_back(self) -> Result<Box<TlsStream<Leg>>, Box<Unfinished>> {
        let stream = std::mem::replace(&mut *self.stream.lock(), Stream::Taken);
        match (stream, self.opening) {
            (Stream::Open(stream), _) => Ok(stream),
            (_, Some(opening)) => opening.finish().await,
            (_, None) => unreachable!("a stream without an opening is open"),
        }
    }
}

impl BorrowedStream {
    /// Whether the stream has ended by a FIN alone.
    fn is_truncated(&self) -> bool {
        matches!(&*self.stream.lock(), Stream::Open(stream) if stream.read_end() == Some(ReadEnd::Truncated))
    }

    /// Whether h2 has nothing left to do after all its requests are over. Then it may get the client's end, at which it
    /// drops all that it still holds. h2 reads all available input before it hands over the requests in it, and takes
    /// whole bodies before it writes them. So h2 is polled again until it neither begins a request nor writes.
    fn is_quiet(&mut self, start: usize, cx: &mut Context<'_>) -> bool {
        let now = (self.writes, start);
        let is_quiet = self.seen.replace(now) == Some(now) && !self.is_blocked;
        // If a write is blocked, the client's progress wakes the connection.
        if !is_quiet && !self.is_blocked {
            cx.waker().wake_by_ref();
        }
        is_quiet
    }
}

trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

impl AsyncRead for BorrowedStream {
    /// Reports the client's end to HTTP, by `close_notify` or FIN, after the requests in progress are answered (see
    /// `client_end`). Reports other errors, such as a reset, at once. They end the requests.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let filled = buf.filled().len();
        let read = this.stream.lock().duplex().poll_read(cx, buf);
        match ready!(read) {
            Ok(()) if buf.filled().len() > filled => return Poll::Ready(Ok(())),
            Err(error) if !this.is_truncated() => return Poll::Ready(Err(error)),
            Ok(()) | Err(_) => {}
        }
        this.end.come();
        // Registered before the check, because the last response may end at the same time in another thread.
        this.streams.wake_when_closed(cx.waker());
        if !this.streams.are_over() {
            return Poll::Pending;
        }
        let start = this.streams.start();
        if this.is_quiet(start, cx) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

impl AsyncWrite for BorrowedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = this.stream.lock().duplex().poll_write_vectored(cx, parts);
        this.is_blocked = written.is_pending();
        if written.is_ready() {
            this.writes += 1;
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing: the owner flushes.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.lock().duplex().poll_shutdown(cx)
    }
}
