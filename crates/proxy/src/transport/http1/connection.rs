//! Connections between exchanges, and after a switch to another protocol.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A byte stream to an origin: TCP, or TLS over it.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// A connection to an origin between two exchanges. It holds no buffer. Dropping it closes it.
pub(crate) struct Http1 {
    pub(super) stream: Box<dyn ByteStream>,
    peer: SocketAddr,
    /// The thread whose runtime wakes the tasks that wait for the stream.
    thread: ThreadId,
    /// Whether there was no exchange yet.
    pub(super) is_new: bool,
}

impl Http1 {
    pub(crate) fn new(stream: impl ByteStream + 'static, peer: SocketAddr) -> Self {
        Self { stream: Box::new(stream), peer, thread: thread::current().id(), is_new: true }
    }

    /// Whether this thread waits for the stream itself.
    pub(crate) fn is_of_this_thread(&self) -> bool {
        self.thread == thread::current().id()
    }

    /// The address of the origin.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether the origin has neither closed the connection nor sent a byte since the last exchange. Does not wait, and
    /// makes no system call unless something has arrived.
    pub(crate) fn is_open(&mut self) -> bool {
        let mut byte = [0];
        let mut context = Context::from_waker(Waker::noop());
        Pin::new(&mut self.stream).poll_read(&mut context, &mut ReadBuf::new(&mut byte)).is_pending()
    }
}

impl Drop for Http1 {
    fn drop(&mut self) {
        // With TLS, this sends close_notify, if it can be sent at once.
        let _ = Pin::new(&mut self.stream).poll_shutdown(&mut Context::from_waker(Waker::noop()));
    }
}

impl fmt::Debug for Http1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// A connection that switched to another protocol, with the bytes of that protocol that were already read.
pub(crate) struct Switched {
    pub(super) connection: Http1,
    pub(super) ahead: BytesMut,
}

impl AsyncRead for Switched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.connection.stream).poll_read(cx, buf);
        }
        let len = self.ahead.len().min(buf.remaining());
        buf.put_slice(&self.ahead[..len]);
        self.ahead.advance(len);
        if self.ahead.is_empty() {
            self.ahead = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Switched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection.stream).poll_shutdown(cx)
    }
}
