//! Serves HTTP/1 over a connection, until the connection ends or is parked.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};
use watari_connection::leaving::{InResponse, Situation};
use watari_connection::{Connection, End, Parts as HttpParts};
use watari_http1::Server;
use watari_stream::{Parts, TlsStream};
use watari_values::{NodeName, StayReason};

use super::client_stream::ClientStream;
use super::departing::{Departing, Departs};
use super::early_data::opening::Opening;
use super::http::{Http, HttpEnd, HttpError, HttpStart, Parked, client};
use super::site_service::{OpenResponse, OpenRest, SiteService};
use super::stalls::Stalled;
use super::tunnel::{Tunnel, TunnelStop};
use crate::handoff::anchored_stream::AnchoredStream;
use crate::handoff::live::{About, Live};
use crate::handoff::registry::{Ending, Order, Orders};
use crate::leg::Leg;
use crate::node::peers::Peers;

/// Serves HTTP/1 until the connection ends, or can leave as `orders` ask.
///
/// A connection spends most of its life here, so this future holds only what it needs meanwhile. What comes before and
/// after is in functions and boxed futures of its own.
pub(super) async fn serve_http1(context: &Http, start: HttpStart, orders: &mut Orders) -> HttpEnd {
    let (about, mut driver) = match begin(context, start) {
        Begun::Requests(about, driver) => (about, driver),
        Begun::Tunnel(about, stream, open) => {
            return Box::pin(serve_tunnel(&context.peers, about, stream, *open, orders)).await;
        }
    };
    let stop = {
        let stalls = driver.connection.service().stalls.clone();
        let (mut stalled, mut idle) = (pin!(stalls.next_stall()), pin!(sleep(driver.idle.timeout)));
        poll_fn(|cx| driver.poll(context, &about, orders, stalled.as_mut(), idle.as_mut(), cx)).await
    };
    Box::pin(finish(context, about, driver, stop, orders)).await
}

/// A connection at the start of HTTP/1.
enum Begun {
    Requests(About, Box<Driver>),
    /// The connection is a tunnel that was moved here.
    Tunnel(About, Box<TlsStream<Leg>>, Box<OpenTunnel>),
}

fn begin(context: &Http, start: HttpStart) -> Begun {
    let limits = context.settings.limits();
    let between_requests = |stream, about: &About, opening: Option<&Opening>| {
        let gate = opening.map(Opening::gate).unwrap_or_default();
        let service = SiteService::new(context.requests.clone(), client(about), gate);
        Connection::new(stream, Server::new(limits.http1()), service)
    };
    let (about, connection, opening) = match start {
        HttpStart::Live(live) => {
            let Live { about, parts } = *live;
            let connection = between_requests(ClientStream::open(TlsStream::from_parts(parts)), &about, None);
            (about, connection, None)
        }
        HttpStart::InResponse(live, open) => {
            let Live { about, parts } = *live;
            let stream = TlsStream::from_parts(parts);
            let OpenResponse { service, http, unwritten, rest } = *open;
            let responding = match rest {
                OpenRest::Response(responding) => responding.map(|responding| *responding),
                OpenRest::Tunnel(tunnel) => {
                    let open = OpenTunnel { service, http, tunnel };
                    return Begun::Tunnel(about, Box::new(stream), Box::new(open));
                }
            };
            service.stalls.forget();
            let stream = ClientStream::open(stream);
            let parts = HttpParts { stream, service, http, opened: Vec::new(), unwritten, responding };
            (about, Connection::resume(parts), None)
        }
        HttpStart::EarlyConnection(early) => {
            let (about, stream, opening) = early.begin();
            let connection = between_requests(ClientStream::early(stream), &about, Some(&opening));
            (about, connection, Some(Box::new(opening)))
        }
    };
    let idle = IdleTimer { timeout: limits.keep_alive_timeout, since: Instant::now(), requests: None };
    Begun::Requests(about, Box::new(Driver { connection, opening, departing: Departing::new(), idle }))
}

/// Continues after HTTP/1: as a tunnel, at another agent, or not at all.
async fn finish(context: &Http, about: About, driver: Box<Driver>, stop: Stop, orders: &mut Orders) -> HttpEnd {
    match stop {
        Stop::Ended(End::Tunnel) => {
            let agreed = driver.connection.service().agreed.clone();
            let (stream, OpenResponse { service, http, .. }) = match driver.into_stream().await {
                Ok(parts) => parts,
                Err(end) => return end,
            };
            let Some(tunnel) = agreed.take() else { return HttpEnd::Ended(stream, Ok(())) };
            serve_tunnel(&context.peers, about, stream, OpenTunnel { service, http, tunnel }, orders).await
        }
        Stop::Parks(target, how) => driver.park(about, target, how).await,
        Stop::Ended(End::Cut(broken)) => driver.end(Err(broken.into())).await,
        Stop::Stalled => driver.end(Err(Stalled.into())).await,
        Stop::Ended(End::Complete) | Stop::TimedOut | Stop::Unopened => driver.end(Ok(())).await,
    }
}

/// A connection that is a tunnel, apart from its stream.
struct OpenTunnel {
    service: SiteService,
    http: Server,
    tunnel: Box<Tunnel>,
}

/// Serves a tunnel until the connection ends, or can leave as `orders` ask.
async fn serve_tunnel(
    peers: &Peers,
    about: About,
    mut stream: Box<TlsStream<Leg>>,
    open: OpenTunnel,
    orders: &mut Orders,
) -> HttpEnd {
    let OpenTunnel { service, http, mut tunnel } = open;
    match tunnel.on_connection(peers, &about, &mut stream, orders).await {
        TunnelStop::Ended(result) => HttpEnd::Ended(stream, result.map_err(HttpError::from)),
        TunnelStop::Parks(target, how) => {
            let live = Box::new(Live { about, parts: stream.into_parts() });
            let open = OpenResponse { service, http, unwritten: Vec::new(), rest: OpenRest::Tunnel(tunnel) };
            let within = Some((Box::new(open), how));
            HttpEnd::Parked(Box::new(Parked { live, target, within, undecided: None }))
        }
    }
}

/// Why a connection is no longer served as HTTP/1.
enum Stop {
    Ended(End),
    /// The handshake failed.
    Unopened,
    /// No request came in time.
    TimedOut,
    /// The client takes nothing of its response, or sends nothing of its request.
    Stalled,
    /// The connection has to move to the agent, and can do so now.
    Parks(NodeName, Option<InResponse>),
}

struct Driver {
    connection: Connection<ClientStream, SiteService>,
    /// Drives the handshake, if it was not done at the start. Boxed, because few connections have one.
    opening: Option<Box<Opening>>,
    departing: Departing,
    idle: IdleTimer,
}

impl Driver {
    fn poll(
        &mut self,
        http: &Http,
        about: &About,
        orders: &mut Orders,
        stalled: Pin<&mut impl Future<Output = ()>>,
        idle: Pin<&mut Sleep>,
        cx: &mut Context<'_>,
    ) -> Poll<Stop> {
        if self.opening.as_mut().is_some_and(|opening| opening.poll(cx) == Poll::Ready(false)) {
            return Poll::Ready(Stop::Unopened);
        }
        while let Poll::Ready(Some(order)) = orders.poll_recv(cx) {
            if matches!(*order, Order::End(Ending::All)) {
                self.connection.close();
            }
            let leave = self.departing.follow(*order, http.peers.name());
            if leave.is_some_and(|leave| leave.target.is_none() && leave.or_end) {
                self.connection.close();
            }
        }
        if let Poll::Ready(end) = self.connection.poll(cx) {
            return Poll::Ready(Stop::Ended(end));
        }
        if self.departing.is_wanted()
            && let Poll::Ready(stop) = self.leave(http, about, cx)
        {
            return Poll::Ready(stop);
        }
        if stalled.poll(cx).is_ready() {
            return Poll::Ready(Stop::Stalled);
        }
        if !self.connection.is_idle() {
            return Poll::Pending;
        }
        self.idle.poll(self.connection.requests(), idle, cx).map(|()| Stop::TimedOut)
    }

    /// Leaves if that is possible now. Otherwise does what it takes.
    fn leave(&mut self, http: &Http, about: &About, cx: &mut Context<'_>) -> Poll<Stop> {
        // Before the handshake is done, the connection stays.
        while self.connection.stream_mut().is_open() {
            let _ = self.departing.poll_timeout(cx);
            let situation = Situation {
                departure: self.connection.departure(),
                is_idle: self.connection.is_idle(),
                is_flushed: self.connection.is_flushed(),
                request: self.connection.requests(),
            };
            let body = self.connection.responding().map(|responding| responding.body.body());
            let anchor = body.and_then(|body| body.kept().anchored()).map(AnchoredStream::anchor);
            let departs = self.departing.depart(situation, anchor, StayReason::InRequest, &http.peers, about);
            self.connection.set_pace(self.departing.pace());
            match departs {
                Departs::Now(target, how) => return Poll::Ready(Stop::Parks(target, how)),
                Departs::Again => {}
                Departs::Later => break,
            }
        }
        // With another pace, the connection may go on.
        self.connection.poll(cx).map(Stop::Ended)
    }

    /// Returns the stream, with the plaintext that HTTP had taken in front, and the rest of the connection.
    async fn into_stream(self) -> Result<(Box<TlsStream<Leg>>, OpenResponse), HttpEnd> {
        let HttpParts { stream, service, http, opened, unwritten, responding } = self.connection.into_parts();
        let (stream, early) = stream.finish(self.opening).await.map_err(HttpEnd::Unfinished)?;
        let stream = if opened.is_empty() && early.is_empty() {
            stream
        } else {
            Box::new(TlsStream::from_parts(with_opened(*stream, opened, &early)))
        };
        Ok((stream, OpenResponse { service, http, unwritten, rest: OpenRest::Response(responding.map(Box::new)) }))
    }

    async fn end(self, result: Result<(), HttpError>) -> HttpEnd {
        self.into_stream().await.map_or_else(|end| end, |(stream, _)| HttpEnd::Ended(stream, result))
    }

    async fn park(mut self, about: About, target: NodeName, how: Option<InResponse>) -> HttpEnd {
        let undecided = self.departing.take_undecided();
        match self.into_stream().await {
            Ok((stream, open)) => {
                let live = Box::new(Live { about, parts: stream.into_parts() });
                let within = how.map(|how| (Box::new(open), how));
                HttpEnd::Parked(Box::new(Parked { live, target, within, undecided }))
            }
            Err(end) => end,
        }
    }
}

/// Takes a stream apart, and puts the plaintext before it that HTTP had taken.
fn with_opened<IO>(stream: TlsStream<IO>, mut opened: Vec<u8>, early: &[u8]) -> Parts<IO> {
    let mut parts = stream.into_parts();
    opened.extend_from_slice(early);
    parts.opened.splice(..0, opened);
    parts
}

/// Limits the time without a request, and the time for a request's head to be complete. The runtime's timer is set
/// again only when it fires, and not with each request.
struct IdleTimer {
    timeout: Duration,
    since: Instant,
    /// The number of requests at `since`.
    requests: Option<u64>,
}

impl IdleTimer {
    /// Ready when the connection has been idle for too long. Called while it is idle.
    fn poll(&mut self, requests: u64, mut timer: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<()> {
        if self.requests != Some(requests) {
            (self.requests, self.since) = (Some(requests), Instant::now());
        }
        while timer.as_mut().poll(cx).is_ready() {
            let deadline = self.since + self.timeout;
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}
