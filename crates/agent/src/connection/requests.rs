//! Answers requests: their limit, their number, and whether their clients take the responses.

use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body as HttpBody;
use http_body_util::BodyExt as _;
use watari_body::{Body, BoxError, BoxedRequest, Departure, OnInformational};
use watari_connection::{CannotResume, Resume};
use watari_proxy::Client;
use watari_wire::PrepareRefusal;

use super::early_data::gate::Gate;
use super::guarded_body::GuardedBody;
use super::stalls::{Exchange, Stalls, Transfers, Watched};
use super::strict;
use super::tunnel::Tunnel;
use crate::handoff::anchored_stream::AnchoredStream;
use crate::node::metrics::{Counted, Metrics};
use crate::node::slots::{Slot, Slots};
use crate::settings::current::CurrentSettings;
use crate::settings::refusal::refusal;

/// Answers the requests of all connections, from the site in force.
pub(crate) struct Requests {
    settings: Arc<CurrentSettings>,
    metrics: Arc<Metrics>,
    /// A slot for each request in progress.
    slots: Arc<Slots>,
    /// Bodies in transfer.
    transfers: Arc<Transfers>,
}

impl Requests {
    pub(crate) fn new(
        settings: Arc<CurrentSettings>,
        metrics: Arc<Metrics>,
        slots: Arc<Slots>,
        transfers: Arc<Transfers>,
    ) -> Self {
        Self { settings, metrics, slots, transfers }
    }

    /// A request of a client, as it is answered. `stalls` is notified if the client does not take the response or does
    /// not send the request.
    pub(crate) fn receive<B>(
        &self,
        request: Request<B>,
        stalls: &Arc<Stalls>,
        on_informational: Option<OnInformational>,
    ) -> Received
    where
        B: HttpBody<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let exchange = Exchange::on(stalls);
        let mut request = BoxedRequest::from(request.map(|body| self.transfers.receive(body, &exchange)));
        request.on_informational = on_informational;
        Received { request, exchange }
    }

    /// Answers one request that passes the `gate`, if a request slot is free. The slot is taken until the response's
    /// body, or the tunnel that follows it, is dropped.
    pub(crate) async fn answer(&self, received: Received, client: &Client, gate: Gate) -> Answer {
        self.metrics.requests.inc();
        let Received { request, exchange } = received;
        let is_head = request.head.method == Method::HEAD;
        let (response, slot) = self.respond(request, client, gate).await;
        let mut response = if is_head { watari_body::without_content(response) } else { response };
        let (tunnel, slot) = match (watari_proxy::Tunnel::take(&mut response), slot) {
            (Some(origin), Some(slot)) => (Some(Box::new(self.tunnel(origin, slot))), None),
            (_, slot) => (None, slot),
        };
        let departure = response.extensions_mut().remove();
        let guards = ResponseGuards { _slot: slot, departure, anchored: None };
        let response = response.map(|body| self.transfers.send(GuardedBody::new(body, guards), &exchange));
        Answer { response, tunnel }
    }

    /// Whether responses come from origins.
    pub(crate) fn has_origins(&self) -> bool {
        self.settings.get().site.has_origins()
    }

    /// Asks the site for the rest of a response that another agent has begun. Takes a request slot, as for a request.
    pub(crate) async fn continue_response(
        &self,
        resume: &Resume,
        client: &Client,
    ) -> Result<GuardedResponse, PrepareRefusal> {
        let request = BoxedRequest::without_content(resume.request().map_err(refusal_of)?.into_parts().0);
        let slot = self.slots.take().ok_or(PrepareRefusal::Full)?;
        let site = self.settings.get().site.clone();
        let mut response = site.respond(request, client).await;
        let departure = response.extensions_mut().remove();
        let body = resume.accept(response).map_err(refusal_of)?;
        Ok(GuardedResponse(GuardedBody::new(body, ResponseGuards { _slot: Some(slot), departure, anchored: None })))
    }

    /// A slot for a request whose response comes from another agent.
    pub(crate) fn slot(&self) -> Option<Slot> {
        self.slots.take()
    }

    /// A tunnel that continues here, with bytes that its client still has to get.
    pub(crate) fn continue_tunnel(&self, stream: AnchoredStream, slot: Slot, to_client: Bytes) -> Tunnel {
        let silence_max = self.settings.limits().tunnel_timeout;
        Tunnel::anchored(stream, to_client, silence_max, slot, Counted::one_more(&self.metrics.tunnels))
    }

    /// Watches that the client takes a response that another agent has begun.
    pub(crate) fn attend(&self, response: GuardedResponse, stalls: &Arc<Stalls>) -> ResponseBody {
        self.transfers.send(response.0, &Exchange::on(stalls))
    }

    /// The response to a request that HTTP refuses: it is malformed, or exceeds a limit. It takes no slot.
    pub(crate) fn refuse(
        &self,
        status: StatusCode,
        cause: &dyn Display,
        client: &Client,
        stalls: &Arc<Stalls>,
    ) -> Response<ResponseBody> {
        tracing::info!(client = %client.address(), cause = %cause, "request refused");
        self.metrics.requests.inc();
        let response = refusal(status, format!("{cause}\n"));
        let guard = |body| GuardedBody::new(body, ResponseGuards::default());
        response.map(|body| self.transfers.send(guard(body), &Exchange::on(stalls)))
    }

    /// The response, and the request slot that it takes. A refusal takes none.
    async fn respond(&self, mut request: BoxedRequest, client: &Client, gate: Gate) -> (Response<Body>, Option<Slot>) {
        let settings = self.settings.get();
        // `http1` has checked the others.
        if request.head.version > Version::HTTP_11
            && let Err(irregular) = strict::check(&request.head, &settings.limits)
        {
            tracing::info!(client = %client.address(), cause = %irregular, "request refused");
            return (irregular.response(), None);
        }
        let Some(slot) = self.slots.take() else {
            tracing::info!(client = %client.address(), "request refused: too many are in progress");
            self.metrics.requests_refused.inc();
            return (too_many_requests(), None);
        };
        if !gate.admits(&mut request).await {
            return (too_early(), None);
        }
        (settings.site.respond(request, client).await, Some(slot))
    }

    fn tunnel(&self, origin: watari_proxy::Tunnel, slot: Slot) -> Tunnel {
        Tunnel::new(origin, self.settings.limits().tunnel_timeout, slot, Counted::one_more(&self.metrics.tunnels))
    }
}

/// The body of a response, which is watched for a client that stalls.
pub(crate) type ResponseBody = Watched<GuardedBody<Body, ResponseGuards>>;

/// What the body of a response holds until it is dropped.
#[derive(Default)]
pub(crate) struct ResponseGuards {
    _slot: Option<Slot>,
    /// To record that the rest of the response continues elsewhere.
    departure: Option<Departure>,
    /// The stream from which the body comes, if its origin is at another agent.
    anchored: Option<Arc<AnchoredStream>>,
}

impl ResponseGuards {
    /// The rest of the response continues at another agent.
    pub(crate) fn departs(&self) {
        self.departure.iter().for_each(Departure::departs);
    }

    /// The stream from which the body comes, if its origin is at another agent.
    pub(crate) fn anchored(&self) -> Option<&AnchoredStream> {
        self.anchored.as_deref()
    }
}

/// A response that no client takes yet. It holds a request slot, if it needs one.
pub(crate) struct GuardedResponse(GuardedBody<Body, ResponseGuards>);

impl GuardedResponse {
    /// A response whose bytes are elsewhere.
    pub(crate) fn empty() -> Self {
        Self(GuardedBody::new(watari_body::empty(), ResponseGuards::default()))
    }

    /// A response whose body comes from its anchor.
    pub(crate) fn anchored(stream: AnchoredStream, slot: Slot) -> Self {
        let (stream, body) = stream.into_body();
        let guards = ResponseGuards { _slot: Some(slot), departure: None, anchored: Some(stream) };
        Self(GuardedBody::new(body.boxed_unsync(), guards))
    }
}

/// A request, and what it shares with its response.
pub(crate) struct Received {
    request: BoxedRequest,
    exchange: Arc<Exchange>,
}

pub(crate) struct Answer {
    pub(crate) response: Response<ResponseBody>,
    /// The tunnel that follows the response. Boxed, because few responses have one.
    pub(crate) tunnel: Option<Box<Tunnel>>,
}

fn refusal_of(cause: CannotResume) -> PrepareRefusal {
    match cause {
        CannotResume::Request | CannotResume::Part => PrepareRefusal::Response,
        CannotResume::Validator => PrepareRefusal::Validator,
    }
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
