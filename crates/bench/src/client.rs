//! A client: its TLS sessions, and the connection it has.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::connect;
use crate::ending::{Ending, EndingKind, Phase, Side};
use crate::http1::{Broken, Connection, Keep, Response};
use crate::plan::Protocol;
use crate::request::{Expected, Request};
use crate::run::Run;
use crate::sample::{ConnectionSample, Family, HandshakeKind, RequestSample};
use crate::tls::TlsClient;
use crate::watchdog::Watchdog;

/// Sends requests one after the other, over one connection as long as that lasts and fits; every request and every connection
/// leaves its sample with the run.
#[derive(Debug)]
pub(crate) struct Client {
    run: Arc<Run>,
    tls: TlsClient,
    connection: Option<Box<Connection>>,
    watchdog: Watchdog,
}

/// Looks at a response that came whole, and says how its request ended.
pub(crate) struct Inspection<'a> {
    /// How much of the body is kept for it.
    pub(crate) body_bytes_max: usize,
    pub(crate) judge: Box<dyn FnMut(&Response) -> Ending + Send + Sync + 'a>,
}

impl Client {
    /// A client without connection or sessions.
    pub(crate) fn new(run: &Arc<Run>) -> Self {
        let deadline = run.shared.instant(run.now() + run.plan.timeouts.response);
        Self { run: Arc::clone(run), tls: run.shared.tls.client(), connection: None, watchdog: Watchdog::new(deadline) }
    }

    /// Sends a request that was due at `due`, from `source` if that matters, and reads the response.
    pub(crate) async fn send(&mut self, request: &Request, source: Option<IpAddr>, due: Duration) {
        self.exchange(Exchange::new(&[request], source, due)).await;
    }

    /// Sends requests to one site without waiting for responses between them, and reads the responses.
    pub(crate) async fn send_pipelined(&mut self, batch: &[&Request], due: Duration) {
        self.exchange(Exchange::new(batch, None, due)).await;
    }

    /// Sends a request, and has its response looked at, header fields and body; says how it ended.
    pub(crate) async fn ask(&mut self, request: &Request, due: Duration, inspection: Inspection<'_>) -> Ending {
        let inspection = Some(inspection);
        self.exchange(Exchange { inspection, ..Exchange::new(&[request], None, due) }).await
    }

    /// Closes the connection, if there is one.
    pub(crate) fn close(&mut self) {
        self.give_up(Ending::new(EndingKind::Normal, Phase::Close, Side::Client));
    }

    /// Sends what the batch has; once more, if that met a connection which the server had closed in the meantime.
    /// Says how the last request ended.
    async fn exchange(&mut self, mut exchange: Exchange<'_>) -> Ending {
        loop {
            let reused = self.fits(&exchange);
            exchange.started = self.run.now();
            match self.attempt(&mut exchange).await {
                Ok(ending) => return ending,
                Err(broken) if reused && exchange.met_stale_connection(&broken) => self.give_up(CLOSED_BEFORE),
                Err(broken) => {
                    self.give_up(broken.ending);
                    exchange.fail(&self.run, &broken);
                    return broken.ending;
                }
            }
        }
    }

    /// Whether the connection, if there is one, may carry this.
    fn fits(&self, exchange: &Exchange<'_>) -> bool {
        self.connection.as_ref().is_some_and(|connection| {
            let same_site = Arc::ptr_eq(&connection.site, &exchange.batch[0].site);
            same_site && (exchange.source.is_none() || exchange.source == connection.source)
        })
    }

    async fn attempt(&mut self, exchange: &mut Exchange<'_>) -> Result<Ending, Broken> {
        if !self.fits(exchange) {
            self.close();
            self.connection = Some(self.open(exchange).await.map_err(Broken::before_response)?);
        }
        let connection = self.connection.as_mut().expect("it fits, or was just opened");
        exchange.family = connection.sample.family;
        exchange.handshake = connection.sample.tls.as_ref().map(|tls| tls.kind);
        let last = is_last(self.run.plan.protocol, connection.sample.requests + exchange.batch.len() as u64);
        let written = connection.write(&self.run, &exchange.written(last), &mut self.watchdog).await;
        let written = written.map_err(Broken::before_response)?;
        exchange.written = Some(written);
        loop {
            let request = exchange.batch[exchange.answered];
            let keep = exchange.keep_for(request);
            let response = connection.read(&self.run, request, keep, written, &mut self.watchdog).await?;
            connection.sample.requests += 1;
            let ending = exchange.answer(&self.run, request, &response);
            if exchange.answered == exchange.batch.len() {
                let persistent = response.persistent && !last;
                self.after(persistent).await;
                return Ok(ending);
            }
            if !response.persistent {
                // Whoever closes does not answer the rest.
                return Err(Broken::before_response(Ending::new(EndingKind::Reset, Phase::Wait, Side::Server)));
            }
        }
    }

    /// Opens a connection for the first request of the batch.
    async fn open(&self, exchange: &Exchange<'_>) -> Result<Box<Connection>, Ending> {
        let (run, request) = (&self.run, exchange.batch[0]);
        let number = run.next_connection();
        let source = exchange.source.or_else(|| run.plan.sources.as_ref().map(|sources| sources.nth(number)));
        let Some(remote) = request.site.address_for(source) else {
            return Err(NO_SUCH_FAMILY);
        };
        let mut sample = connect::begin(run, request.class, remote);
        match connect::open(run, &self.tls, &request.site, source, &mut sample).await {
            Ok(stream) => Ok(Box::new(Connection::new(stream, sample, &request.site, source))),
            Err(ending) => {
                run.connection_ended(&ConnectionSample { closed: run.now(), ending, ..sample });
                Err(ending)
            }
        }
    }

    /// Leaves the connection for the next request, or ends it.
    async fn after(&mut self, persistent: bool) {
        let Some(connection) = &mut self.connection else { return };
        if connection.has_more() {
            self.give_up(UNASKED);
        } else if !persistent {
            let ending = connection.read_to_end(&self.run, &mut self.watchdog).await;
            self.give_up(ending);
        }
    }

    /// Closes the connection, if there is one, and says how it ended.
    fn give_up(&mut self, ending: Ending) {
        if let Some(connection) = self.connection.take() {
            let closed = self.run.now();
            let sample = connection.close();
            self.run.connection_ended(&ConnectionSample { closed, ending, ..sample });
        }
    }
}

/// The server closed while nothing was on its way; the request that came too late goes over another connection.
const CLOSED_BEFORE: Ending = Ending { kind: EndingKind::Normal, phase: Phase::Close, side: Side::Server };

/// Behind the last response came what nobody asked for.
const UNASKED: Ending = Ending { kind: EndingKind::Protocol, phase: Phase::Close, side: Side::Server };

/// The host has no address of the family of the source that the request is to come from.
const NO_SUCH_FAMILY: Ending = Ending { kind: EndingKind::Local, phase: Phase::Connect, side: Side::Client };

/// Requests on their way, and how far they have come.
struct Exchange<'a> {
    batch: &'a [&'a Request],
    source: Option<IpAddr>,
    due: Duration,
    inspection: Option<Inspection<'a>>,
    answered: usize,
    started: Duration,
    written: Option<Duration>,
    family: Family,
    handshake: Option<HandshakeKind>,
}

impl<'a> Exchange<'a> {
    fn new(batch: &'a [&'a Request], source: Option<IpAddr>, due: Duration) -> Self {
        let family = batch[0].site.address_for(source).map_or(Family::Ipv4, Family::of);
        Self { batch, source, due, inspection: None, answered: 0, started: due, written: None, family, handshake: None }
    }

    /// The batch as it is written; `last` says that the connection carries nothing after it.
    fn written(&self, last: bool) -> Bytes {
        if let [request] = self.batch {
            return if last { request.last.clone() } else { request.persistent.clone() };
        }
        let mut data = BytesMut::new();
        for (index, request) in self.batch.iter().enumerate() {
            let last = last && index + 1 == self.batch.len();
            data.extend_from_slice(if last { &request.last } else { &request.persistent });
        }
        data.freeze()
    }

    /// What to keep of the response to `request`.
    fn keep_for(&self, request: &Request) -> Keep {
        let keep =
            self.inspection.as_ref().map_or_else(Keep::default, |inspection| Keep::answer(inspection.body_bytes_max));
        if request.expected.sha256.is_some() { keep.and_digest() } else { keep }
    }

    /// A response came whole.
    fn answer(&mut self, run: &Run, request: &Request, response: &Response) -> Ending {
        self.answered += 1;
        let ending = match &mut self.inspection {
            Some(inspection) => (inspection.judge)(response),
            None => judge(request.expected, response),
        };
        run.request_ended(&RequestSample {
            class: request.class,
            family: self.family,
            handshake: self.handshake,
            due: self.due,
            started: self.started,
            written: self.written,
            first_byte: Some(response.first_byte),
            ended: response.ended,
            status: Some(response.status),
            body_bytes: response.body_bytes,
            ending,
        });
        ending
    }

    /// Says of all requests that were not answered that they failed; what came of a response belongs to the first of them.
    fn fail(&self, run: &Run, broken: &Broken) {
        let ended = run.now();
        for (index, request) in self.batch[self.answered..].iter().enumerate() {
            run.request_ended(&RequestSample {
                class: request.class,
                family: self.family,
                handshake: self.handshake,
                due: self.due,
                started: self.started,
                written: self.written,
                first_byte: broken.first_byte.filter(|_| index == 0),
                ended,
                status: broken.status.filter(|_| index == 0),
                body_bytes: if index == 0 { broken.body_bytes } else { 0 },
                ending: broken.ending,
            });
        }
    }

    /// Whether a connection that was used before ended before it could have carried any of this (RFC 9112, section 9.3.1).
    fn met_stale_connection(&self, broken: &Broken) -> bool {
        broken.ending.kind == EndingKind::Reset
            && broken.first_byte.is_none()
            && self.answered == 0
            && self.batch.iter().all(|request| request.is_idempotent())
    }
}

/// Whether the response is what was expected.
fn judge(expected: Expected, response: &Response) -> Ending {
    let status = expected.status.is_none_or(|status| status == response.status);
    let kind = if status && expected.sha256.is_none_or(|sha256| response.keep.sha256() == Some(sha256)) {
        EndingKind::Normal
    } else {
        EndingKind::Mismatch
    };
    Ending::new(kind, Phase::Response, Side::Server)
}

/// Whether nothing follows once a connection has carried so many requests.
fn is_last(protocol: Protocol, requests: u64) -> bool {
    match protocol {
        Protocol::Http1 { requests_per_connection: Some(max), .. } => requests >= max,
        _ => false,
    }
}
