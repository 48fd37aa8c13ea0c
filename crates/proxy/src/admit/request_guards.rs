//! Values that a request holds until the body of its response, or its tunnel, has ended.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use watari_admission::InProgress;
use watari_body::{Body, BoxError, Departure};

use crate::admit::queue::Place;
use crate::observe::access_log::Record;
use crate::observe::log_line::Ending;
use crate::transport::tunnel::{Tunnel, TunnelBroken, TunnelGuard};

/// The values of a request in progress.
#[derive(Debug, Default)]
pub(crate) struct RequestGuards {
    /// The slot among the requests of its client.
    pub(crate) in_progress: Option<InProgress>,
    /// The slot at the origins.
    pub(crate) place: Option<Place>,
    /// The record for the access log.
    pub(crate) record: Option<Record>,
}

impl RequestGuards {
    /// Holds the values until the response's body has ended or is dropped. If a tunnel follows, holds them until that
    /// has ended.
    pub(crate) fn until_end_of(mut self, response: Response<Body>) -> Response<Body> {
        if let Some(record) = &mut self.record {
            record.answered(response.status());
        }
        if self.is_empty() {
            return response;
        }
        if Tunnel::is_in(response.extensions()) {
            Tunnel::keep(response.extensions(), Box::new(self));
            return response;
        }
        let (mut head, body) = response.into_parts();
        // Only the record depends on it.
        let departure = self.record.is_some().then(Departure::default);
        if let Some(departure) = &departure {
            head.extensions.insert(departure.clone());
        }
        Response::from_parts(head, Attended::new(body, self, departure).boxed_unsync())
    }

    /// Counts bytes that are being sent to the client.
    fn sent(&mut self, bytes: usize) {
        self.record.iter_mut().for_each(|record| record.sent(bytes));
    }

    /// Releases all values.
    fn end(mut self, ending: Ending) {
        self.record.iter_mut().for_each(|record| record.ended(ending));
    }

    fn is_empty(&self) -> bool {
        self.in_progress.is_none() && self.place.is_none() && self.record.is_none()
    }
}

impl TunnelGuard for RequestGuards {
    fn relayed(&mut self, bytes: usize) {
        self.sent(bytes);
    }

    fn ended(self: Box<Self>, result: &Result<(), TunnelBroken>) {
        self.end(match result {
            Ok(()) => Ending::Complete,
            Err(TunnelBroken::Client(_)) => Ending::ClientLeft,
            Err(TunnelBroken::Origin(_)) => Ending::Cut,
            Err(TunnelBroken::Silent(_)) => Ending::Silent,
        });
    }
}

/// A body that holds values until it ends.
struct Attended {
    body: Body,
    kept: Option<RequestGuards>,
    departure: Option<Departure>,
}

impl Attended {
    fn new(body: Body, kept: RequestGuards, departure: Option<Departure>) -> Self {
        let mut request_guards = Self { body, kept: Some(kept), departure };
        request_guards.look_for_end();
        request_guards
    }

    fn end(&mut self, ending: Ending) {
        if let Some(kept) = self.kept.take() {
            kept.end(ending);
        }
    }

    /// Detects the end of the body early: for a body of known length, the sender does not poll again after the last
    /// byte.
    fn look_for_end(&mut self) {
        if self.body.is_end_stream() {
            self.end(Ending::Complete);
        }
    }

    fn count(&mut self, frame: &Frame<Bytes>) {
        if let Some(kept) = &mut self.kept {
            kept.sent(frame.data_ref().map_or(0, Bytes::len));
        }
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        if self.departure.as_ref().is_some_and(Departure::has_departed) {
            self.end(Ending::Moved);
        }
    }
}

impl http_body::Body for Attended {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                this.count(frame);
                this.look_for_end();
            }
            Some(Err(_)) => this.end(Ending::Cut),
            None => this.end(Ending::Complete),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
