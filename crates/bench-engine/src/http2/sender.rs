//! The requests of one client, one after the other, on streams of a shared connection.

use std::future::Future;
use std::iter;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use h2::client::ResponseFuture;

use super::connection::{Connection, RunningStream};
use super::fault;
use super::ledger::Times;
use super::shared::SharedConnection;
use crate::ending::{Ending, EndingKind, Phase, Side};
use crate::exchange::{Broken, Exchange, Failed, Response, Retry};
use crate::keep::Keep;
use crate::plan::Protocol;
use crate::run::Run;
use crate::watchdog::Watchdog;

/// Sends requests over a connection that it shares with other senders.
#[derive(Debug)]
pub(crate) struct Sender {
    shared: Arc<SharedConnection>,
    watchdog: Watchdog,
}

impl Sender {
    /// The first sender of a connection that is not open yet.
    pub(crate) fn new(run: &Arc<Run>) -> Self {
        Self { shared: Arc::new(SharedConnection::new(run)), watchdog: Watchdog::new(run.response_deadline()) }
    }

    /// The other senders of the same connection.
    pub(crate) fn others(&self, run: &Arc<Run>) -> impl Iterator<Item = Self> + use<> {
        let Protocol::Http2 { streams, .. } = run.plan.protocol else { unreachable!("there is a sender of HTTP/2") };
        let (shared, run) = (Arc::clone(&self.shared), Arc::clone(run));
        let other = move || Self { shared: Arc::clone(&shared), watchdog: Watchdog::new(run.response_deadline()) };
        iter::repeat_with(other).take(streams.saturating_sub(1))
    }

    /// Closes the connection, unless other senders use it.
    pub(crate) fn close(&mut self) {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.close();
        }
    }

    /// Sends the one request of the exchange and reads the response.
    pub(crate) async fn attempt(&mut self, run: &Run, exchange: &mut Exchange<'_>) -> Result<Ending, Failed> {
        let begun = run.now();
        let (connection, stream) = self.begin(run, exchange).await.map_err(Failed::before_request)?;
        let mut reading = Reading::new(exchange.keep_next());
        let result = self.watch(run, &connection, stream.stream, reading.read(stream.response)).await;
        let times = connection.ledger().end(stream.stream, matches!(result, Some(Ok(()))));
        exchange.written = times.written;
        match result {
            Some(Ok(())) => Ok(exchange.answer(run, &reading.response(times, run.now()))),
            Some(Err(error)) => Err(self.failed(&connection, &error, reading, times)),
            None => Err(self.overdue(&connection, begun, reading, times)),
        }
    }

    /// Sends the request over the current connection. If that has ended since its last use, it has processed nothing of
    /// this request, and the sender opens another.
    async fn begin(&self, run: &Run, exchange: &mut Exchange<'_>) -> Result<(Arc<Connection>, RunningStream), Ending> {
        loop {
            let connection = self.shared.connection(exchange).await?;
            match connection.begin(exchange.next()) {
                Ok(begun) => {
                    if is_last(run.plan.protocol, begun.number) {
                        self.shared.retire(&connection);
                    }
                    exchange.goes_over(&connection.ledger().sample);
                    return Ok((connection, begun));
                }
                Err(error) if fault::is_of_connection(&error) => self.shared.retire(&connection),
                Err(_) => return Err(NOT_TO_BE_SENT),
            }
        }
    }

    /// Waits for the response. `None`: it did not arrive within the timeout, counted from the end of the request.
    async fn watch<T>(
        &mut self,
        run: &Run,
        connection: &Connection,
        stream: u32,
        response: impl Future<Output = T>,
    ) -> Option<T> {
        let mut response = pin!(response);
        let mut deadline = run.response_deadline();
        loop {
            if let Some(came) = self.watchdog.within(deadline, response.as_mut()).await {
                return Some(came);
            }
            // So far the deadline assumed that the request was written at once.
            let written = connection.ledger().times(stream).written?;
            let overdue = written + run.plan.timeouts.response;
            if overdue <= run.now() {
                return None;
            }
            deadline = run.shared.instant(overdue);
        }
    }

    fn failed(&self, connection: &Arc<Connection>, error: &h2::Error, reading: Reading, times: Times) -> Failed {
        if fault::is_of_connection(error) {
            self.shared.retire(connection);
        }
        let ending = connection.ledger().ending_of_request(error, times);
        let retry = if times.first_byte.is_none() { fault::retry(error) } else { Retry::No };
        Failed { broken: reading.broken(ending, times), retry }
    }

    /// If no byte has arrived since the request began, the connection counts as dead, and the next request opens
    /// another.
    fn overdue(&self, connection: &Arc<Connection>, begun: Duration, reading: Reading, times: Times) -> Failed {
        if connection.ledger().is_silent_since(begun) {
            self.shared.retire(connection);
        }
        let ending = Ending::new(EndingKind::Timeout, times.phase(), Side::Server);
        Failed { broken: reading.broken(ending, times), retry: Retry::No }
    }
}

/// A response in progress.
#[derive(Debug)]
struct Reading {
    keep: Keep,
    status: Option<u16>,
    body_bytes: u64,
}

impl Reading {
    fn new(keep: Keep) -> Self {
        Self { keep, status: None, body_bytes: 0 }
    }

    async fn read(&mut self, response: ResponseFuture) -> Result<(), h2::Error> {
        let (head, mut body) = response.await?.into_parts();
        self.status = Some(head.status.as_u16());
        if let Some(headers) = self.keep.headers() {
            *headers = head.headers;
        }
        while let Some(data) = body.data().await.transpose()? {
            self.body_bytes += data.len() as u64;
            self.keep.body(&data);
            body.flow_control().release_capacity(data.len())?;
        }
        Ok(())
    }

    fn response(self, times: Times, now: Duration) -> Response {
        let ended = times.last_byte.unwrap_or(now);
        Response {
            status: self.status.unwrap_or_default(),
            body_bytes: self.body_bytes,
            first_byte: times.first_byte.unwrap_or(ended),
            ended,
            keep: self.keep,
        }
    }

    fn broken(self, ending: Ending, times: Times) -> Broken {
        Broken { ending, status: self.status, body_bytes: self.body_bytes, first_byte: times.first_byte }
    }
}

/// Whether the connection carries no more requests after `number` of them.
fn is_last(protocol: Protocol, number: u64) -> bool {
    let max = match protocol {
        Protocol::Http2 { requests_per_connection, .. } => requests_per_connection,
        Protocol::Http1 { .. } => None,
    };
    number >= max.unwrap_or(STREAMS_MAX).min(STREAMS_MAX)
}

/// A client's streams have odd numbers below 2^31 (RFC 9113, section 5.1.1).
const STREAMS_MAX: u64 = 1 << 30;

/// h2 rejects the request, because its header fields cannot be sent by HTTP/2.
const NOT_TO_BE_SENT: Ending = Ending { kind: EndingKind::Local, phase: Phase::Request, side: Side::Client };
