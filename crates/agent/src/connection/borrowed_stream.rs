//! A stream that hyper owns temporarily, for HTTP/2.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use watari_stream::{ReadEnd, TlsStream};

use super::client_end::ClientEnd;
use super::early_data::gate::Gate;
use super::early_data::opening::{Opening, Unfinished};
use super::early_data::stream::EarlyStream;
use super::streams::Streams;

/// Returns the stream to its owner when hyper drops it, for any reason.
pub(crate) struct BorrowedStream {
    stream: Option<Stream>,
    back: Option<oneshot::Sender<Box<TlsStream<TcpStream>>>>,
    /// Notified when the connection should close soon, because its key is nearly used up.
    close_due: Arc<Notify>,
    is_close_sent: bool,
    end: ClientEnd,
    /// Number of writes.
    writes: u64,
    /// `writes`, and the number of requests begun, when the end was last considered.
    seen: Option<(u64, usize)>,
    /// Whether the last write is blocked by the client.
    is_blocked: bool,
    streams: Arc<Streams>,
}

pub(crate) enum Stream {
    /// Used until the handshake is done. An [`Opening`] drives it.
    EarlyConnection(EarlyStream),
    Open(Box<TlsStream<TcpStream>>),
}

/// The owner's side of a [`BorrowedStream`].
pub(crate) struct StreamReturn {
    back: oneshot::Receiver<Box<TlsStream<TcpStream>>>,
    /// Boxed, because few connections have one, and only for a short time.
    opening: Option<Box<Opening>>,
    pub(crate) close_due: Arc<Notify>,
    /// Whether the client will send no more.
    pub(crate) end: ClientEnd,
}

impl StreamReturn {
    /// The gate for requests on this connection.
    pub(crate) fn gate(&self) -> Gate {
        self.opening.as_ref().map(|opening| opening.gate()).unwrap_or_default()
    }

    /// Continues the handshake, if it is not done. Returns `false` if it failed. The caller calls this before it polls
    /// the borrower.
    pub(crate) fn poll_opening(&mut self, cx: &mut Context<'_>) -> bool {
        self.opening.as_mut().is_none_or(|opening| opening.poll(cx) != Poll::Ready(false))
    }

    /// Returns the stream, after the borrower has dropped it and the handshake is done.
    pub(crate) async fn take_back(self) -> Result<Box<TlsStream<TcpStream>>, Box<Unfinished>> {
        match (self.back.await, self.opening) {
            (Ok(stream), _) => Ok(stream),
            (Err(_), Some(opening)) => opening.finish().await,
            (Err(_), None) => unreachable!("a borrowed stream is given back when it is dropped"),
        }
    }
}

/// Lends a stream for these requests. `opening` drives an early one.
pub(crate) fn lend(stream: Stream, streams: &Arc<Streams>, opening: Option<Opening>) -> (BorrowedStream, StreamReturn) {
    let (sender, back) = oneshot::channel();
    let opening = opening.map(Box::new);
    let stream_return = StreamReturn { back, opening, close_due: Arc::default(), end: ClientEnd::default() };
    let borrowed = BorrowedStream {
        stream: Some(stream),
        back: Some(sender),
        close_due: stream_return.close_due.clone(),
        is_close_sent: false,
        end: stream_return.end.clone(),
        writes: 0,
        seen: None,
        is_blocked: false,
        streams: streams.clone(),
    };
    (borrowed, stream_return)
}

impl BorrowedStream {
    /// Whether the stream has ended by a FIN alone.
    fn is_truncated(&self) -> bool {
        matches!(&self.stream, Some(Stream::Open(stream)) if stream.read_end() == Some(ReadEnd::Truncated))
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

    fn stream(&mut self) -> Pin<&mut dyn Duplex> {
        let stream = self.stream.as_mut().expect("a stream is given back only on drop");
        if let Stream::EarlyConnection(early) = stream
            && let Some(open) = early.take_open()
        {
            *stream = Stream::Open(open);
        }
        Pin::new(match stream {
            Stream::EarlyConnection(early) => early,
            Stream::Open(open) => &mut **open,
        })
    }

    fn after_write(&mut self) {
        if !self.is_close_sent
            && let Some(Stream::Open(stream)) = &self.stream
            && stream.connection().close_due()
        {
            self.is_close_sent = true;
            self.close_due.notify_one();
        }
    }
}

trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

impl Drop for BorrowedStream {
    fn drop(&mut self) {
        if let (Some(Stream::Open(stream)), Some(back)) = (self.stream.take(), self.back.take()) {
            // If the owner has dropped its receiver, the connection has ended.
            let _ = back.send(stream);
        }
    }
}

impl AsyncRead for BorrowedStream {
    /// Reports the client's end to HTTP, by `close_notify` or FIN, after the requests in progress are answered (see
    /// `client_end`). Reports other errors, such as a reset, at once. They end the requests.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let filled = buf.filled().len();
        match ready!(this.stream().poll_read(cx, buf)) {
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
        let written = this.stream().poll_write_vectored(cx, parts);
        this.is_blocked = written.is_pending();
        if written.is_ready() {
            this.writes += 1;
        }
        this.after_write();
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream().poll_shutdown(cx)
    }
}
