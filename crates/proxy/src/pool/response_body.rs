//! The body of an origin's response.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::{Instant, Sleep};
use watari_balance::Outcome;
use watari_body::{Body, BoxError};
use watari_handover::{SeamError, TooLong};

use crate::exchange::error::ExchangeError;
use crate::exchange::fields;
use crate::exchange::limits::Limits;
use crate::observe::metrics::BodyCounters;
use crate::observe::progress::{Progress, TooSlow};
use crate::pool::health::Watch;
use crate::transport::connections::Lease;
use crate::transport::content::ResponseContent;
use crate::transport::relay::Relayed;

/// Why a response was not completed. The origin is at fault, except for `Upload`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResponseBodyError {
    #[error("the origin cut its response short")]
    Cut(#[source] ExchangeError),
    #[error("the request was cut short, and with it the response")]
    Upload(#[source] BoxError),
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
    content: ResponseContent,
    lease: Option<Lease>,
    /// Whether the response is complete, or has failed.
    is_over: bool,
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
    /// `limits` has the timeout for the next piece, which is also the timeout for the rest of the request after the
    /// response, and the minimum rate.
    pub(crate) fn new(content: ResponseContent, lease: Lease, limits: &Limits, counters: BodyCounters) -> Self {
        let limit = limits.body_timeout;
        let progress = content.size_hint().exact().map(|_| Progress::new(limits.body_bytes_per_s_min, limit));
        let (content, lease) = match content {
            ResponseContent::Http1(exchange) if !exchange.is_sent() => {
                (ResponseContent::Relayed(Relayed::start(exchange, lease, limit)), None)
            }
            content => (content, Some(lease)),
        };
        let mut body = Self { content, lease, is_over: false, limit, progress, ..Self::none(counters) };
        if body.content.is_end_stream() {
            body.release();
        }
        body
    }

    /// The body of a response without content, whose connection is used for another protocol.
    pub(crate) fn none(counters: BodyCounters) -> Self {
        Self {
            content: ResponseContent::None,
            lease: None,
            is_over: true,
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
        if self.is_over || outcome.failed() == Some(true) {
            watch.ended(outcome);
        } else {
            self.watch = Some((watch, status));
        }
    }

    pub(crate) fn boxed(self) -> Body {
        self.map_err(Into::into).boxed_unsync()
    }

    fn release(&mut self) {
        self.is_over = true;
        if let Some((watch, status)) = self.watch.take() {
            watch.ended(Outcome::Answered(status.as_u16()));
        }
        let connection = mem::replace(&mut self.content, ResponseContent::None).into_connection();
        if let Some(lease) = self.lease.take() {
            lease.release(connection);
        }
    }

    /// Drops the body because its origin sends nothing, or too little.
    pub(crate) fn leave_stalled(mut self) {
        if let Some((watch, _)) = self.watch.take() {
            watch.ended(Outcome::TimedOut);
        }
    }

    /// Closes the connection.
    fn fail(&mut self, error: ResponseBodyError) -> ResponseBodyError {
        (self.content, self.lease, self.is_over) = (ResponseContent::Failed, None, true);
        self.counters.cut.inc();
        if let Some((watch, _)) = self.watch.take() {
            watch.ended(match error {
                ResponseBodyError::Stalled | ResponseBodyError::TooSlow(_) => Outcome::TimedOut,
                ResponseBodyError::Upload(_) => Outcome::Abandoned,
                ResponseBodyError::Cut(_) | ResponseBodyError::Short | ResponseBodyError::Seam(_) => Outcome::Broken,
            });
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
        let Poll::Ready(frame) = self.content.poll_frame(cx) else {
            ready!(self.poll_timer(cx));
            return Poll::Ready(Some(Err(self.fail(ResponseBodyError::Stalled))));
        };
        self.waiting = false;
        Poll::Ready(match frame {
            Some(Err(error)) => {
                let error = error.into_upload().map_or_else(ResponseBodyError::Cut, ResponseBodyError::Upload);
                Some(Err(self.fail(error)))
            }
            Some(Ok(mut frame)) => {
                fields::clean_frame(&mut frame);
                let len = frame.data_ref().map_or(0, Bytes::len) as u64;
                self.counters.bytes.inc_by(len);
                if self.content.is_end_stream() {
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
        self.content.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.content.size_hint()
    }
}
