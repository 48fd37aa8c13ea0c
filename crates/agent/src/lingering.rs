//! Content of a request that nobody wants.
//!
//! In HTTP/2 a response may come before all of its request has, and the stream is then reset without an error (RFC 9113, section 8.1).
//! Some clients lose the response by that, curl before version 8 among them. So what they still send is read for a while.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// How much is read, in bytes, and for how long. Who sends more is reset after all.
const UNWANTED_LEN_MAX: usize = 64 << 20;
const UNWANTED_TIME_MAX: Duration = Duration::from_secs(30);

/// The content of a request, which is read to its end when this is dropped before.
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
        // A node that ends reads nothing any more.
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
