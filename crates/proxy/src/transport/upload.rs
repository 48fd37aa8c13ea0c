//! The body of a client's request, on its way to an origin.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, Limited};
use tokio::sync::Notify;
use tokio::time::timeout;
use watari_body::{Body, BoxError, empty};

use crate::exchange::fields;

/// How long an origin may take to respond with 100 (Continue) before it gets the body anyway (RFC 9110, section
/// 10.1.1). It may not support that status.
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

/// The progress of a request body on its way to an origin.
#[derive(Debug, Default)]
pub(crate) struct Upload {
    advanced: AtomicBool,
    /// Bytes that the origin took since the last query.
    bytes: AtomicU64,
    has_length: bool,
    ended: AtomicBool,
    waiting: AtomicBool,
    wanted: Arc<Notify>,
}

impl Upload {
    /// Whether the origin took a piece since the last call. If the length of the body is known, it must have taken at
    /// least `bytes_min` bytes, or the rest.
    pub(crate) fn has_advanced(&self, bytes_min: u64) -> bool {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        let enough = !self.has_length || bytes >= bytes_min || self.ended.load(Ordering::Relaxed);
        self.advanced.swap(false, Ordering::Relaxed) && enough
    }

    /// A held body is sent when this is notified.
    pub(crate) fn wanted(&self) -> Arc<Notify> {
        Arc::clone(&self.wanted)
    }

    /// Sends a held body without a response of the origin.
    pub(crate) fn send(&self) {
        self.wanted.notify_one();
    }

    /// Whether the client has to send the next piece.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// The body of a client's request.
pub(crate) struct RequestBody {
    inner: Limited<Body>,
    upload: Arc<Upload>,
    /// Ready when the origin wants the body. Until then, the body reads nothing from the client, which waits for that.
    held: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl RequestBody {
    /// Wraps `inner` so that its progress can be watched. If `held`, it waits for 100 (Continue) from the origin. An
    /// empty body needs no wrapper.
    pub(crate) fn wrap(inner: Limited<Body>, held: bool) -> (Body, Option<Arc<Upload>>) {
        if inner.is_end_stream() {
            return (empty(), None);
        }
        let has_length = inner.size_hint().exact().is_some();
        let upload = Arc::new(Upload { has_length, ..Upload::default() });
        let held = held.then(|| until_wanted(Arc::clone(&upload.wanted)));
        let body = Self { inner, upload: Arc::clone(&upload), held };
        (body.boxed_unsync(), Some(upload))
    }
}

fn until_wanted(wanted: Arc<Notify>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        // After the timeout, the body is sent too.
        let _ = timeout(CONTINUE_TIMEOUT, wanted.notified()).await;
    })
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(held) = &mut self.held {
            ready!(held.as_mut().poll(cx));
            self.held = None;
        }
        let mut frame = Pin::new(&mut self.inner).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &mut frame {
            fields::clean_frame(frame);
        }
        self.upload.waiting.store(frame.is_pending(), Ordering::Relaxed);
        if let Poll::Ready(frame) = &frame {
            self.upload.advanced.store(true, Ordering::Relaxed);
            let len = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()).map_or(0, Bytes::len);
            self.upload.bytes.fetch_add(len as u64, Ordering::Relaxed);
            if frame.is_none() || self.inner.is_end_stream() {
                self.upload.ended.store(true, Ordering::Relaxed);
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether an upload is in progress after a period in which `bytes` bytes arrived and 100 are required.
    fn goes_on(has_length: bool, bytes: u64, ended: bool) -> bool {
        let upload = Upload { has_length, ..Upload::default() };
        upload.advanced.store(bytes > 0, Ordering::Relaxed);
        upload.bytes.store(bytes, Ordering::Relaxed);
        upload.ended.store(ended, Ordering::Relaxed);
        let goes_on = upload.has_advanced(100);
        assert!(!upload.has_advanced(100), "nothing came since");
        goes_on
    }

    #[test]
    fn an_upload_whose_length_is_known_may_not_crawl() {
        for has_length in [true, false] {
            assert!(!goes_on(has_length, 0, false));
            assert_eq!(goes_on(has_length, 99, false), !has_length);
            assert!(goes_on(has_length, 100, false));
            assert!(goes_on(has_length, 1, true), "that was the rest");
        }
    }
}
