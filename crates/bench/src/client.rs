//! A client: its TLS sessions, and the connection it has.

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

/// Sends requests one after the other, over one connection as long as that lasts and fits; every request and every connection
/// leaves its sample with the run.
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
    /// Its connection ends with it, also where a run is broken off.
    fn drop(&mut self) {
        self.close();
    }
}

impl Client {
    /// A client without connection or sessions.
    pub(crate) fn new(run: &Arc<Run>) -> Self {
        let sender = match run.plan.protocol {
            Protocol::Http1 { .. } => Sender::Http1(http1::Sender::new(run)),
            Protocol::Http2 { .. } => Sender::Http2(http2::Sender::new(run)),
        };
        Self { run: Arc::clone(run), sender }
    }

    /// As many clients as one connection serves at once: those of HTTP/2 share it, and their sessions. Users of flows share nothing.
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

    /// Sends a request that was due at `due`, from `source` if that matters, and reads the response.
    pub(crate) async fn send(&mut self, request: &Request, source: Option<IpAddr>, due: Duration) {
        self.exchange(Exchange::new(&[request], source, due)).await;
    }

    /// Sends requests to one site, from `source` if that matters, without waiting for responses between them (HTTP/1.1), and reads
    /// the responses. There are no more of them than there is [room](Self::room) for.
    pub(crate) async fn send_pipelined(&mut self, batch: &[&Request], source: Option<IpAddr>, due: Duration) {
        self.exchange(Exchange::new(batch, source, due)).await;
    }

    /// How many requests its connection carries yet, or the one that would take its place.
    pub(crate) fn room(&self) -> usize {
        match &self.sender {
            Sender::Http1(sender) => sender.room(self.run.plan.protocol),
            Sender::Http2(_) => 1,
        }
    }

    /// Sends a request, and has its response looked at, header fields and body; says how it ended.
    pub(crate) async fn ask(&mut self, request: &Request, due: Duration, inspection: Inspection<'_>) -> Ending {
        self.exchange(Exchange::new(&[request], None, due).inspected(inspection)).await
    }

    /// Closes the connection, if there is one that nobody shares.
    pub(crate) fn close(&mut self) {
        match &mut self.sender {
            Sender::Http1(sender) => sender.close(&self.run),
            Sender::Http2(sender) => sender.close(),
        }
    }

    /// Sends what the exchange has, and what the server has certainly done nothing with again. Says how the last request ended.
    async fn exchange(&mut self, mut exchange: Exchange<'_>) -> Ending {
        let mut repeated = false;
        let begun = self.run.now();
        let mut now = begun;
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

/// The server took no part in it for as long as it may take to answer.
const NEVER_TAKEN: Ending = Ending { kind: EndingKind::Timeout, phase: Phase::Request, side: Side::Server };
