//! The content of a request, between the connection that decodes it and the service that reads it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use watari_http1::ContentFault;

/// The content of a request. The connection provides a piece when this is polled, so the service sets the pace.
///
/// Any task may poll it. If it is dropped before its end, an HTTP/1 connection reads the rest or closes, and an HTTP/2
/// connection skips the rest.
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
    /// The connection, or the stream, is gone.
    #[error("the connection or stream ended before the request was complete")]
    Gone,
}

/// The connection's end of a [`Content`].
#[derive(Debug)]
pub(crate) struct Source(Arc<Mutex<Slot>>);

#[derive(Debug)]
struct Slot {
    /// The next piece of data, if it was decoded and not read.
    data: Option<Bytes>,
    /// Trailers that follow `data`, if they were not read.
    trailers: Option<HeaderMap>,
    state: Flow,
    /// Bytes that are still to come. `None`: unknown.
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

    /// Content of `len` bytes, or of unknown length, and the end that provides it.
    pub(crate) fn new(len: Option<u64>) -> (Self, Source) {
        let slot = Slot {
            data: None,
            trailers: None,
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
        if !slot.connection.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            slot.connection = Some(cx.waker().clone());
        }
        slot.is_wanted && slot.data.is_none()
    }

    /// Whether the service reads no more of it.
    pub(crate) fn is_dropped(&self) -> bool {
        lock(&self.0).is_dropped
    }

    pub(crate) fn provide(&self, data: Bytes) {
        let mut slot = lock(&self.0);
        let len = data.len() as u64;
        slot.left = slot.left.map(|left| left.saturating_sub(len));
        slot.data = Some(data);
        slot.wake();
    }

    /// Ends the content. `trailers` are those of a chunked message.
    pub(crate) fn complete(self, trailers: Option<HeaderMap>) {
        let mut slot = lock(&self.0);
        slot.state = Flow::Complete;
        slot.trailers = trailers.filter(|trailers| !trailers.is_empty());
        slot.wake();
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
        let frame = slot.data.take().map(Frame::data);
        if let Some(frame) = frame.or_else(|| slot.trailers.take().map(Frame::trailers)) {
            return Poll::Ready(Some(Ok(frame)));
        }
        match slot.state {
            Flow::Complete => return Poll::Ready(None),
            Flow::Failed(cause) => return Poll::Ready(Some(Err(cause))),
            Flow::Open => {}
        }
        slot.reader = Some(cx.waker().clone());
        if !std::mem::replace(&mut slot.is_wanted, true) {
            slot.connection.take().into_iter().for_each(Waker::wake);
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|slot| {
            let slot = lock(slot);
            slot.state == Flow::Complete && slot.data.is_none() && slot.trailers.is_none()
        })
    }

    fn size_hint(&self) -> SizeHint {
        let Some(slot) = &self.0 else { return SizeHint::with_exact(0) };
        let slot = lock(slot);
        let waiting = slot.data.as_ref().map_or(0, Bytes::len) as u64;
        slot.left.map_or_else(SizeHint::new, |left| SizeHint::with_exact(left + waiting))
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        if let Some(slot) = &self.0 {
            let mut slot = lock(slot);
            slot.is_dropped = true;
            slot.data = None;
            slot.connection.take().into_iter().for_each(Waker::wake);
        }
    }
}

fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::HeaderValue;
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn data_and_trailers_that_come_together_are_read_in_order() {
        let (mut content, source) = Content::new(None);
        source.provide(Bytes::from_static(b"data"));
        source.complete(Some(HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("x"))])));
        assert!(!content.is_end_stream());
        assert_eq!(content.frame().await.unwrap().unwrap().into_data().unwrap(), "data");
        assert!(!content.is_end_stream());
        assert_eq!(content.frame().await.unwrap().unwrap().into_trailers().unwrap()["etag"], "x");
        assert!(content.is_end_stream() && content.frame().await.is_none());
    }

    #[tokio::test]
    async fn content_whose_source_is_gone_fails() {
        let (mut content, source) = Content::new(Some(3));
        source.provide(Bytes::from_static(b"ab"));
        assert_eq!(content.size_hint().exact(), Some(3));
        drop(source);
        assert_eq!(content.frame().await.unwrap().unwrap().into_data().unwrap(), "ab");
        assert_eq!(content.frame().await.unwrap().unwrap_err(), Incomplete::Gone);
    }
}
