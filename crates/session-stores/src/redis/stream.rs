//! A connection on which a server cannot send without end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A server may send so much without completing an answer, in bytes: that is all longest values of more than two hundred keys, and the
/// client library holds it in memory.
pub(super) const UNANSWERED_MAX: usize = 16 << 20;

/// A stream that fails when too much has been received on it since an answer was complete.
pub(super) struct Bounded<S> {
    stream: S,
    received: Received,
}

/// How much was received since an answer was complete, in bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct Received(Arc<AtomicUsize>);

impl Received {
    /// An answer is complete.
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn add(&self, len: usize) -> io::Result<()> {
        if self.0.fetch_add(len, Ordering::Relaxed) + len > UNANSWERED_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it sends more than anybody has asked for"));
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
