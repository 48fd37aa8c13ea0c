//! The content of a request, between the connection that decodes it and the service that reads it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use watari_http1::ContentFault;

/// The content of a request. The connection decodes a piece when this is polled, so the service sets the pace.
///
/// Any task may poll it. If it is dropped before its end, the connection reads the rest or closes.
#[derive(Debug, Default)]
pub struct Content(Option<Arc<Mutex<Slot>>>);

/// The request is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Incomplete {
    /// The client ended its direction, by `close_notify` or a FIN (RFC 9112, section 8).
    #[error("the client ended the connection before its request was complete")]
    Ended,
    /// The client's framing of the content is malformed.
    #[error("the content of the request is malformed: {0}")]
    Malformed(ContentFault),
    /// The connection is gone.
    #[error("the connection ended before the request was complete")]
    Gone,
}

/// The connection's end of a [`Content`].
#[derive(Debug)]
pub(crate) struct Source(Arc<Mutex<Slot>>);

#[derive(Debug)]
struct Slot {
    /// The next piece, if it was decoded and not read.
    piece: Option<Frame<Bytes>>,
    state: Flow,
    /// Bytes that are still to come. `None`: the content is chunked.
    left: Option<u64>,
    /// The task that reads, while it waits.
    reader: Option<Waker>,
    /// The task of the connection, while it waits for a read.
    connection: Option<Waker>,
    /// The service waits for a piece.
    is_wanted: bool,
    is_dropped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Open,
    Complete,
    Failed(Incomplete),
}

impl Content {
    /// No content.
    pub fn empty() -> Self {
        Self(None)
    }

    /// Content of `len` bytes, or chunked content, and the end that provides it.
    pub(crate) fn new(len: Option<u64>) -> (Self, Source) {
        let slot = Slot {
            piece: None,
            state: Flow::Open,
            left: len,
            reader: None,
            connection: None,
            is_wanted: false,
            is_dropped: false,
        };
        let slot = Arc::new(Mutex::new(slot));
        (Self(Some(slot.clone())), Source(slot))
    }
}

impl Source {
    /// Whether the next piece is to be decoded: the service waits for it. Registers the task to be woken when it does,
    /// or when the content is dropped.
    pub(crate) fn is_wanted(&self, cx: &Context<'_>) -> bool {
        let mut slot = lock(&self.0);
        if slot.is_wanted && slot.piece.is_none() {
            return true;
        }
        if !slot.connection.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            slot.connection = Some(cx.waker().clone());
        }
        false
    }

    /// Whether the service reads no more of it.
    pub(crate) fn is_dropped(&self) -> bool {
        lock(&self.0).is_dropped
    }

    pub(crate) fn provide(&self, data: Bytes) {
        let mut slot = lock(&self.0);
        let len = data.len() as u64;
        slot.left = slot.left.map(|left| left.saturating_sub(len));
        slot.set(Frame::data(data));
    }

    /// Ends the content. `trailers` are those of a chunked message.
    pub(crate) fn complete(self, trailers: Option<HeaderMap>) {
        let mut slot = lock(&self.0);
        slot.state = Flow::Complete;
        match trailers.filter(|trailers| !trailers.is_empty()) {
            Some(trailers) => slot.set(Frame::trailers(trailers)),
            // The last piece may wait to be read.
            None => slot.wake(),
        }
    }

    pub(crate) fn fail(self, cause: Incomplete) {
        lock(&self.0).fail(cause);
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        lock(&self.0).fail(Incomplete::Gone);
    }
}

impl Slot {
    fn set(&mut self, piece: Frame<Bytes>) {
        self.piece = Some(piece);
        self.wake();
    }

    fn wake(&mut self) {
        self.is_wanted = false;
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    fn fail(&mut self, cause: Incomplete) {
        if self.state == Flow::Open {
            self.state = Flow::Failed(cause);
            self.wake();
        }
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = Incomplete;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Incomplete>>> {
        let Some(slot) = &self.0 else { return Poll::Ready(None) };
        let mut slot = lock(slot);
        if let Some(piece) = slot.piece.take() {
            return Poll::Ready(Some(Ok(piece)));
        }
        match slot.state {
            Flow::Complete => return Poll::Ready(None),
            Flow::Failed(cause) => return Poll::Ready(Some(Err(cause))),
            Flow::Open => {}
        }
        slot.is_wanted = true;
        slot.reader = Some(cx.waker().clone());
        slot.connection.take().into_iter().for_each(Waker::wake);
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|slot| {
            let slot = lock(slot);
            slot.state == Flow::Complete && slot.piece.is_none()
        })
    }

    fn size_hint(&self) -> SizeHint {
        let Some(slot) = &self.0 else { return SizeHint::with_exact(0) };
        let slot = lock(slot);
        let waiting = slot.piece.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len) as u64;
        slot.left.map_or_else(SizeHint::new, |left| SizeHint::with_exact(left + waiting))
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        if let Some(slot) = &self.0 {
            let mut slot = lock(slot);
            slot.is_dropped = true;
            slot.piece = None;
            slot.connection.take().into_iter().for_each(Waker::wake);
        }
    }
}

fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
