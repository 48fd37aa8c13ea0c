//! Serves HTTP/2 over a connection, until the connection ends. A connection of HTTP/2 does not move yet.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Either};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use watari_body::Body;
use watari_connection::{Content, Http2Connection, Http2End, Interim, STREAMS_MAX, Service};
use watari_http2::server::Limits;
use watari_stream::TlsStream;
use watari_values::StayReason;

use super::client_stream::ClientStream;
use super::early_data::opening::Opening;
use super::http::{Http, HttpEnd, HttpError, HttpStart, client};
use super::lingering::Lingering;
use super::requests::{Answer, ResponseBody};
use super::site_service::SiteService;
use super::stalls::Stalled;
use crate::handoff::live::{About, Live};
use crate::handoff::registry::{Order, Orders};
use crate::node::peers::Peers;

/// Serves HTTP/2 until the connection ends. If it is asked to leave, it ends after its streams, if that was requested.
pub(super) async fn serve_http2(http: &Http, start: HttpStart, orders: &mut Orders) -> HttpEnd {
    let (about, stream, opening) = begin(start);
    let gate = opening.as_ref().map(|opening| opening.gate()).unwrap_or_default();
    let service = StreamService(SiteService::new(http.requests.clone(), client(&about), gate));
    let settings = http.settings.limits();
    let limits = Limits {
        streams_max: STREAMS_MAX,
        list_len_max: u32::try_from(settings.head_bytes_max).unwrap_or(u32::MAX),
        allows_protocol: http.requests.has_origins(),
    };
    let connection = Http2Connection::new(stream, limits, service, || Instant::now().into_std());
    let mut look = tokio::time::interval(settings.keep_alive_timeout);
    // After a pause of the machine, the client gets its time.
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let idle = Idle { look, requests: None, is_closing: false };
    Driver { connection, opening, idle }.drive(&http.peers, &about, orders).await
}

fn begin(start: HttpStart) -> (About, ClientStream, Option<Box<Opening>>) {
    match start {
        // No connection of HTTP/2 arrives within a response: `Preparations::take` refuses it.
        HttpStart::Live(live) | HttpStart::InResponse(live, _) => {
            let Live { about, parts } = *live;
            (about, ClientStream::open(TlsStream::from_parts(parts)), None)
        }
        HttpStart::EarlyConnection(early) => {
            let (about, stream, opening) = early.begin();
            (about, ClientStream::early(stream), Some(Box::new(opening)))
        }
    }
}

struct Driver {
    connection: Http2Connection<ClientStream, StreamService>,
    /// Drives the handshake, if it was not done at the start. Boxed, because few connections have one.
    opening: Option<Box<Opening>>,
    idle: Idle,
}

/// Ends a connection without requests, and one whose client does not answer.
struct Idle {
    look: Interval,
    /// The number of requests at the last look, if none was in progress.
    requests: Option<u64>,
    /// The connection was closed at an earlier look.
    is_closing: bool,
}

impl Driver {
    async fn drive(mut self, peers: &Peers, about: &About, orders: &mut Orders) -> HttpEnd {
        let stalls = self.connection.service().0.stalls.clone();
        let result = loop {
            let mut stalled = pin!(stalls.next_stall());
            match poll_fn(|cx| self.poll(peers, about, orders, stalled.as_mut(), cx)).await {
                Stop::Ended(result) => break result,
                Stop::Stall => {
                    self.connection.close();
                    if stalls.count() >= self.connection.streams() {
                        break Err(Stalled.into());
                    }
                }
            }
        };
        self.end(result).await
    }

    fn poll(
        &mut self,
        peers: &Peers,
        about: &About,
        orders: &mut Orders,
        stalled: Pin<&mut impl Future<Output = ()>>,
        cx: &mut Context<'_>,
    ) -> Poll<Stop> {
        if self.opening.as_mut().is_some_and(|opening| opening.poll(cx) == Poll::Ready(false)) {
            return Poll::Ready(Stop::Ended(Ok(())));
        }
        while let Poll::Ready(Some(order)) = orders.poll_recv(cx) {
            if is_to_end(&order, peers, about) {
                self.connection.close();
            }
        }
        while self.idle.look.poll_tick(cx).is_ready() {
            if !self.idle.look(&mut self.connection) {
                return Poll::Ready(Stop::Ended(Err(Stalled.into())));
            }
        }
        if stalled.poll(cx).is_ready() {
            return Poll::Ready(Stop::Stall);
        }
        self.connection.poll(cx).map(|end| {
            Stop::Ended(match end {
                Http2End::Complete => Ok(()),
                Http2End::Fault(fault) => Err(fault.into()),
                Http2End::Stream(error) => Err(error.into()),
            })
        })
    }

    async fn end(self, result: Result<(), HttpError>) -> HttpEnd {
        match self.connection.into_stream().finish(self.opening).await {
            Ok((stream, _)) => HttpEnd::Ended(stream, result),
            Err(unfinished) => HttpEnd::Unfinished(unfinished),
        }
    }
}

impl Idle {
    /// Returns `false` if the client has not answered, or does not take the rest of its responses.
    fn look(&mut self, connection: &mut Http2Connection<ClientStream, StreamService>) -> bool {
        let idle = (connection.streams() == 0).then(|| connection.requests());
        let was_idle = idle.is_some() && std::mem::replace(&mut self.requests, idle) == idle;
        if was_idle {
            if self.is_closing {
                return false;
            }
            self.is_closing = true;
            connection.close();
        }
        connection.look()
    }
}

/// What a connection has to be looked at for.
enum Stop {
    Ended(Result<(), HttpError>),
    /// A client takes nothing of a response, or sends nothing of a request.
    Stall,
}

/// Answers the requests of one HTTP/2 connection.
struct StreamService(SiteService);

impl Service for StreamService {
    /// A response's body, or what a tunnel sends.
    type Body = Either<ResponseBody, Body>;
    type Answering = Pin<Box<dyn Future<Output = Response<Self::Body>> + Send>>;

    fn answer(&mut self, request: Request<Content>, interim: &mut Interim) -> Self::Answering {
        let (head, content) = request.into_parts();
        // The content of a CONNECT is for the tunnel.
        let (content, for_tunnel) = match head.method {
            Method::CONNECT => (Content::empty(), Some(content)),
            _ => (content, None),
        };
        let received = self.0.receive(Request::from_parts(head, Lingering::new(content)), interim);
        let (requests, client, gate) = (self.0.requests.clone(), self.0.client.clone(), self.0.gate.clone());
        Box::pin(async move {
            let Answer { response, tunnel } = requests.answer(received, &client, gate).await;
            match tunnel.zip(for_tunnel) {
                Some((tunnel, content)) => response.map(|_| Either::Right(tunnel.on_stream(content).boxed_unsync())),
                None => response.map(Either::Left),
            }
        })
    }

    fn refuse(&mut self, status: StatusCode, cause: &dyn std::fmt::Display) -> Response<Self::Body> {
        self.0.refuse(status, cause).map(Either::Left)
    }

    fn date(&self) -> HeaderValue {
        self.0.date()
    }
}

/// Whether the connection ends after its streams. It does not leave otherwise.
fn is_to_end(order: &Order, peers: &Peers, about: &About) -> bool {
    match order {
        Order::Leave(leave) => {
            about.report_stay(peers, StayReason::Http2);
            leave.or_end
        }
        Order::End(_) => true,
        Order::PassOn(_) | Order::Stay | Order::Prepared(..) => false,
    }
}
