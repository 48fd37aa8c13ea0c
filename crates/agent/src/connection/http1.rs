//! Serves HTTP/1 over a connection, until the connection ends or is parked between two requests.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Request, Response};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep};
use watari_connection::{Connection, Content, End, Service};
use watari_http1::{Refused, Server};
use watari_proxy::Client;
use watari_stream::{Parts, TlsStream};
use watari_values::{NodeName, StayReason};
use watari_wire::Leave;

use super::client_stream::ClientStream;
use super::date;
use super::early_data::gate::Gate;
use super::early_data::opening::Opening;
use super::http::{Http, HttpEnd, HttpError, HttpStart, client};
use super::requests::{Requests, ResponseBody};
use super::stalls::{Stalled, Stalls};
use super::tunnel::Agreed;
use crate::handoff::live::{About, Live};

/// Serves HTTP/1 until the connection ends, or can leave as `leaves` asks.
pub(super) async fn serve_http1(http: &Http, start: HttpStart, leaves: &mut mpsc::Receiver<Box<Leave>>) -> HttpEnd {
    let (about, stream, opening) = match start {
        HttpStart::Live(live) => (live.about, ClientStream::open(TlsStream::from_parts(live.parts)), None),
        HttpStart::EarlyConnection(early) => {
            let (about, stream, opening) = early.begin();
            (about, ClientStream::early(stream), Some(Box::new(opening)))
        }
    };
    let limits = http.settings.limits();
    let service = SiteService {
        requests: http.requests.clone(),
        client: client(&about),
        stalls: Arc::default(),
        gate: opening.as_ref().map(|opening| opening.gate()).unwrap_or_default(),
        agreed: Agreed::default(),
    };
    let (stalls, agreed) = (service.stalls.clone(), service.agreed.clone());
    let mut driver = Driver {
        connection: Connection::new(stream, Server::new(limits.http1()), service),
        opening,
        target: None,
        idle: IdleTimer { timeout: limits.keep_alive_timeout, since: Instant::now(), requests: None },
    };
    let stop = {
        let (mut stalled, mut idle) = (pin!(stalls.next_stall()), pin!(sleep(limits.keep_alive_timeout)));
        poll_fn(|cx| driver.poll(http, &about, leaves, stalled.as_mut(), idle.as_mut(), cx)).await
    };
    driver.end(http, about, stop, &agreed, leaves).await
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
    /// The connection is between two requests, and has to move.
    Parks(NodeName),
}

struct Driver {
    connection: Connection<ClientStream, SiteService>,
    /// Drives the handshake, if it was not done at the start. Boxed, because few connections have one.
    opening: Option<Box<Opening>>,
    /// The agent that the connection has to move to.
    target: Option<NodeName>,
    idle: IdleTimer,
}

impl Driver {
    fn poll(
        &mut self,
        http: &Http,
        about: &About,
        leaves: &mut mpsc::Receiver<Box<Leave>>,
        stalled: Pin<&mut impl Future<Output = ()>>,
        idle: Pin<&mut Sleep>,
        cx: &mut Context<'_>,
    ) -> Poll<Stop> {
        if self.opening.as_mut().is_some_and(|opening| opening.poll(cx) == Poll::Ready(false)) {
            return Poll::Ready(Stop::Unopened);
        }
        while let Poll::Ready(Some(leave)) = leaves.poll_recv(cx) {
            if !self.connection.is_idle() {
                about.report_stay(&http.peers, StayReason::InRequest);
            }
            if leave.target.is_none() && leave.or_end {
                self.connection.close();
            }
            self.target = leave.target;
        }
        if let Poll::Ready(end) = self.connection.poll(cx) {
            return Poll::Ready(Stop::Ended(end));
        }
        if stalled.poll(cx).is_ready() {
            return Poll::Ready(Stop::Stalled);
        }
        if !self.connection.is_idle() {
            return Poll::Pending;
        }
        if let Some(target) = self.target.take_if(|_| self.connection.stream_mut().is_open()) {
            return Poll::Ready(Stop::Parks(target));
        }
        self.idle.poll(self.connection.requests(), idle, cx).map(|()| Stop::TimedOut)
    }

    async fn end(
        self,
        http: &Http,
        about: About,
        stop: Stop,
        agreed: &Agreed,
        leaves: &mut mpsc::Receiver<Box<Leave>>,
    ) -> HttpEnd {
        let parts = self.connection.into_parts();
        let (stream, early) = parts.stream.into_open();
        let stream = match (stream, self.opening) {
            (Some(stream), _) => stream,
            (None, Some(opening)) => match opening.finish().await {
                Ok(stream) => stream,
                Err(unfinished) => return HttpEnd::Unfinished(unfinished),
            },
            (None, None) => unreachable!("a stream that is not open has a driver"),
        };
        let result: Result<(), HttpError> = match stop {
            Stop::Parks(target) => {
                let parts = with_opened(*stream, parts.opened, &early);
                return HttpEnd::Parked(Box::new(Live { about, parts }), target);
            }
            Stop::Ended(End::Tunnel) => {
                let Some(tunnel) = agreed.take() else { return HttpEnd::Ended(stream, Ok(())) };
                let mut stream = Box::new(TlsStream::from_parts(with_opened(*stream, parts.opened, &early)));
                let result = tunnel.on_connection(&http.peers, &about, &mut stream, leaves).await;
                return HttpEnd::Ended(stream, result.map_err(HttpError::from));
            }
            Stop::Ended(End::Cut(broken)) => Err(broken.into()),
            Stop::Stalled => Err(Stalled.into()),
            Stop::Ended(End::Complete | End::Held) | Stop::TimedOut | Stop::Unopened => Ok(()),
        };
        HttpEnd::Ended(stream, result)
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

/// Answers requests of one connection from the site.
struct SiteService {
    requests: Arc<Requests>,
    client: Arc<Client>,
    stalls: Arc<Stalls>,
    gate: Gate,
    agreed: Agreed,
}

impl Service for SiteService {
    type Body = ResponseBody;
    type Answering = Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>;

    fn answer(&mut self, request: Request<Content>) -> Self::Answering {
        let (requests, client, stalls) = (self.requests.clone(), self.client.clone(), self.stalls.clone());
        let (gate, agreed) = (self.gate.clone(), self.agreed.clone());
        Box::pin(async move {
            let answer = requests.answer(request, &client, &stalls, gate).await;
            agreed.set(answer.tunnel);
            answer.response
        })
    }

    fn refuse(&mut self, refused: &Refused) -> Response<ResponseBody> {
        self.requests.refuse(refused, &self.client, &self.stalls)
    }

    fn date(&self) -> HeaderValue {
        date::now()
    }
}
