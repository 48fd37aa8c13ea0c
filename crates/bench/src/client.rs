//! A client: its TLS sessions, and the connection it has.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::ending::Ending;
use crate::exchange::{Exchange, Inspection};
use crate::http1;
use crate::request::Request;
use crate::run::Run;

/// Sends requests one after the other, over one connection as long as that lasts and fits; every request and every connection
/// leaves its sample with the run.
#[derive(Debug)]
pub(crate) struct Client {
    run: Arc<Run>,
    sender: http1::Sender,
}

impl Client {
    /// A client without connection or sessions.
    pub(crate) fn new(run: &Arc<Run>) -> Self {
        Self { run: Arc::clone(run), sender: http1::Sender::new(run) }
    }

    /// Sends a request that was due at `due`, from `source` if that matters, and reads the response.
    pub(crate) async fn send(&mut self, request: &Request, source: Option<IpAddr>, due: Duration) {
        self.exchange(Exchange::new(&[request], source, due)).await;
    }

    /// Sends requests to one site without waiting for responses between them (HTTP/1.1), and reads the responses.
    pub(crate) async fn send_pipelined(&mut self, batch: &[&Request], due: Duration) {
        self.exchange(Exchange::new(batch, None, due)).await;
    }

    /// Sends a request, and has its response looked at, header fields and body; says how it ended.
    pub(crate) async fn ask(&mut self, request: &Request, due: Duration, inspection: Inspection<'_>) -> Ending {
        self.exchange(Exchange::new(&[request], None, due).inspected(inspection)).await
    }

    /// Closes the connection, if there is one.
    pub(crate) fn close(&mut self) {
        self.sender.close(&self.run);
    }

    /// Sends what the exchange has; once more, if the server cannot have done anything with it. Says how the last request ended.
    async fn exchange(&mut self, mut exchange: Exchange<'_>) -> Ending {
        let mut repeated = false;
        loop {
            exchange.start(self.run.now());
            match self.sender.attempt(&self.run, &mut exchange).await {
                Ok(ending) => return ending,
                Err(failed) if failed.unprocessed && !repeated => repeated = true,
                Err(failed) => return exchange.fail(&self.run, &failed.broken),
            }
        }
    }
}
