//! Reads request content that no part of the agent needs.
//!
//! In HTTP/2 a response may be complete before its request is. The server then resets the stream without an error (RFC
//! 9113, section 8.1). Some clients lose the response by that, among them curl before version 8. So the agent reads the
//! rest of the request for a while.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// The most that is read, in bytes, and the longest time. After that the stream is reset.
const UNWANTED_LEN_MAX: usize = 64 << 20;
const UNWANTED_TIME_MAX: Duration = Duration::from_secs(30);

/// The content of a request. If this is dropped early, a task reads the content to its end.
pub(crate) struct Lingering<B>(Option<B>)
where
    B: Body<Data = Bytes> + Send + Unpin + 'static;

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> Lingering<B> {
    pub(crate) fn new(body: B) -> Self {
        Self(Some(body))
    }
}

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> Body for Lingering<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(body) = &mut self.0 else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.0 = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> Drop for Lingering<B> {
    fn drop(&mut self) {
        let unread = self.0.take().filter(|body| !body.is_end_stream());
        // At shutdown there is no runtime, and nothing more is read.
        if let (Some(body), Ok(runtime)) = (unread, Handle::try_current()) {
            runtime.spawn(timeout(UNWANTED_TIME_MAX, discard(body)));
        }
    }
}

async fn discard<B: Body<Data = Bytes> + Unpin>(mut body: B) {
    let mut left = UNWANTED_LEN_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
            Some(less) => left = less,
            None => return,
        }
    }
}
