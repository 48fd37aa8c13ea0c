//! The sensor's side: sends reports to a judge on another machine.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};
use watari_pki::Identity;
use watari_values::{NodeName, Role};

use super::backlog::Limits;
use super::clock::Clock;
use super::metrics::ReporterMetrics;
use super::session::{LinkError, Session};
use super::shared::{ReporterCounts, ReporterShared};
use crate::report::Report;

/// Sends reports of capture threads to a judge, from [`Reporter::start`] on. While the judge is away, it stores them.
/// Dropping it ends it; [`Reporter::finish`] sends the rest first.
#[derive(Debug)]
pub struct Reporter {
    shared: Arc<ReporterShared>,
    link_task: JoinHandle<()>,
}

/// Options of a reporter.
#[derive(Debug, Clone)]
pub struct Options {
    /// The limits of the backlog.
    pub limits: Limits,
    /// The wait between connection attempts.
    pub backoff: Backoff,
    /// The clock of reports, which is compared with the judge's.
    pub clock: Clock,
}

/// The wait between connection attempts. It doubles after each, and up to half of it is random, so that sensors do not
/// come all at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first attempt.
    pub first: Duration,
    pub max: Duration,
}

/// A reporter cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The certificate does not allow the role of a sensor.
    #[error("the certificate of {0} does not allow the role {role}", role = Role::Sensor)]
    Role(NodeName),
}

impl Default for Options {
    fn default() -> Self {
        Self { limits: Limits::default(), backoff: Backoff::default(), clock: Clock::system() }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(200), max: Duration::from_secs(10) }
    }
}

impl Reporter {
    /// Connects to the judge at `address` (a host and a port), which is resolved for each attempt. Runs on the tokio
    /// runtime of the caller.
    pub fn start(address: String, identity: Identity, options: Options) -> Result<Self, StartError> {
        if !identity.roles().contains(&Role::Sensor) {
            return Err(StartError::Role(identity.node().clone()));
        }
        let Options { limits, backoff, clock } = options;
        let shared = Arc::new(ReporterShared::new(limits, clock));
        let link_task = LinkTask { shared: Arc::clone(&shared), address, identity, backoff };
        Ok(Self { shared, link_task: tokio::spawn(link_task.run()) })
    }

    /// Takes a report of the thread `part`. Each thread has to report once a second, even without events, because only
    /// reports show that it runs. Never blocks.
    pub fn report(&self, part: u8, report: &Report) {
        self.shared.backlog().add(part, report);
        self.shared.changed.notify_one();
    }

    pub fn counts(&self) -> ReporterCounts {
        self.shared.counts()
    }

    /// The counts for Prometheus.
    pub fn metrics(&self) -> ReporterMetrics {
        ReporterMetrics(Arc::clone(&self.shared))
    }

    /// Sends the reports that no judge has taken, for `limit` at most, and ends. The result shows whether some are
    /// left.
    pub async fn finish(mut self, limit: Duration) -> ReporterCounts {
        self.shared.end();
        // The counts show whether all was sent in time.
        let _ = timeout(limit, &mut self.link_task).await;
        self.counts()
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.link_task.abort();
    }
}

/// The task that connects and sends.
struct LinkTask {
    shared: Arc<ReporterShared>,
    address: String,
    identity: Identity,
    backoff: Backoff,
}

impl LinkTask {
    async fn run(self) {
        let mut wait = self.backoff.first;
        while !self.shared.is_done() {
            let was_welcome = match self.session().await {
                Ok(()) => return,
                Err((error, was_welcome)) => {
                    self.log(&error);
                    was_welcome && !matches!(error, LinkError::Refused(_))
                }
            };
            if was_welcome {
                wait = self.backoff.first;
            }
            self.rest(wait).await;
            wait = (wait * 2).min(self.backoff.max);
        }
    }

    /// One connection. The error has whether the judge had accepted the connection.
    async fn session(&self) -> Result<(), (LinkError, bool)> {
        let connected = Session::connect(&self.shared, &self.address, &self.identity).await;
        let session = connected.map_err(|error| (error, false))?;
        info!(address = self.address, judge = %session.judge(), "connected to the judge");
        session.send_reports().await.map_err(|error| (error, true))
    }

    fn log(&self, error: &LinkError) {
        let address = &self.address;
        if self.shared.left(error.to_string()) {
            warn!(address, %error, "no connection to the judge, reports are stored");
        } else {
            debug!(address, %error, "still no connection to the judge");
        }
    }

    /// Waits. If the sensor ends, it waits for `backoff.first` at most.
    async fn rest(&self, wait: Duration) {
        let wait = wait.mul_f64(1.0 - rand::random::<f64>() / 2.0);
        let mut ending = self.shared.is_ending.subscribe();
        sleep(wait.min(self.backoff.first)).await;
        // The sender lives as long as `self`.
        let _ = timeout(wait.saturating_sub(self.backoff.first), ending.wait_for(|is_ending| *is_ending)).await;
    }
}
