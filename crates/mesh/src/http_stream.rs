//! The streams of connections for HTTP.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::TlsStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use watari_values::NodeName;

/// A connection for HTTP that an agent has made to this one.
#[derive(Debug)]
pub struct HttpConnection {
    /// By its certificate.
    pub peer: NodeName,
    pub stream: HttpStream,
}

/// A TLS connection to another agent, for HTTP.
///
/// Reads and writes fail with [`io::ErrorKind::ConnectionAborted`] when the peer is evicted or removed, and when this
/// node shuts down. A task that waits for the stream is woken then. A stream that no task polls is closed when it is
/// dropped.
pub struct HttpStream {
    stream: TlsStream<TcpStream>,
    end: CancellationToken,
    /// Each wakes one task: different tasks may read and write.
    ended: [Pin<Box<WaitForCancellationFutureOwned>>; 2],
    _counted: CountedConnection,
    _place: Option<OwnedSemaphorePermit>,
}

/// Counts an open connection in a gauge.
pub(crate) struct CountedConnection(Gauge);

#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

impl HttpStream {
    /// `end` is cancelled when the connection has to end. The stream holds `place` until it is dropped.
    pub(crate) fn new(
        stream: TlsStream<TcpStream>,
        end: &CancellationToken,
        counted: CountedConnection,
        place: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let ended = || Box::pin(end.clone().cancelled_owned());
        Self { stream, end: end.clone(), ended: [ended(), ended()], _counted: counted, _place: place }
    }

    fn poll_stream<T>(
        &mut self,
        context: &mut Context<'_>,
        direction: Direction,
        poll: impl FnOnce(Pin<&mut TlsStream<TcpStream>>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.end.is_cancelled() {
            return Poll::Ready(Err(aborted()));
        }
        let outcome = poll(Pin::new(&mut self.stream), context);
        if outcome.is_pending() && self.ended[direction as usize].as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(aborted()));
        }
        outcome
    }
}

impl AsyncRead for HttpStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_stream(context, Direction::Read, |stream, context| stream.poll_read(context, into))
    }
}

impl AsyncWrite for HttpStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_stream(context, Direction::Write, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_stream(context, Direction::Write, |stream, context| stream.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_stream(context, Direction::Write, AsyncWrite::poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_stream(context, Direction::Write, AsyncWrite::poll_shutdown)
    }
}

impl fmt::Debug for HttpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpStream").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl CountedConnection {
    pub(crate) fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn aborted() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the peer is no member any more, or this node shuts down")
}
