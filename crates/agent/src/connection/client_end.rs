//! The end of the client's stream, by `close_notify` or by a FIN alone, and its effect on requests in progress.
//!
//! A client that ends its direction has not ended the server's (RFC 8446, section 6.1; RFC 9112, section 9.6). So the
//! agent answers a complete request. An attacker can send a FIN and so cut off the rest (RFC 9112, section 9.8). So a
//! request that is not complete by its own framing fails, after `close_notify` as well. The agent treats both ends
//! alike, so the timing of a client's close does not change the answer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use watari_body::BoxError;

/// Whether the client has ended its stream. Clones share one connection's state.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientEnd(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    has_come: AtomicBool,
    notify: Arc<Notify>,
}

/// The client ended its direction within a request.
#[derive(Debug, thiserror::Error)]
#[error("the client ended the connection before its request was complete")]
pub(crate) struct IncompleteRequest;

impl ClientEnd {
    /// Records the end. HTTP has read everything before it.
    pub(crate) fn come(&self) {
        if !self.0.has_come.swap(true, Ordering::AcqRel) {
            self.0.notify.notify_waiters();
        }
    }

    pub(crate) fn has_come(&self) -> bool {
        self.0.has_come.load(Ordering::Acquire)
    }
}

/// The content of a request. It fails if the client ends the connection before the content is complete. HTTP itself
/// does not see that end yet (see `BorrowedStream`).
pub(crate) struct Content<B> {
    body: B,
    end: ClientEnd,
    /// Created by the first poll that has to wait.
    waiting: Option<Pin<Box<OwnedNotified>>>,
}

impl<B> Content<B> {
    pub(crate) fn new(body: B, end: &ClientEnd) -> Self {
        Self { body, end: end.clone(), waiting: None }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Content<B>
where
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.waiting = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let notify = &this.end.0.notify;
        let waiting = this.waiting.get_or_insert_with(|| Box::pin(notify.clone().notified_owned()));
        let is_woken = waiting.as_mut().poll(cx).is_ready();
        if !is_woken && !this.end.has_come() {
            return Poll::Pending;
        }
        this.waiting = None;
        // The last bytes may have arrived between the first poll and the end.
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(frame.map(|frame| frame.map_err(Into::into))),
            Poll::Pending => Poll::Ready(Some(Err(IncompleteRequest.into()))),
        }
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
    #![allow(clippy::unwrap_used)]

    use std::pin::pin;
    use std::task::Waker;

    use http_body_util::{BodyExt, Full};

    use super::*;

    #[tokio::test]
    async fn content_that_is_complete_is_read_after_the_end() {
        let end = ClientEnd::default();
        end.come();
        let content = Content::new(Full::new(Bytes::from_static(b"all")), &end);
        assert_eq!(content.collect().await.unwrap().to_bytes(), "all");
    }

    /// A body that yields these bytes and never ends.
    struct Half(Option<Bytes>);

    impl Body for Half {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            self.0.take().map_or(Poll::Pending, |data| Poll::Ready(Some(Ok(Frame::data(data)))))
        }
    }

    #[tokio::test]
    async fn content_that_is_cut_off_fails_when_the_end_comes() {
        let end = ClientEnd::default();
        let mut content = Content::new(Half(Some(Bytes::from_static(b"half"))), &end);
        assert_eq!(content.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
        let mut next = pin!(content.frame());
        assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        end.come();
        let error = next.await.unwrap().unwrap_err();
        assert!(error.is::<IncompleteRequest>());
    }
}
