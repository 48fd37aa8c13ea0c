//! Records whether an HTTP/1.1 connection is between requests. Only then can it be taken apart and moved.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The unfinished parts of the current request. A connection is idle when no part is left.
///
/// ```text
///  request begins: REQUEST | RESPONSE | UNFLUSHED
///    its body was read to the end:            - REQUEST
///    the response's body was taken and ended: - RESPONSE
///    all of it was flushed after that:        - UNFLUSHED
/// ```
#[derive(Debug, Clone, Default)]
pub(crate) struct Activity(Arc<AtomicU8>);

const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
const UNFLUSHED: u8 = 4;
/// The client has announced that it sends no further request.
const LAST: u8 = 8;

impl Activity {
    /// Whether no request is in progress, and all of the last response has been flushed.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.load(Ordering::Acquire) & !LAST == 0
    }

    /// Whether a request has begun and its response is not completely flushed.
    pub(crate) fn is_answering(&self) -> bool {
        self.0.load(Ordering::Acquire) & (RESPONSE | UNFLUSHED) != 0
    }

    /// Begins a request. The caller reads the request's body through the returned one.
    pub(crate) fn begin<B: Body>(&self, body: B) -> Watched<B> {
        let request = if body.is_end_stream() { 0 } else { REQUEST };
        self.0.store(request | RESPONSE | UNFLUSHED, Ordering::Release);
        Watched { body, activity: self.clone(), part: request }
    }

    /// Records that the current request is the last one.
    pub(crate) fn is_last(&self) {
        self.0.fetch_or(LAST, Ordering::AcqRel);
    }

    /// Whether the last response was written in full and not flushed. The end of the stream follows it.
    pub(crate) fn only_ends(&self) -> bool {
        self.0.load(Ordering::Acquire) == UNFLUSHED | LAST
    }

    /// Wraps the response's body. The caller sends the returned one.
    pub(crate) fn respond<B: Body>(&self, body: B) -> Watched<B> {
        Watched { body, activity: self.clone(), part: RESPONSE }
    }

    /// Records a flush. All that was written before it has been flushed.
    pub(crate) fn flushed(&self) {
        if self.0.load(Ordering::Acquire) & RESPONSE == 0 {
            self.ended(UNFLUSHED);
        }
    }

    fn ended(&self, part: u8) {
        self.0.fetch_and(!part, Ordering::AcqRel);
    }
}

/// A body whose end is recorded. A request's body has ended when it was read to its end. A response's body has ended
/// when it is dropped, because hyper does not read an empty body to its end.
pub(crate) struct Watched<B> {
    body: B,
    activity: Activity,
    part: u8,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Watched<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None)) || (frame.is_ready() && this.body.is_end_stream()) {
            this.ended();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Watched<B> {
    fn ended(&self) {
        if self.part == REQUEST {
            self.activity.ended(REQUEST);
        }
    }
}

impl<B> Drop for Watched<B> {
    fn drop(&mut self) {
        if self.part == RESPONSE {
            self.activity.ended(RESPONSE);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http_body_util::{BodyExt, Empty, Full};

    #[tokio::test]
    async fn a_connection_is_idle_when_everything_of_its_request_is_over() {
        let activity = Activity::default();
        assert!(activity.is_idle());
        let request = activity.begin(Full::new(Bytes::from_static(b"upload")));
        let response = activity.respond(Full::new(Bytes::from_static(b"answer")));
        activity.flushed();
        drop(response);
        assert!(!activity.is_idle(), "the response may not be flushed");
        activity.flushed();
        assert!(!activity.is_idle(), "the request is not read");
        request.collect().await.unwrap();
        assert!(activity.is_idle());
    }

    #[test]
    fn a_request_without_a_body_is_read_when_it_begins() {
        let activity = Activity::default();
        drop(activity.begin(Empty::<Bytes>::new()));
        drop(activity.respond(Empty::<Bytes>::new()));
        assert!(!activity.is_idle());
        activity.flushed();
        assert!(activity.is_idle());
    }

    #[test]
    fn only_the_end_follows_when_the_last_response_is_written() {
        for last in [false, true] {
            let activity = Activity::default();
            drop(activity.begin(Empty::<Bytes>::new()));
            if last {
                activity.is_last();
            }
            let response = activity.respond(Empty::<Bytes>::new());
            assert!(!activity.only_ends());
            drop(response);
            assert_eq!(activity.only_ends(), last);
            activity.flushed();
            assert!(activity.is_idle() && !activity.only_ends());
        }
    }

    #[test]
    fn a_request_that_nobody_reads_to_its_end_keeps_the_connection_busy() {
        let activity = Activity::default();
        drop(activity.begin(Full::new(Bytes::from_static(b"upload"))));
        drop(activity.respond(Empty::<Bytes>::new()));
        activity.flushed();
        assert!(!activity.is_idle());
    }
}
