//! Requests in progress: their limit, their number, and whether their clients take the responses.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::upgrade::OnUpgrade;
use watari_body::{Body, BoxError};
use watari_proxy::Client;

use crate::AgentShared;
use crate::early_data::Gate;
use crate::places::Place;
use crate::stalls::{Exchange, Stalls, Watched};
use crate::strict;
use crate::tunnel::Tunnel;

/// Answers one request that passes the `gate`, if a request slot is free. The slot is taken until the response's body,
/// or the tunnel that follows it, is dropped. `stalls` is notified if the client does not take the response or does not
/// send the request.
pub(crate) async fn answer<B>(
    shared: &AgentShared,
    request: Request<B>,
    client: &Client,
    stalls: &Arc<Stalls>,
    gate: Gate,
) -> Answer
where
    B: HttpBody<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    shared.metrics.requests.inc();
    let exchange = Exchange::on(stalls);
    let is_head = request.method() == Method::HEAD;
    let (response, place) = respond(shared, request, client, &exchange, gate).await;
    let mut response = if is_head { watari_body::without_content(response) } else { response };
    let (tunnel, place) = match (watari_proxy::Tunnel::take(&mut response), place) {
        (Some(origin), Some(place)) => (Some(Box::new(Tunnel::new(shared, origin, place))), None),
        (_, place) => (None, place),
    };
    let response = response.map(|body| shared.transfers.send(GuardedBody { body, _kept: place }, &exchange));
    Answer { response, tunnel }
}

pub(crate) struct Answer {
    pub(crate) response: Response<Watched<GuardedBody<Body, Option<Place>>>>,
    /// The tunnel that follows the response. Boxed, because few responses have one.
    pub(crate) tunnel: Option<Box<Tunnel>>,
}

/// The response, and the request slot that it takes. A refusal takes none.
async fn respond<B>(
    shared: &AgentShared,
    request: Request<B>,
    client: &Client,
    exchange: &Arc<Exchange>,
    gate: Gate,
) -> (Response<Body>, Option<Place>)
where
    B: HttpBody<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    let settings = shared.settings.get();
    if let Err(irregular) = strict::check(&request, &settings.limits) {
        tracing::info!(client = %client.address(), cause = %irregular, "request refused");
        return (irregular.response(), None);
    }
    let Some(place) = shared.requests.take() else {
        tracing::info!(client = %client.address(), "request refused: too many are in progress");
        shared.metrics.requests_refused.inc();
        return (too_many_requests(), None);
    };
    let Some(request) = gate.admit(request).await else { return (too_early(), None) };
    let request = request.map(|body| shared.transfers.receive(body, exchange));
    (settings.site.respond(request, client).await, Some(place))
}

fn too_many_requests() -> Response<Body> {
    let mut response = refusal(StatusCode::SERVICE_UNAVAILABLE, "Too many requests are in progress.\n");
    response.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    response
}

/// The client never gets this, because the connection ends. The service has to return a response.
fn too_early() -> Response<Body> {
    refusal(StatusCode::TOO_EARLY, "The TLS handshake failed.\n")
}

/// A response with a short text.
pub(crate) fn refusal(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(watari_body::full(text));
    *response.status_mut() = status;
    let content_type = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
    response
}

#[derive(Default)]
pub(crate) struct Streams {
    open: AtomicUsize,
    start: AtomicUsize,
    /// The number of tunnels among `open`.
    tunnels: AtomicUsize,
    /// Woken when the last open request ends, or when one becomes a tunnel.
    waits: Mutex<Option<Waker>>,
}

/// A request, from its head to the end of its response.
pub(crate) struct OpenStream {
    streams: Arc<Streams>,
    is_tunnel: bool,
}

impl Streams {
    pub(crate) fn begin(self: &Arc<Self>) -> OpenStream {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.start.fetch_add(1, Ordering::Relaxed);
        OpenStream { streams: self.clone(), is_tunnel: false }
    }

    /// The number of open requests.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Whether none is open, and none was begun since the last call.
    pub(crate) fn were_idle(&self, start: &mut usize) -> bool {
        // The first call is at the start of the connection, when no request can have begun.
        let before = std::mem::replace(start, self.start.load(Ordering::Relaxed) + 1);
        self.open() == 0 && before == *start
    }

    /// The number of requests begun so far.
    pub(crate) fn start(&self) -> usize {
        self.start.load(Ordering::Acquire)
    }

    /// Whether all responses have ended. With a tunnel on the connection this is always `true`: the tunnel's origin has
    /// to get the client's end.
    pub(crate) fn are_over(&self) -> bool {
        self.tunnels.load(Ordering::Acquire) > 0 || self.open.load(Ordering::Acquire) == 0
    }

    pub(crate) fn wake_when_closed(&self, waker: &Waker) {
        *self.waits() = Some(waker.clone());
    }

    fn wake(&self) {
        let waker = self.waits().take();
        waker.into_iter().for_each(Waker::wake);
    }

    fn waits(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenStream {
    /// Keeps the stream open until the response's body is dropped.
    pub(crate) fn keep<B>(self, body: B) -> GuardedBody<B, Option<Self>> {
        GuardedBody { body, _kept: Some(self) }
    }

    /// Makes the stream a tunnel, and keeps it open until the tunnel ends.
    pub(crate) fn become_tunnel<B>(
        mut self,
        body: B,
        tunnel: Tunnel,
        upgrading: OnUpgrade,
    ) -> GuardedBody<B, Option<Self>> {
        self.is_tunnel = true;
        self.streams.tunnels.fetch_add(1, Ordering::AcqRel);
        self.streams.wake();
        tokio::spawn(tunnel.on_stream(upgrading, self));
        GuardedBody { body, _kept: None }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        if self.is_tunnel {
            self.streams.tunnels.fetch_sub(1, Ordering::AcqRel);
        }
        if self.streams.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.streams.wake();
        }
    }
}

/// A body, and a value that is dropped with it.
pub(crate) struct GuardedBody<B, K> {
    body: B,
    _kept: K,
}

impl<B: HttpBody + Unpin, K: Unpin> HttpBody for GuardedBody<B, K> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_were_idle_if_nothing_was_open_between_two_looks() {
        let (streams, mut start) = (Arc::new(Streams::default()), 0);
        assert!(!streams.were_idle(&mut start), "the first look sees nothing yet");
        assert!(streams.were_idle(&mut start));
        let stream = streams.begin();
        assert!(!streams.were_idle(&mut start));
        assert!(!streams.were_idle(&mut start), "one is open");
        drop(stream);
        assert!(streams.were_idle(&mut start));
        drop(streams.begin());
        assert!(!streams.were_idle(&mut start), "one came and went");
        assert!(streams.were_idle(&mut start));
    }
}
