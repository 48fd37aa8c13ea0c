//! A connection that limits the bytes a server sends.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The maximum bytes that a server may send before a response is complete: enough for the longest values of more than
/// two hundred keys. The client library holds them in memory.
pub(super) const UNANSWERED_MAX: usize = 16 << 20;

/// A stream that fails if too many bytes were received since a response was last complete.
pub(super) struct Bounded<S> {
    stream: S,
    received: Received,
}

/// The number of bytes received since a response was last complete.
#[derive(Debug, Clone, Default)]
pub(super) struct Received(Arc<AtomicUsize>);

impl Received {
    /// Called when a response is complete.
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn add(&self, len: usize) -> io::Result<()> {
        if self.0.fetch_add(len, Ordering::Relaxed) + len > UNANSWERED_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the server sent more than 16 MiB before a response was complete",
            ));
        }
        Ok(())
    }
}

impl<S> Bounded<S> {
    pub(super) fn new(stream: S, received: Received) -> Self {
        Self { stream, received }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buf);
        read.map(|read| read.and_then(|()| this.received.add(buf.filled().len() - before)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
