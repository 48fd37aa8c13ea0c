//! The body of a response that can continue at another origin.
//!
//! ```text
//!                  order, or the origin fails          accepted
//!   source alone ------------------------------> asking ------> prepared
//!        ^   ^                                     | refused        | the source has reached the seam, or has ended
//!        |   +-------------------------------------+                |
//!        +----------------------------------------------------------+ the other origin is the source
//! ```
//!
//! An origin may stop sending at any moment without an error. A move never depends on such an origin:
//!
//! * If the source has stopped, the other origin is asked at once for the bytes after the current position.
//! * If the source stops, or is too slow, before the seam, the other origin is asked again from the position reached by
//!   then.
//! * If the origin that is asked does not respond either, an order replaces it by a third one.
//!
//! The source delivers until the other origin takes over, so a failed attempt does no harm. [`watari_handover`] defines
//! the seam, and the evidence that origins must give.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use http_body::{Body as _, Frame, SizeHint};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep};
use watari_body::BoxedRequest;
use watari_handover::governor::{Cause, Order, OriginId};
use watari_handover::{Continuation, Seam, Transfer};

use crate::exchange::client::Client;
use crate::exchange::failure::Failure;
use crate::observe::access_log::RequestTrace;
use crate::observe::progress::Progress;
use crate::pool::origin::Outcome;
use crate::pool::response_body::{ResponseBody, ResponseBodyError};
use crate::transfer::comparison;
use crate::transfer::running::{Resource, Running};
use crate::transfer::transfers::{Registered, Transfers};

/// The body of a response to a client.
pub(super) struct TransferBody {
    transfers: Arc<Transfers>,
    transfer: Transfer,
    request: RunningRequest,
    registered: Registered,
    orders: mpsc::Receiver<Order>,
    source: Result<Source, Option<ResponseBodyError>>,
    next: Next,
    /// The progress over all origins. Otherwise each could send some bytes and be left, without end.
    progress: Progress,
}

/// The request of the transfer, and its client.
pub(super) struct RunningRequest {
    pub(super) again: Box<Parts>,
    pub(super) client: Client,
    pub(super) trace: Arc<RequestTrace>,
}

/// The origin that delivers.
pub(super) struct Source {
    pub(super) origin: OriginId,
    pub(super) body: ResponseBody,
    /// Where its body joins the bytes that were delivered before.
    pub(super) seam: Option<Seam>,
}

/// The origin that may deliver next.
enum Next {
    Nothing,
    Asking(Asking),
    Prepared(Prepared),
}

/// Another origin is asked for the rest.
struct Asking {
    attempt: Attempt,
    continuation: Continuation,
    answer: Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Failure>> + Send>>,
}

/// Another origin has accepted, and takes over at the seam.
struct Prepared {
    attempt: Attempt,
    source: Source,
    /// How long the transfer had waited for its origins when the other one accepted.
    waited: Duration,
    /// Armed while the body waits for the present source.
    timer: Option<Pin<Box<Sleep>>>,
}

/// The maximum total wait for the source until it reaches the seam. It is expected there when the other origin accepts.
const SEAM_WAIT_MAX: Duration = Duration::from_secs(1);

/// The origin that is asked, and the cause.
#[derive(Clone, Copy)]
struct Attempt {
    origin: OriginId,
    cause: Cause,
    /// The offset where its bytes join those of the source.
    at: u64,
    begun: Instant,
}

impl TransferBody {
    pub(super) fn new(
        transfers: &Arc<Transfers>,
        transfer: Transfer,
        resource: Resource,
        request: RunningRequest,
        source: Source,
    ) -> Self {
        let RunningRequest { again, client, .. } = &request;
        comparison::compare(transfers, &transfer, &resource, source.origin, again, client);
        let (registered, orders) = transfers.begin(source.origin, &transfer, resource, client);
        let limits = transfers.pool().origin(source.origin).limits();
        let progress = Progress::new(limits.body_bytes_per_s_min, limits.response_timeout + limits.body_timeout);
        let (transfers, source) = (Arc::clone(transfers), Ok(source));
        Self { transfers, transfer, request, registered, orders, source, next: Next::Nothing, progress }
    }

    fn running(&self) -> &Running {
        self.registered.running()
    }

    /// Receives orders. While another origin is asked, only an order that replaces it counts.
    fn poll_orders(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some(order)) = self.orders.poll_recv(cx) {
            let asked = match &self.next {
                Next::Nothing => None,
                Next::Asking(Asking { attempt, .. }) | Next::Prepared(Prepared { attempt, .. }) => Some(attempt.origin),
            };
            match asked {
                _ if order.from != self.running().progress().origin => {}
                // After a failure, the transfer itself asks for an origin at once.
                None if self.source.is_err() => {}
                None => self.follow(order),
                Some(asked) if order.cause == Cause::Stalled && order.to != asked => {
                    self.refused(asked, SILENT);
                    self.follow(order);
                }
                Some(_) => {}
            }
        }
    }

    fn follow(&mut self, order: Order) {
        let ahead = match order.cause {
            // The source may send no more bytes.
            Cause::Failed | Cause::Stalled | Cause::Slow => 0,
            Cause::Draining | Cause::Unequal | Cause::Manual => {
                self.transfers.bytes_until_answer(order.to, self.running())
            }
        };
        // If no continuation is possible, the transfer is nearly complete.
        let _ = self.ask(order.to, order.cause, self.transfer.position().saturating_add(ahead));
    }

    /// Asks an origin for the rest from `at` on.
    fn ask(&mut self, to: OriginId, cause: Cause, at: u64) -> Result<(), watari_handover::Stays> {
        let continuation = self.transfer.continuation(at)?;
        let mut again = BoxedRequest::without_content(Parts::clone(&self.request.again));
        continuation.request(&mut again.head.headers);
        let (origin, client) = (Arc::clone(self.transfers.pool().origin(to)), self.request.client.clone());
        let answer = Box::pin(async move {
            match origin.exchange(&mut again, None, &client).await {
                Outcome::Answered(response) => Ok(response),
                Outcome::Untouched(failure) | Outcome::Failed(failure) => Err(failure),
            }
        });
        let attempt = Attempt { origin: to, cause, at: at.max(self.transfer.position()), begun: Instant::now() };
        self.running().set_moving(Some(to));
        self.next = Next::Asking(Asking { attempt, continuation, answer });
        Ok(())
    }

    /// Checks whether the origin that is asked has responded.
    fn poll_asking(&mut self, cx: &mut Context<'_>) {
        let Next::Asking(asking) = &mut self.next else { return };
        let Poll::Ready(answer) = asking.answer.as_mut().poll(cx) else { return };
        let attempt = asking.attempt;
        let prepared = answer.map_err(|failure| failure.reason()).and_then(|response| {
            let seam = asking.continuation.accept(response.status(), response.headers());
            let seam = seam.map_err(watari_handover::Refusal::as_str)?;
            Ok(Source { origin: attempt.origin, body: response.into_body(), seam: Some(seam) })
        });
        match prepared {
            Ok(source) => {
                self.transfers.resources().learn(self.running().resource().id(), attempt.origin, None);
                let waited = self.running().waited();
                self.next = Next::Prepared(Prepared { attempt, source, waited, timer: None });
            }
            Err(reason) => self.refused(attempt.origin, reason),
        }
    }

    /// The origin does not continue the transfer. None of its bytes has reached the client.
    fn refused(&mut self, origin: OriginId, reason: &'static str) {
        self.next = Next::Nothing;
        self.running().set_moving(None);
        self.does_not_have_it(origin, reason);
        self.transfers.stays(self.running());
        self.transfers.count_refusal(origin, reason);
        let resource = self.running().resource().name();
        tracing::info!(resource, origin = %self.transfers.pool().origin(origin).address, reason, "transfer refused");
    }

    fn does_not_have_it(&self, origin: OriginId, reason: &'static str) {
        let resource = self.running().resource().id();
        self.transfers.refused(resource, origin);
        self.transfers.resources().learn(resource, origin, Some(reason));
    }

    /// The other origin takes over, if the source has reached the seam, or has ended.
    fn join(&mut self) {
        let Next::Prepared(prepared) = &self.next else { return };
        let owed = prepared.source.seam.as_ref().map_or(0, |seam| seam.owed(&self.transfer));
        match (&self.source, owed) {
            (_, 0) => {
                let Next::Prepared(prepared) = std::mem::replace(&mut self.next, Next::Nothing) else { return };
                let Prepared { attempt, source, .. } = prepared;
                let left = std::mem::replace(&mut self.source, Ok(source));
                if let Ok(left) = left
                    && attempt.cause == Cause::Stalled
                {
                    left.body.leave_stalled();
                }
                self.running().moved(attempt.origin);
                self.request.trace.moves_to(&self.transfers.pool().origin(attempt.origin).address);
                self.transfers.count_handover(attempt.origin, attempt.cause, attempt.begun.elapsed());
                let resource = self.running().resource().name();
                let (to, cause) = (&self.transfers.pool().origin(attempt.origin).address, attempt.cause.as_str());
                tracing::info!(resource, %to, cause, position = self.transfer.position(), "transfer moved");
            }
            // The continuation does not begin where the source has ended.
            (Err(_), _) => self.next = Next::Nothing,
            (Ok(_), _) => {}
        }
    }

    /// Checks whether the wait for the source before the seam has reached its limit. If so, asks the same origin again,
    /// from the current position.
    fn poll_seam(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let running = self.registered.running();
        let Next::Prepared(prepared) = &mut self.next else { return Poll::Pending };
        loop {
            let left = SEAM_WAIT_MAX.saturating_sub(running.waited().saturating_sub(prepared.waited));
            if left.is_zero() {
                break;
            }
            ready!(prepared.timer.get_or_insert_with(|| Box::pin(sleep(left))).as_mut().poll(cx));
            prepared.timer = None;
        }
        let Attempt { origin, cause, begun, .. } = prepared.attempt;
        self.next = Next::Nothing;
        if self.ask(origin, cause, self.transfer.position()).is_err() {
            self.running().set_moving(None);
        }
        if let Next::Asking(asking) = &mut self.next {
            asking.attempt.begun = begun;
        }
        Poll::Ready(())
    }

    /// The source will deliver no more bytes.
    fn lost(&mut self, error: ResponseBodyError) {
        if let Ok(source) = &self.source {
            let origin = &self.transfers.pool().origin(source.origin).address;
            tracing::info!(resource = self.running().resource().name(), %origin, %error, "transfer cut");
            if let ResponseBodyError::Seam(error) = &error {
                self.does_not_have_it(source.origin, error.as_str());
            }
        }
        self.source = Err(Some(error));
        if let Next::Asking(asking) = &self.next
            && asking.attempt.at > self.transfer.position()
        {
            self.next = Next::Nothing;
        }
    }

    /// Asks for an origin that continues after the lost one.
    fn go_on(&mut self) -> Result<(), ResponseBodyError> {
        let to = self.transfers.failed(self.running(), &self.transfers.pool().views());
        let asked = to.ok().and_then(|to| self.ask(to, Cause::Failed, self.transfer.position()).ok());
        let lost = match &mut self.source {
            Err(error) => error.take(),
            Ok(_) => None,
        };
        match asked {
            Some(()) => {
                self.source = Err(lost);
                Ok(())
            }
            None => Err(lost.unwrap_or(ResponseBodyError::Short)),
        }
    }

    /// The next piece for the client. It is empty while the source repeats bytes.
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, ResponseBodyError>> {
        let Ok(source) = &mut self.source else { return Poll::Pending };
        Poll::Ready(match ready!(Pin::new(&mut source.body).poll_frame(cx)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) => source.join(&mut self.transfer, piece),
                // Trailers were not announced, and the length determines the end of the body.
                Err(_) => Ok(Bytes::new()),
            },
            Some(Err(error)) => Err(error),
            None => Err(ResponseBodyError::Short),
        })
    }
}

/// The reason for leaving an origin that was asked for the rest and did not respond.
const SILENT: &str = "silent";

impl Source {
    fn join(&mut self, transfer: &mut Transfer, piece: Bytes) -> Result<Bytes, ResponseBodyError> {
        if let Some(seam) = &mut self.seam {
            return Ok(seam.take(transfer, piece)?);
        }
        transfer.delivered(&piece)?;
        Ok(piece)
    }
}

impl http_body::Body for TransferBody {
    type Data = Bytes;
    type Error = ResponseBodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        let this = self.get_mut();
        while !this.transfer.is_complete() {
            this.poll_orders(cx);
            this.poll_asking(cx);
            this.join();
            if this.source.is_err() && matches!(this.next, Next::Nothing) {
                if let Err(error) = this.go_on() {
                    return Poll::Ready(Some(Err(error)));
                }
                continue;
            }
            match this.poll_source(cx) {
                Poll::Pending => {
                    this.running().waits();
                    if let Err(error) = this.progress.goes_on_waiting(Instant::now()) {
                        return Poll::Ready(Some(Err(error.into())));
                    }
                    if this.poll_seam(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
                Poll::Ready(Ok(piece)) if piece.is_empty() => {}
                Poll::Ready(Ok(piece)) => {
                    this.running().delivered(&this.transfer);
                    if let Err(error) = this.progress.came(Instant::now(), piece.len() as u64) {
                        return Poll::Ready(Some(Err(error.into())));
                    }
                    return Poll::Ready(Some(Ok(Frame::data(piece))));
                }
                Poll::Ready(Err(error)) => this.lost(error),
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.transfer.is_complete()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.transfer.remaining())
    }
}
