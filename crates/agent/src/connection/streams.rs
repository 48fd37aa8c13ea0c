//! The open requests of an HTTP/2 connection.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use http_body::{Body, Frame, SizeHint};

/// The number of open requests of a connection, and of its tunnels.
#[derive(Default)]
pub(crate) struct Streams {
    open: AtomicUsize,
    start: AtomicUsize,
    /// The number of tunnels among `open`.
    tunnels: AtomicUsize,
    /// Woken when the last open request ends, or when one becomes a tunnel.
    waits: Mutex<Option<Waker>>,
}

/// A request, from its head to the end of its response.
pub(crate) struct OpenStream {
    streams: Arc<Streams>,
    is_tunnel: bool,
}

impl Streams {
    pub(crate) fn begin(self: &Arc<Self>) -> OpenStream {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.start.fetch_add(1, Ordering::Relaxed);
        OpenStream { streams: self.clone(), is_tunnel: false }
    }

    /// The number of open requests.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Whether none is open, and none was begun since the last call.
    pub(crate) fn were_idle(&self, start: &mut usize) -> bool {
        // The first call is at the start of the connection, when no request can have begun.
        let before = std::mem::replace(start, self.start.load(Ordering::Relaxed) + 1);
        self.open() == 0 && before == *start
    }

    /// The number of requests begun so far.
    pub(crate) fn start(&self) -> usize {
        self.start.load(Ordering::Acquire)
    }

    /// Whether all responses have ended. With a tunnel on the connection this is always `true`: the tunnel's origin has
    /// to get the client's end.
    pub(crate) fn are_over(&self) -> bool {
        self.tunnels.load(Ordering::Acquire) > 0 || self.open.load(Ordering::Acquire) == 0
    }

    pub(crate) fn wake_when_closed(&self, waker: &Waker) {
        *self.waits() = Some(waker.clone());
    }

    fn wake(&self) {
        let waker = self.waits().take();
        waker.into_iter().for_each(Waker::wake);
    }

    fn waits(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenStream {
    /// Keeps the stream open until the response's body is dropped.
    pub(crate) fn keep<B>(self, body: B) -> GuardedBody<B, Option<Self>> {
        GuardedBody { body, kept: Some(self) }
    }

    /// Records that the stream is a tunnel. It stays open until this is dropped.
    pub(crate) fn becomes_tunnel(&mut self) {
        self.is_tunnel = true;
        self.streams.tunnels.fetch_add(1, Ordering::AcqRel);
        self.streams.wake();
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        if self.is_tunnel {
            self.streams.tunnels.fetch_sub(1, Ordering::AcqRel);
        }
        if self.streams.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.streams.wake();
        }
    }
}

/// A body, and a value that is dropped with it.
pub(crate) struct GuardedBody<B, K> {
    body: B,
    kept: K,
}

impl<B, K> GuardedBody<B, K> {
    pub(crate) fn new(body: B, kept: K) -> Self {
        Self { body, kept }
    }

    pub(crate) fn kept(&self) -> &K {
        &self.kept
    }
}

impl<B: Body + Unpin, K: Unpin> Body for GuardedBody<B, K> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_were_idle_if_nothing_was_open_between_two_looks() {
        let (streams, mut start) = (Arc::new(Streams::default()), 0);
        assert!(!streams.were_idle(&mut start), "the first look sees nothing yet");
        assert!(streams.were_idle(&mut start));
        let stream = streams.begin();
        assert!(!streams.were_idle(&mut start));
        assert!(!streams.were_idle(&mut start), "one is open");
        drop(stream);
        assert!(streams.were_idle(&mut start));
        drop(streams.begin());
        assert!(!streams.were_idle(&mut start), "one came and went");
        assert!(streams.were_idle(&mut start));
    }
}
