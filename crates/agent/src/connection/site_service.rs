//! Answers the requests of one connection, and the parts of an HTTP/1 connection within a response.

use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::io::AsyncWriteExt as _;
use watari_body::{BoxError, OnInformational};
use watari_connection::leaving::{InResponse, InResponseRest};
use watari_connection::{Content, Interim, Responding, Service};
use watari_http1::Server;
use watari_proxy::Client;
use watari_values::SecretBytes;
use watari_wire::{AnchoredState, ResponseRest};

use super::early_data::gate::Gate;
use super::requests::{Received, Requests, ResponseBody};
use super::stalls::Stalls;
use super::tunnel::{Agreed, Tunnel};
use crate::handoff::anchored_stream::AnchoredStream;
use crate::handoff::anchors::Anchors;
use crate::handoff::source::ShippedResponse;
use crate::node::date;

/// Answers requests of one connection from the site.
pub(super) struct SiteService {
    pub(super) requests: Arc<Requests>,
    pub(super) client: Arc<Client>,
    pub(super) stalls: Arc<Stalls>,
    pub(super) gate: Gate,
    pub(super) agreed: Agreed,
}

/// What is left of an HTTP/1 connection within a response, apart from its stream.
pub(crate) struct OpenResponse {
    pub(super) service: SiteService,
    pub(super) http: Server,
    /// Framed bytes that are not sealed.
    pub(super) unwritten: Vec<u8>,
    pub(super) rest: OpenRest,
}

/// What follows in an open response.
pub(super) enum OpenRest {
    /// The rest of its body. `None`: all of it is framed.
    Response(Option<Box<Responding<ResponseBody>>>),
    /// It was the response to an upgrade.
    Tunnel(Box<Tunnel>),
}

impl SiteService {
    pub(super) fn new(requests: Arc<Requests>, client: Arc<Client>, gate: Gate) -> Self {
        Self { requests, client, stalls: Arc::default(), gate, agreed: Agreed::default() }
    }

    /// A request, as it is answered.
    pub(super) fn receive<B>(&self, request: Request<B>, interim: &mut Interim) -> Received
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin + Send + 'static,
    {
        let on_informational = self.requests.has_origins().then(|| {
            let sender = interim.sender();
            OnInformational::new(move |status, fields| sender.send(status, fields))
        });
        self.requests.receive(request, &self.stalls, on_informational)
    }
}

impl OpenResponse {
    /// The response as the target gets it. If this agent becomes the anchor of its bytes, also its end of their stream.
    pub(super) fn ship(&self, how: InResponse, anchors: &Arc<Anchors>) -> (ShippedResponse, Option<AnchoredStream>) {
        let mut http = Vec::new();
        self.http.export(&mut http);
        let (rest, begun, pending) = match how.rest {
            InResponseRest::Bytes => (ResponseRest::End, None, self.pending()),
            InResponseRest::Prepared { skip } => (ResponseRest::Prepared { skip }, None, Vec::new()),
            InResponseRest::Anchored => {
                let (state, begun) = self.export(anchors);
                (ResponseRest::Anchored(state), begun, self.pending())
            }
        };
        let (unwritten, pending) = (SecretBytes::new(self.unwritten.clone()), SecretBytes::new(pending));
        (ShippedResponse { number: how.number, http, unwritten, pending, rest }, begun)
    }

    /// The response stays here: the move was aborted.
    pub(super) fn stays(&self) {
        self.anchored().into_iter().for_each(AnchoredStream::thaw);
    }

    /// The response continues at another agent, or may do so. With `begun`, its bytes come from here, in a task that
    /// ends with them.
    pub(super) fn departs(self, begun: Option<AnchoredStream>) {
        match (self.rest, begun) {
            (OpenRest::Tunnel(mut tunnel), Some(mut stream)) => {
                tokio::spawn(async move { tunnel.join_to_end(&mut stream).await });
            }
            (OpenRest::Response(Some(responding)), Some(mut stream)) => {
                tokio::spawn(async move { relay_body(responding.body, &mut stream).await });
            }
            (OpenRest::Response(Some(responding)), None) => responding.body.body().kept().departs(),
            (OpenRest::Response(None) | OpenRest::Tunnel(_), _) => {}
        }
    }

    /// The owner's end of the stream, as it moves, or a new one.
    fn export(&self, anchors: &Arc<Anchors>) -> (AnchoredState, Option<AnchoredStream>) {
        if let Some(stream) = self.anchored() {
            return (stream.export(self.to_origin()), None);
        }
        let begun = anchors.begin();
        (begun.export(&[]), Some(begun))
    }

    /// The stream from which the bytes come, if their origin is at another agent.
    fn anchored(&self) -> Option<&AnchoredStream> {
        match &self.rest {
            OpenRest::Response(responding) => responding.as_ref()?.body.body().kept().anchored(),
            OpenRest::Tunnel(tunnel) => tunnel.anchor().map(|(stream, _)| stream),
        }
    }

    /// Bytes from the client that the stream to the anchor has not taken.
    fn to_origin(&self) -> &[u8] {
        match &self.rest {
            OpenRest::Tunnel(tunnel) => tunnel.anchor().map_or(&[], |(_, [to_origin, _])| to_origin),
            OpenRest::Response(_) => &[],
        }
    }

    /// Bytes for the client that are not framed. What the tunnel of this agent holds comes from the anchor.
    fn pending(&self) -> Vec<u8> {
        match &self.rest {
            OpenRest::Response(responding) => {
                responding.as_ref().map_or_else(Vec::new, |responding| responding.pending.to_vec())
            }
            OpenRest::Tunnel(tunnel) => tunnel.anchor().map_or_else(Vec::new, |(_, [_, to_client])| to_client.to_vec()),
        }
    }
}

/// Sends a body to the owner of the client's connection. If the body fails, so does the stream.
async fn relay_body(mut body: ResponseBody, stream: &mut AnchoredStream) {
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = stream.failed() => return,
        };
        let Some(frame) = frame else { break };
        let Ok(frame) = frame else { return };
        // Trailers may be discarded (RFC 9110, section 6.5.1).
        let Ok(data) = frame.into_data() else { continue };
        if stream.write_all(&data).await.is_err() {
            return;
        }
    }
    // The stream has failed if the owner does not take the end.
    let _ = stream.shutdown().await;
}

impl Service for SiteService {
    type Body = ResponseBody;
    type Answering = Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>;

    fn answer(&mut self, request: Request<Content>, interim: &mut Interim) -> Self::Answering {
        let received = self.receive(request, interim);
        let (requests, client) = (self.requests.clone(), self.client.clone());
        let (gate, agreed) = (self.gate.clone(), self.agreed.clone());
        Box::pin(async move {
            let answer = requests.answer(received, &client, gate).await;
            agreed.set(answer.tunnel);
            answer.response
        })
    }

    fn refuse(&mut self, status: StatusCode, cause: &dyn Display) -> Response<ResponseBody> {
        self.requests.refuse(status, cause, &self.client, &self.stalls)
    }

    fn date(&self) -> HeaderValue {
        date::now()
    }
}
