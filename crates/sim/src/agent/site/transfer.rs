//! A response that continues at another origin, if its own fails, or by order. Mirrors `transfer/body.rs` of
//! `crates/proxy`. The orders come from the seed instead of a governor.

use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_RANGE};
use http::{HeaderValue, StatusCode, request, response};
use watari_handover::{Continuation, Seam, Transfer};

use super::Site;
use super::exchange::{Exchange, Failure};
use crate::network::NodeId;
use crate::sabotage::Sabotage;

/// The longest wait for the present origin to reach the seam.
const SEAM_WAIT_MAX: Duration = Duration::from_secs(1);

/// The most attempts without a byte for the client, for each origin.
const ATTEMPTS_MAX: usize = 3;

/// The distance to the next order, in bytes, at most.
const ORDER_LEN_MAX: u64 = 600_000;

/// How far ahead of the position a continuation begins, in bytes, at most.
const AHEAD_MAX: u64 = 60_000;

pub(crate) struct TransferBody {
    site: Site,
    transfer: Transfer,
    request: request::Parts,
    /// The validator of the first response, for the broken variants.
    etag: Option<HeaderValue>,
    source: Result<Source, Failure>,
    next: Next,
    /// Origins that cannot continue it.
    refused: Vec<NodeId>,
    /// The last origin asked because another had failed.
    asked: NodeId,
    /// Attempts since the last byte for the client.
    attempts: usize,
    /// The position at which the next order to move comes.
    order_at: u64,
}

/// The origin that delivers.
struct Source {
    origin: NodeId,
    exchange: Exchange,
    /// Where its body joins the bytes that were delivered before.
    seam: Option<Seam>,
}

/// The origin that may deliver next.
enum Next {
    Nothing,
    Asking { exchange: Exchange, continuation: Continuation },
    Prepared { source: Source, since: Duration },
}

impl TransferBody {
    pub(super) fn new(
        site: &Site,
        transfer: Transfer,
        request: request::Parts,
        etag: Option<HeaderValue>,
        exchange: Exchange,
    ) -> Self {
        let origin = exchange.origin;
        let order_at = transfer.position() + site.network.random(|random| random.below(ORDER_LEN_MAX));
        Self {
            site: site.clone(),
            transfer,
            request,
            etag,
            source: Ok(Source { origin, exchange, seam: None }),
            next: Next::Nothing,
            refused: Vec::new(),
            asked: origin,
            attempts: 0,
            order_at,
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.transfer.is_complete()
    }

    pub(super) fn remaining(&self) -> u64 {
        self.transfer.remaining()
    }

    pub(super) fn poll(&mut self) -> Poll<Option<Result<Bytes, Failure>>> {
        while !self.transfer.is_complete() {
            self.take_order();
            self.poll_asking();
            self.join();
            if self.source.is_err() && matches!(self.next, Next::Nothing) {
                if let Err(failure) = self.go_on() {
                    return Poll::Ready(Some(Err(failure)));
                }
                continue;
            }
            match self.poll_source() {
                Poll::Pending if self.is_seam_late() => {}
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(piece)) if piece.is_empty() => {}
                Poll::Ready(Ok(piece)) => {
                    self.attempts = 0;
                    return Poll::Ready(Some(Ok(piece)));
                }
                Poll::Ready(Err(failure)) => self.lost(failure),
            }
        }
        Poll::Ready(None)
    }

    /// Asks some other origin, if it is time for that.
    fn take_order(&mut self) {
        let Ok(source) = &self.source else { return };
        if self.transfer.position() < self.order_at || !matches!(self.next, Next::Nothing) {
            return;
        }
        let others: Vec<_> = self.site.origins.nodes.clone().filter(|origin| *origin != source.origin).collect();
        let (at, ahead, more) = self.site.network.random(|random| {
            (random.below(others.len() as u64), random.below(AHEAD_MAX), random.within(1..ORDER_LEN_MAX))
        });
        self.order_at = self.transfer.position() + more;
        if let Some(origin) = others.get(at as usize) {
            let _nearly_complete = self.ask(*origin, self.transfer.position() + ahead);
        }
    }

    /// Asks an origin for the rest from `at` on.
    fn ask(&mut self, origin: NodeId, at: u64) -> Result<(), watari_handover::Stays> {
        let continuation = self.transfer.continuation(at)?;
        let mut request = self.request.clone();
        continuation.request(&mut request.headers);
        if self.site.sabotage == Some(Sabotage::ValidatorNotCompared) {
            request.headers.remove(IF_RANGE);
        }
        let exchange = Exchange::new(&self.site, origin, &request);
        self.next = Next::Asking { exchange, continuation };
        Ok(())
    }

    /// Checks whether the origin that is asked has responded.
    fn poll_asking(&mut self) {
        let Next::Asking { exchange, .. } = &mut self.next else { return };
        let Poll::Ready(head) = exchange.poll_head() else { return };
        let Next::Asking { exchange, continuation } = std::mem::replace(&mut self.next, Next::Nothing) else { return };
        let origin = exchange.origin;
        let Ok(mut head) = head else { return };
        self.falsify(&mut head, &continuation);
        match continuation.accept(head.status, &head.headers) {
            Ok(seam) => {
                let since = self.site.network.now();
                self.site.network.wake_in(self.site.node, SEAM_WAIT_MAX);
                self.next = Next::Prepared { source: Source { origin, exchange, seam: Some(seam) }, since };
            }
            Err(refusal) => {
                self.site.network.note(|| format!("{origin} does not continue a response: {refusal}"));
                self.site.network.count(|figures| figures.handovers_refused += 1);
                self.refused.push(origin);
            }
        }
    }

    /// The broken variants, which do not check the head.
    fn falsify(&self, head: &mut response::Parts, continuation: &Continuation) {
        match (self.site.sabotage, &self.etag) {
            (Some(Sabotage::ValidatorNotCompared), Some(etag)) => {
                head.headers.insert(ETAG, etag.clone());
            }
            (Some(Sabotage::WholeAppended), _) if head.status == StatusCode::OK => {
                let range = continuation.range();
                let value = format!("bytes {}-{}/{}", range.start, range.end - 1, self.transfer.total());
                head.status = StatusCode::PARTIAL_CONTENT;
                head.headers.remove(CONTENT_LENGTH);
                head.headers.insert(CONTENT_RANGE, HeaderValue::try_from(value).expect("digits"));
            }
            _ => {}
        }
    }

    /// The other origin takes over, if the source has reached the seam.
    fn join(&mut self) {
        let Next::Prepared { source, .. } = &self.next else { return };
        let owed = source.seam.as_ref().map_or(0, |seam| seam.owed(&self.transfer));
        if owed > 0 && self.source.is_ok() {
            return;
        }
        if let Next::Prepared { source, .. } = std::mem::replace(&mut self.next, Next::Nothing)
            && owed == 0
        {
            self.site.network.note(|| format!("{} continues at {}", self.request.uri, source.origin));
            self.site.network.count(|figures| figures.handovers += 1);
            self.source = Ok(source);
        }
    }

    /// The source has not reached the seam in time: the other origin is asked again, from the present position.
    fn is_seam_late(&mut self) -> bool {
        let now = self.site.network.now();
        match &self.next {
            Next::Prepared { source, since } if now >= *since + SEAM_WAIT_MAX => {
                let origin = source.origin;
                self.next = Next::Nothing;
                let _nearly_complete = self.ask(origin, self.transfer.position());
                true
            }
            _ => false,
        }
    }

    /// The source will deliver no more bytes.
    fn lost(&mut self, failure: Failure) {
        self.site.network.note(|| format!("{} is cut: {failure}", self.request.uri));
        self.source = Err(failure);
        if let Next::Asking { continuation, .. } = &self.next
            && continuation.range().start > self.transfer.position()
        {
            self.next = Next::Nothing;
        }
    }

    /// Asks the next origin that may continue after the lost one.
    fn go_on(&mut self) -> Result<(), Failure> {
        let origins = self.site.origins.nodes.clone();
        let lost = self.source.as_ref().map_or_else(Failure::clone, |_| Failure(String::new()));
        self.attempts += 1;
        let after = (self.asked + 1..origins.end).chain(origins.start..=self.asked);
        let mut able = after.filter(|origin| !self.refused.contains(origin));
        let origin = able.next().filter(|_| self.attempts <= ATTEMPTS_MAX * origins.len()).ok_or(lost.clone())?;
        self.asked = origin;
        self.ask(origin, self.transfer.position()).map_err(|_| lost)
    }

    /// The next piece for the client. It is empty while the source repeats bytes.
    fn poll_source(&mut self) -> Poll<Result<Bytes, Failure>> {
        let Ok(source) = &mut self.source else { return Poll::Pending };
        source.exchange.poll_data().map(|data| match data? {
            Some(piece) => source.join(&mut self.transfer, piece),
            None => Err(Failure("the response was too short".to_owned())),
        })
    }
}

impl Source {
    fn join(&mut self, transfer: &mut Transfer, piece: Bytes) -> Result<Bytes, Failure> {
        let is_skipped = self.exchange.site.sabotage != Some(Sabotage::OverlapNotSkipped);
        if let Some(seam) = self.seam.as_mut().filter(|_| is_skipped) {
            return seam.take(transfer, piece).map_err(|error| Failure(error.to_string()));
        }
        transfer.delivered(&piece).map_err(|error| Failure(error.to_string()))?;
        Ok(piece)
    }
}
