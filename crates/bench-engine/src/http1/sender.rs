//! The HTTP/1.1 connection of one client.

use bytes::{Bytes, BytesMut};

use super::connection::Connection;
use crate::connect;
use crate::ending::{Ending, EndingKind, Phase, Side};
use crate::exchange::{Broken, Exchange, Failed, Retry};
use crate::plan::Protocol;
use crate::run::Run;
use crate::sample::ConnectionSample;
use crate::tls::TlsClient;
use crate::watchdog::Watchdog;

/// Sends requests over a connection that it does not share.
#[derive(Debug)]
pub(crate) struct Sender {
    tls: TlsClient,
    connection: Option<Box<Connection>>,
    watchdog: Watchdog,
}

impl Sender {
    pub(crate) fn new(run: &Run) -> Self {
        Self { tls: run.shared.tls.client(), connection: None, watchdog: Watchdog::new(run.response_deadline()) }
    }

    /// Sends the requests and reads the responses. Closes the connection on failure.
    pub(crate) async fn attempt(&mut self, run: &Run, exchange: &mut Exchange<'_>) -> Result<Ending, Failed> {
        let reused = self.fits(exchange);
        let result = self.carry(run, exchange).await;
        result.map_err(|broken| {
            let retry = if broken.ending == CLOSED_BEFORE {
                Retry::Elsewhere
            } else if reused && met_stale_connection(exchange, &broken) {
                Retry::Once
            } else {
                Retry::No
            };
            self.give_up(run, if retry == Retry::No { broken.ending } else { CLOSED_BEFORE });
            Failed { broken, retry }
        })
    }

    /// How many more requests the connection can carry; without a connection, how many a new one can.
    pub(crate) fn room(&self, protocol: Protocol) -> usize {
        let Protocol::Http1 { requests_per_connection: Some(max), .. } = protocol else { return usize::MAX };
        let carried = self.connection.as_ref().map_or(0, |connection| connection.sample.requests);
        max.saturating_sub(carried).try_into().unwrap_or(usize::MAX)
    }

    /// Closes the connection, if there is one.
    pub(crate) fn close(&mut self, run: &Run) {
        self.give_up(run, Ending::new(EndingKind::Normal, Phase::Close, Side::Client));
    }

    /// Whether there is a connection, and it may carry this exchange.
    fn fits(&self, exchange: &Exchange<'_>) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|connection| connection.route.fits(&exchange.next().site, exchange.source))
    }

    async fn carry(&mut self, run: &Run, exchange: &mut Exchange<'_>) -> Result<Ending, Broken> {
        if !self.fits(exchange) {
            self.close(run);
            let (watchdog, request) = (&mut self.watchdog, exchange.next());
            // Boxed, because the future of a handshake is larger than all others, and would be moved for each request.
            let opened = Box::pin(connect::open(run, &self.tls, request, exchange.source, watchdog)).await;
            self.connection = Some(Box::new(Connection::new(opened.map_err(Broken::before_response)?)));
        }
        let last = self.room(run.plan.protocol) <= exchange.rest().len();
        let connection = self.connection.as_mut().expect("it fits, or was just opened");
        exchange.goes_over(&connection.sample);
        let written = connection.write(run, &bytes(exchange, last), exchange.started, &mut self.watchdog).await;
        let written = written.map_err(Broken::before_response)?;
        exchange.written = Some(written);
        loop {
            let keep = exchange.keep_next();
            let response = connection.read(run, exchange.next(), keep, written, &mut self.watchdog).await?;
            connection.sample.requests += 1;
            let ending = exchange.answer(run, &response);
            if exchange.is_answered() {
                self.after(run, last).await;
                return Ok(ending);
            }
            if !connection.is_persistent() {
                // A server that announces the close does not process the remaining requests (RFC 9112, section 9.6).
                return Err(Broken::before_response(CLOSED_BEFORE));
            }
        }
    }

    /// Keeps the connection for the next request, or ends it.
    async fn after(&mut self, run: &Run, last: bool) {
        let Some(connection) = &mut self.connection else { return };
        if connection.has_more() {
            self.give_up(run, UNASKED);
        } else if last || !connection.is_persistent() {
            let ending = connection.read_to_end(run, &mut self.watchdog).await;
            self.give_up(run, ending);
        }
    }

    /// Closes the connection, if there is one, and records its ending.
    fn give_up(&mut self, run: &Run, ending: Ending) {
        if let Some(connection) = self.connection.take() {
            let closed = run.now();
            let sample = connection.close();
            run.connection_ended(&ConnectionSample { closed, ending, ..sample });
        }
    }
}

/// The server closed before it processed the requests in progress. They go over another connection.
const CLOSED_BEFORE: Ending = Ending { kind: EndingKind::Normal, phase: Phase::Close, side: Side::Server };

/// The server sent bytes after the last response.
const UNASKED: Ending = Ending { kind: EndingKind::Protocol, phase: Phase::Close, side: Side::Server };

/// The bytes of the batch. `last`: the connection carries no request after it.
fn bytes(exchange: &Exchange<'_>, last: bool) -> Bytes {
    if let [request] = exchange.rest() {
        return if last { request.last.clone() } else { request.persistent.clone() };
    }
    let mut data = BytesMut::new();
    for (index, request) in exchange.rest().iter().enumerate() {
        let last = last && index + 1 == exchange.rest().len();
        data.extend_from_slice(if last { &request.last } else { &request.persistent });
    }
    data.freeze()
}

/// Whether a reused connection ended before it could have carried any of the requests (RFC 9112, section 9.3.1).
fn met_stale_connection(exchange: &Exchange<'_>, broken: &Broken) -> bool {
    broken.ending.kind == EndingKind::Reset
        && broken.first_byte.is_none()
        && exchange.answered == 0
        && exchange.batch.iter().all(|request| request.is_idempotent())
}
