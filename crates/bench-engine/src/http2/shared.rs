//! The connection that several clients share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::connection::Connection;
use crate::connect::{self, Route};
use crate::ending::Ending;
use crate::exchange::Exchange;
use crate::run::Run;
use crate::tls::TlsClient;
use crate::watchdog::Watchdog;

/// The current connection, and how to open another.
#[derive(Debug)]
pub(super) struct SharedConnection {
    run: Arc<Run>,
    tls: TlsClient,
    connection: Mutex<Option<Arc<Connection>>>,
    /// Locked while a client opens a connection. Contains the last failure.
    opening: tokio::sync::Mutex<Option<Failure>>,
}

/// A failed attempt to open a connection.
#[derive(Debug)]
struct Failure {
    at: Duration,
    route: Route,
    ending: Ending,
}

impl SharedConnection {
    pub(super) fn new(run: &Arc<Run>) -> Self {
        Self {
            run: Arc::clone(run),
            tls: run.shared.tls.client(),
            connection: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        }
    }

    /// The connection for this exchange. Opens one if necessary. Clients that wait while another client opens one share
    /// its failure.
    pub(super) async fn connection(&self, exchange: &Exchange<'_>) -> Result<Arc<Connection>, Ending> {
        if let Some(connection) = self.fitting(exchange) {
            return Ok(connection);
        }
        let asked = self.run.now();
        let mut failure = self.opening.lock().await;
        if let Some(connection) = self.fitting(exchange) {
            return Ok(connection);
        }
        if let Some(failure) = failure.as_ref().filter(|failure| failure.at >= asked && fits(&failure.route, exchange))
        {
            return Err(failure.ending);
        }
        match Box::pin(self.open(exchange)).await {
            Ok(connection) => Ok(Arc::clone(self.lock().insert(Arc::new(connection)))),
            Err(ending) => {
                let route = Route { site: Arc::clone(&exchange.next().site), source: exchange.source };
                *failure = Some(Failure { at: self.run.now(), route, ending });
                Err(ending)
            }
        }
    }

    /// Makes the connection unavailable for new requests. It closes when the last request on it ends.
    pub(super) fn retire(&self, connection: &Arc<Connection>) {
        let mut current = self.lock();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            *current = None;
        }
    }

    /// Releases the connection.
    pub(super) fn close(&mut self) {
        *self.lock() = None;
    }

    async fn open(&self, exchange: &Exchange<'_>) -> Result<Connection, Ending> {
        let mut watchdog = Watchdog::new(self.run.response_deadline());
        let opened = connect::open(&self.run, &self.tls, exchange.next(), exchange.source, &mut watchdog).await?;
        Connection::new(&self.run, opened).await
    }

    fn fitting(&self, exchange: &Exchange<'_>) -> Option<Arc<Connection>> {
        self.lock().as_ref().filter(|connection| fits(&connection.route, exchange)).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Connection>>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fits(route: &Route, exchange: &Exchange<'_>) -> bool {
    route.fits(&exchange.next().site, exchange.source)
}
