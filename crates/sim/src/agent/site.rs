//! The site of an agent: it answers requests from files, or from origins. Mirrors `connection/site_service.rs` and
//! `crates/proxy`.

mod exchange;
mod transfer;

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderValue, Method, Request, Response, StatusCode, request, response};
use http_body::{Body, Frame, SizeHint};
use watari_connection::{Content, Interim, Service};
use watari_handover::{Transfer, TransferConditions};
use watari_wire::ANCHORED_DATA_LEN_MAX;

use self::exchange::{Exchange, Failure};
use self::transfer::TransferBody;
use super::Site;
use super::anchors::AnchoredStream;
use super::tunnel::Tunnel;
use crate::file::{self, FileBody};
use crate::network::NodeId;
use crate::resource::{Kind, Resource, bytes, difference};
use crate::sabotage::Sabotage;
use crate::socket::Socket;

/// The origins of an agent.
#[derive(Clone)]
pub(crate) struct Origins {
    pub(crate) nodes: Range<NodeId>,
    pub(crate) conditions: TransferConditions,
    /// Connections that can be used again.
    idle: Rc<RefCell<Vec<(NodeId, Socket)>>>,
}

impl Origins {
    pub(crate) fn new(nodes: Range<NodeId>, conditions: TransferConditions) -> Self {
        Self { nodes, conditions, idle: Rc::default() }
    }
}

/// Answers the requests of one connection.
#[derive(Clone)]
pub(crate) struct SiteService {
    pub(super) site: Site,
    /// A tunnel, until the response that announces it has been sent.
    pub(super) agreed: Rc<RefCell<Option<Box<Tunnel>>>>,
}

/// The body of a response.
pub(crate) enum SiteBody {
    File(FileBody),
    /// An origin's response that stays with its origin.
    Origin(Box<OriginBody>),
    Transfer(Box<TransferBody>),
    /// The bytes come from the anchor.
    Anchored(AnchoredStream),
}

impl SiteService {
    pub(crate) fn empty(&self) -> SiteBody {
        SiteBody::File(FileBody::empty(&self.site.network, self.site.node))
    }

    /// Answers a request without content.
    pub(super) async fn respond(self, head: request::Parts) -> Response<SiteBody> {
        match Resource::parse(head.uri.path()) {
            None => self.status(StatusCode::NOT_FOUND),
            Some(resource) if resource.kind == Kind::File => {
                file::respond(&self.site.network, self.site.node, resource, &head.headers).map(SiteBody::File)
            }
            Some(_) => self.forward(head).await,
        }
    }

    /// Asks one origin after the other, until one answers.
    async fn forward(self, mut head: request::Parts) -> Response<SiteBody> {
        let asks_upgrade = head.headers.contains_key(UPGRADE);
        if !asks_upgrade {
            head.headers.remove(CONNECTION);
        }
        let mut origins: Vec<_> = self.site.origins.nodes.clone().collect();
        self.site.network.random(|random| random.shuffle(&mut origins));
        for origin in origins {
            let mut exchange = Exchange::new(&self.site, origin, &head);
            match poll_fn(|_| exchange.poll_head()).await {
                Ok(response) if response.status == StatusCode::SWITCHING_PROTOCOLS => {
                    *self.agreed.borrow_mut() = exchange.into_switched().map(|origin| Box::new(Tunnel::new(origin)));
                    return Response::from_parts(response, self.empty());
                }
                Ok(response) => return self.relay(head, exchange, response),
                Err(failure) => {
                    self.site.network.note(|| format!("{} asks {origin}: {failure}", self.site.node));
                }
            }
        }
        self.status(StatusCode::BAD_GATEWAY)
    }

    fn relay(&self, head: request::Parts, exchange: Exchange, mut response: response::Parts) -> Response<SiteBody> {
        let conditions = &self.site.origins.conditions;
        let transfer = Transfer::of(&head.method, &head.headers, response.status, &response.headers, conditions);
        let etag = response.headers.get(http::header::ETAG).cloned();
        for name in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
            response.headers.remove(name);
        }
        let body = match transfer {
            Ok(transfer) => SiteBody::Transfer(Box::new(TransferBody::new(&self.site, transfer, head, etag, exchange))),
            Err(_) => SiteBody::Origin(Box::new(OriginBody { exchange, is_over: false })),
        };
        Response::from_parts(response, body)
    }

    /// Reads an upload, and checks every byte.
    async fn take_upload(self, request: Request<Content>) -> Response<SiteBody> {
        let (head, mut content) = request.into_parts();
        let Some(Resource { file, len, .. }) = Resource::parse(head.uri.path()) else {
            return self.status(StatusCode::NOT_FOUND);
        };
        let Site { network, node, .. } = &self.site;
        let mut position = 0;
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut content).poll_frame(cx)).await {
            // The connection is cut.
            let Ok(frame) = frame else { return self.status(StatusCode::BAD_REQUEST) };
            let data = frame.into_data().unwrap_or_default();
            let right = bytes(file, position..position + data.len() as u64);
            if difference(&data, &right).is_some() {
                network.violation(format!("a wrong byte was uploaded to {node} after {position}"));
            }
            position += data.len() as u64;
        }
        if position != len {
            network.violation(format!("{position} bytes of an upload of {len} arrived at {node}"));
        }
        self.status(StatusCode::NO_CONTENT)
    }

    fn status(&self, status: StatusCode) -> Response<SiteBody> {
        let mut response = Response::new(self.empty());
        *response.status_mut() = status;
        response
    }
}

impl Service for SiteService {
    type Body = SiteBody;
    type Answering = Pin<Box<dyn Future<Output = Response<SiteBody>>>>;

    fn answer(&mut self, request: Request<Content>, _interim: &mut Interim) -> Self::Answering {
        let service = self.clone();
        if request.method() == Method::PUT {
            Box::pin(service.take_upload(request))
        } else {
            Box::pin(service.respond(request.into_parts().0))
        }
    }

    fn refuse(&mut self, _: StatusCode, _: &dyn fmt::Display) -> Response<SiteBody> {
        self.site.network.violation("a request that a client has not sent arrived".to_owned());
        self.status(StatusCode::BAD_REQUEST)
    }

    fn date(&self) -> HeaderValue {
        HeaderValue::from_static("Wed, 25 Nov 2026 00:00:00 GMT")
    }
}

/// The body of an origin's response, which no other origin can continue.
pub(crate) struct OriginBody {
    exchange: Exchange,
    is_over: bool,
}

impl OriginBody {
    fn poll(&mut self) -> Poll<Option<Result<Bytes, Failure>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        self.exchange.poll_data().map(|data| match data {
            Ok(Some(data)) => Some(Ok(data)),
            Ok(None) => {
                self.is_over = true;
                None
            }
            Err(_) if self.exchange.site.sabotage == Some(Sabotage::CutIsEnd) => None,
            Err(failure) => Some(Err(failure)),
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.exchange.remaining().map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

impl fmt::Debug for SiteBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SiteBody").finish_non_exhaustive()
    }
}

impl SiteBody {
    /// A body whose bytes come from the anchor. The other direction of the stream ends.
    pub(super) fn from_anchor(stream: AnchoredStream) -> Self {
        stream.end();
        Self::Anchored(stream)
    }

    pub(super) fn anchored(&self) -> Option<&AnchoredStream> {
        match self {
            Self::Anchored(stream) => Some(stream),
            Self::File(_) | Self::Origin(_) | Self::Transfer(_) => None,
        }
    }
}

impl Body for SiteBody {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        let data = match self.get_mut() {
            Self::File(body) => return Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Origin(body) => body.poll(),
            Self::Transfer(body) => body.poll(),
            Self::Anchored(stream) => poll_anchored(stream),
        };
        data.map(|data| data.map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::File(body) => body.is_end_stream(),
            Self::Origin(body) => body.is_over,
            Self::Transfer(body) => body.is_complete(),
            Self::Anchored(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::File(body) => body.size_hint(),
            Self::Origin(body) => body.size_hint(),
            Self::Transfer(body) => SizeHint::with_exact(body.remaining()),
            Self::Anchored(_) => SizeHint::new(),
        }
    }
}

fn poll_anchored(stream: &AnchoredStream) -> Poll<Option<Result<Bytes, Failure>>> {
    let mut into = vec![0; ANCHORED_DATA_LEN_MAX];
    stream.poll_read_into(&mut into).map(|read| match read {
        Ok(0) => None,
        Ok(read) => {
            into.truncate(read);
            Some(Ok(into.into()))
        }
        Err(error) => Some(Err(Failure(error.to_string()))),
    })
}
