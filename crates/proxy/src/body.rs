//! Bodies on their way through.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use prometheus_client::metrics::counter::Counter;
use tokio::time::{Instant, Sleep};

use crate::pool::Lease;
use crate::{Body, BoxError};

/// No body. Allocates nothing.
pub(crate) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// How the body of a request fares on its way to an origin.
#[derive(Debug, Default)]
pub(crate) struct Upload {
    advanced: AtomicBool,
    waiting: AtomicBool,
}

impl Upload {
    /// Whether the origin took a piece since this was asked last.
    pub(crate) fn has_advanced(&self) -> bool {
        self.advanced.swap(false, Ordering::Relaxed)
    }

    /// Whether it is the client that the next piece is waited for.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// The body of a client's request.
pub(crate) struct RequestBody<B> {
    inner: Pin<Box<B>>,
    upload: Arc<Upload>,
}

impl<B> RequestBody<B>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    /// Wraps `inner` so that it can be watched; an empty body needs no watching.
    pub(crate) fn wrap(inner: B) -> (Body, Option<Arc<Upload>>) {
        if inner.is_end_stream() {
            return (empty(), None);
        }
        let upload = Arc::new(Upload::default());
        let body = Self { inner: Box::pin(inner), upload: Arc::clone(&upload) };
        (body.map_err(Into::into).boxed_unsync(), Some(upload))
    }
}

impl<B: http_body::Body> http_body::Body for RequestBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = self.inner.as_mut().poll_frame(cx);
        self.upload.waiting.store(frame.is_pending(), Ordering::Relaxed);
        if frame.is_ready() {
            self.upload.advanced.store(true, Ordering::Relaxed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Why a response could not be completed; always the origin's fault.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResponseBodyError {
    #[error("the origin cut its response short")]
    Cut(#[source] hyper::Error),
    #[error("the origin stopped in the middle of its response")]
    Stalled,
}

/// The body of an origin's response. At its end the connection goes back to the pool.
pub(crate) struct ResponseBody {
    inner: Incoming,
    lease: Option<Lease>,
    patience: Duration,
    /// Armed while the origin is waited for; made at the first wait, for many bodies need none.
    timer: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    cut: Counter,
}

impl ResponseBody {
    /// * `patience`: how long to wait for the next piece, or for the connection to become ready at the end.
    /// * `cut`: counts a body that could not be completed.
    pub(crate) fn new(inner: Incoming, lease: Lease, patience: Duration, cut: Counter) -> Self {
        let mut body = Self { inner, lease: Some(lease), patience, timer: None, waiting: false, cut };
        if body.inner.is_end_stream() {
            body.release();
        }
        body
    }

    fn release(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.release(self.patience);
        }
    }

    /// The connection is of no more use.
    fn fail(&mut self, error: ResponseBodyError) -> ResponseBodyError {
        self.lease = None;
        self.cut.inc();
        error
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let patience = self.patience;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        if !self.waiting {
            timer.as_mut().reset(Instant::now() + patience);
            self.waiting = true;
        }
        timer.as_mut().poll(cx)
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) else {
            ready!(self.poll_timer(cx));
            return Poll::Ready(Some(Err(self.fail(ResponseBodyError::Stalled))));
        };
        self.waiting = false;
        Poll::Ready(match frame {
            Some(Err(error)) => Some(Err(self.fail(ResponseBodyError::Cut(error)))),
            Some(Ok(frame)) => {
                if self.inner.is_end_stream() {
                    self.release();
                }
                Some(Ok(frame))
            }
            None => {
                self.release();
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
