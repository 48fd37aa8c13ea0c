//! The stream under HTTP while the handshake is not done.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use watari_stream::TlsStream;

use super::pending::PendingHandshake;
use crate::leg::Leg;

/// The stream of an early connection.
pub(super) enum StreamState {
    PendingHandshake(Box<PendingHandshake>),
    Open(Box<TlsStream<Leg>>),
    Taken,
}

/// A stream that reads early data and then waits. rustls seals its writes.
pub(crate) struct EarlyStream(Arc<Mutex<StreamState>>);

impl EarlyStream {
    pub(super) fn new(state: Arc<Mutex<StreamState>>) -> Self {
        Self(state)
    }

    /// Takes the final stream, once the connection is open. After that, this stream only returns errors.
    pub(crate) fn take_open(&self) -> Option<Box<TlsStream<Leg>>> {
        let mut state = lock(&self.0);
        match std::mem::replace(&mut *state, StreamState::Taken) {
            StreamState::Open(stream) => Some(stream),
            other => {
                *state = other;
                None
            }
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut PendingHandshake) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &mut *lock(&self.0) {
            StreamState::PendingHandshake(pending) => work(pending),
            StreamState::Open(_) | StreamState::Taken => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl AsyncRead for EarlyStream {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.with(|pending| pending.poll_early(buf).map(Ok))
    }
}

impl AsyncWrite for EarlyStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.with(|pending| pending.poll_seal(parts, cx))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|pending| pending.poll_send(cx))
    }

    /// Only flushes. The record layer seals the end when the handshake is done.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(cx))?;
        Poll::Ready(Ok(()))
    }
}

pub(super) fn lock(state: &Mutex<StreamState>) -> MutexGuard<'_, StreamState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
