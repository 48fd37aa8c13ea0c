//! A client: its TLS sessions, and its connection.

use std::iter;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::ending::{Ending, EndingKind, Phase, Side};
use crate::exchange::{Broken, Exchange, Inspection, Retry};
use crate::plan::{Protocol, Work};
use crate::request::Request;
use crate::run::Run;
use crate::{http1, http2};

/// Sends requests one after the other. It reuses its connection while that is open and leads to the request's site. It
/// records a sample of every request and every connection in the run.
#[derive(Debug)]
pub(crate) struct Client {
    run: Arc<Run>,
    sender: Sender,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::Sender),
    Http2(http2::Sender),
}

impl Drop for Client {
    /// Closes the connection, also when a run is cut off.
    fn drop(&mut self) {
        self.close();
    }
}

impl Client {
    /// A client without a connection or sessions.
    pub(crate) fn new(run: &Arc<Run>) -> Self {
        let sender = match run.plan.protocol {
            Protocol::Http1 { .. } => Sender::Http1(http1::Sender::new(run)),
            Protocol::Http2 { .. } => Sender::Http2(http2::Sender::new(run)),
        };
        Self { run: Arc::clone(run), sender }
    }

    /// As many clients as one connection serves at once. Clients of HTTP/2 share a connection and its TLS sessions.
    /// Users of flows share nothing.
    pub(crate) fn of_one_connection(run: &Arc<Run>) -> impl Iterator<Item = Self> + use<> {
        let first = Self::new(run);
        let others = match (&first.sender, &run.plan.work) {
            (Sender::Http2(sender), Work::Requests(_)) => Some(sender.others(run)),
            _ => None,
        };
        let run = Arc::clone(run);
        let others = others.into_iter().flatten();
        iter::once(first).chain(others.map(move |other| Self { run: Arc::clone(&run), sender: Sender::Http2(other) }))
    }

    /// Sends a request that was due at `due`, and reads the response. `source` is the local address, if the caller
    /// requires one. `now` is the time.
    pub(crate) async fn send(&mut self, request: &Request, source: Option<IpAddr>, due: Duration, now: Duration) {
        self.exchange(Exchange::new(&[request], source, due), now).await;
    }

    /// Sends requests to one site without waiting for responses between them (HTTP/1.1 pipelining), then reads the
    /// responses. `source` is the local address, if the caller requires one. The batch is not longer than
    /// [`Client::room`]. `now` is the time, at which they are due.
    pub(crate) async fn send_pipelined(&mut self, batch: &[&Request], source: Option<IpAddr>, now: Duration) {
        self.exchange(Exchange::new(batch, source, now), now).await;
    }

    /// How many more requests the connection can carry, or a new connection if it has to be replaced.
    pub(crate) fn room(&self) -> usize {
        match &self.sender {
            Sender::Http1(sender) => sender.room(self.run.plan.protocol),
            Sender::Http2(_) => 1,
        }
    }

    /// Sends a request, and passes the header fields and body of the response to `inspection`. Returns how the request
    /// ended.
    pub(crate) async fn ask(&mut self, request: &Request, due: Duration, inspection: Inspection<'_>) -> Ending {
        let now = self.run.now();
        self.exchange(Exchange::new(&[request], None, due).inspected(inspection), now).await
    }

    /// Closes the connection, unless other clients share it.
    pub(crate) fn close(&mut self) {
        match &mut self.sender {
            Sender::Http1(sender) => sender.close(&self.run),
            Sender::Http2(sender) => sender.close(),
        }
    }

    /// Sends the requests of the exchange. Sends a request again only if the server has certainly not processed it, or
    /// if it is idempotent. Returns how the last request ended.
    async fn exchange(&mut self, mut exchange: Exchange<'_>, begun: Duration) -> Ending {
        let (mut repeated, mut now) = (false, begun);
        loop {
            exchange.start(now);
            let attempt = match &mut self.sender {
                Sender::Http1(sender) => sender.attempt(&self.run, &mut exchange).await,
                Sender::Http2(sender) => sender.attempt(&self.run, &mut exchange).await,
            };
            let failed = match attempt {
                Ok(ending) => return ending,
                Err(failed) => failed,
            };
            now = self.run.now();
            match failed.retry {
                Retry::Once if !repeated => {}
                Retry::No | Retry::Once => return exchange.fail(&self.run, &failed.broken),
                Retry::Elsewhere if now.saturating_sub(begun) < self.run.plan.timeouts.response => {}
                Retry::Elsewhere => return exchange.fail(&self.run, &Broken::before_response(NEVER_TAKEN)),
            }
            repeated = true;
        }
    }
}

/// No connection accepted the request within the response timeout.
const NEVER_TAKEN: Ending = Ending { kind: EndingKind::Timeout, phase: Phase::Request, side: Side::Server };
