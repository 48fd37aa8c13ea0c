//! The body of an origin's response.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};
use watari_balance::Outcome;
use watari_body::Body;
use watari_handover::{SeamError, TooLong};

use crate::exchange::fields;
use crate::exchange::limits::Limits;
use crate::observe::metrics::BodyCounters;
use crate::observe::progress::{Progress, TooSlow};
use crate::pool::health::Watch;
use crate::transport::connections::Lease;

/// Why a response was not completed. The origin is always at fault.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResponseBodyError {
    #[error("the origin cut its response short")]
    Cut(#[source] hyper::Error),
    #[error("the origin stopped in the middle of its response")]
    Stalled,
    #[error("the origin sent its response too slowly")]
    TooSlow(#[from] TooSlow),
    #[error("the origin ended its response before its announced length")]
    Short,
    #[error("the other origin does not continue the response")]
    Seam(#[from] SeamError),
}

impl From<TooLong> for ResponseBodyError {
    fn from(error: TooLong) -> Self {
        Self::Seam(error.into())
    }
}

/// The body of an origin's response. At its end, the connection returns to the pool.
pub(crate) struct ResponseBody {
    inner: Incoming,
    lease: Option<Lease>,
    limit: Duration,
    /// `None` if the length of the body is unknown.
    progress: Option<Progress>,
    /// Armed while the body waits for the origin. Created at the first wait, because many bodies need none.
    timer: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    counters: BodyCounters,
    watch: Option<(Watch, StatusCode)>,
}

impl ResponseBody {
    /// `limits` has the timeout for the next piece, which is also the timeout for the connection to become ready at the
    /// end, and the minimum rate.
    pub(crate) fn new(inner: Incoming, lease: Lease, limits: &Limits, counters: BodyCounters) -> Self {
        let limit = limits.body_timeout;
        let progress = inner.size_hint().exact().map(|_| Progress::new(limits.body_bytes_per_s_min, limit));
        let mut body = Self { lease: Some(lease), limit, progress, ..Self::none(inner, counters) };
        if body.inner.is_end_stream() {
            body.release();
        }
        body
    }

    /// The body of a response without content, whose connection is used for another protocol.
    pub(crate) fn none(inner: Incoming, counters: BodyCounters) -> Self {
        Self {
            inner,
            lease: None,
            limit: Duration::ZERO,
            progress: None,
            timer: None,
            waiting: false,
            counters,
            watch: None,
        }
    }

    /// Reports the end of the body to `watch`. A status that counts as a failure, or a body that has ended, is reported
    /// at once.
    pub(super) fn watch(&mut self, watch: Watch, status: StatusCode) {
        let outcome = Outcome::Answered(status.as_u16());
        if self.lease.is_none() || outcome.failed() == Some(true) {
            watch.ended(outcome);
        } else {
            self.watch = Some((watch, status));
        }
    }

    pub(crate) fn boxed(self) -> Body {
        self.map_err(Into::into).boxed_unsync()
    }

    fn release(&mut self) {
        if let Some((watch, status)) = self.watch.take() {
            watch.ended(Outcome::Answered(status.as_u16()));
        }
        if let Some(lease) = self.lease.take() {
            lease.release(self.limit);
        }
    }

    /// Drops the body because its origin sends nothing, or too little.
    pub(crate) fn leave_stalled(mut self) {
        self.lease = None;
        if let Some((watch, _)) = self.watch.take() {
            watch.ended(Outcome::TimedOut);
        }
    }

    /// Closes the connection.
    fn fail(&mut self, error: ResponseBodyError) -> ResponseBodyError {
        self.lease = None;
        self.counters.cut.inc();
        if let Some((watch, _)) = self.watch.take() {
            let stalled = matches!(error, ResponseBodyError::Stalled | ResponseBodyError::TooSlow(_));
            watch.ended(if stalled { Outcome::TimedOut } else { Outcome::Broken });
        }
        error
    }

    /// Counts received bytes.
    fn advance(&mut self, bytes: u64) -> Result<(), TooSlow> {
        let Some(progress) = &mut self.progress else { return Ok(()) };
        progress.came(Instant::now(), bytes)
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if !self.waiting {
            let now = Instant::now();
            timer.as_mut().reset(now + limit);
            self.waiting = true;
            self.progress.iter_mut().for_each(|progress| progress.waits(now));
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
            Some(Ok(mut frame)) => {
                fields::clean_frame(&mut frame);
                let len = frame.data_ref().map_or(0, Bytes::len) as u64;
                self.counters.bytes.inc_by(len);
                if self.inner.is_end_stream() {
                    self.release();
                } else if let Err(error) = self.advance(len) {
                    return Poll::Ready(Some(Err(self.fail(error.into()))));
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
