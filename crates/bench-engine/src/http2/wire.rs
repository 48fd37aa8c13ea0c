//! The byte stream between h2 and the socket.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::ledger::Ledger;
use crate::run::Run;
use crate::stream::Stream;

/// A stream that enters its bytes in the ledger.
#[derive(Debug)]
pub(super) struct Wire {
    stream: Stream,
    run: Arc<Run>,
    ledger: Arc<Mutex<Ledger>>,
}

impl Wire {
    pub(super) fn new(stream: Stream, run: &Arc<Run>, ledger: &Arc<Mutex<Ledger>>) -> Self {
        Self { stream, run: Arc::clone(run), ledger: Arc::clone(ledger) }
    }

    fn enter<T>(&self, result: io::Result<T>, entry: impl FnOnce(&mut Ledger, &T)) -> Poll<io::Result<T>> {
        let mut ledger = locked(&self.ledger);
        match &result {
            Ok(value) => entry(&mut ledger, value),
            Err(error) => ledger.broke(error),
        }
        Poll::Ready(result)
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        let now = self.run.now();
        self.enter(result, |ledger, ()| ledger.read(&buffer.filled()[before..], now))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.stream).poll_write(cx, data));
        self.enter(result, |ledger, &written| ledger.wrote(&data[..written]))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        let now = self.run.now();
        self.enter(result, |ledger, ()| ledger.flushed(now))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Locks the ledger. A poisoned lock is used as it is.
pub(super) fn locked(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}
