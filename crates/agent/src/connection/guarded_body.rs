//! A body that keeps a value.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};

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
