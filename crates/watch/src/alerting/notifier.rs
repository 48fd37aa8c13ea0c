//! Sends notices to receivers, and stores those that are not delivered.
//!
//! One task drives [`Alerts`]: it writes each change to the journal before it sends a notice. A receiver gets one
//! notice at a time, from a task of its own.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use watari_endings::Change;
use watari_packets::Timestamp;

use super::alerts::{Alerts, Delivery, Policy};
use super::config::Receiver;
use super::delivery::DeliveryError;
use super::http::ClientError;
use super::journal::{self, Journal};
use super::metrics::NotifierMetrics;
use super::outlet::Outlet;
use super::shared::{Clock, NotifierCounts, NotifierShared};

/// Notifies receivers of changes. Dropping it ends it at once, as if the process had been killed. [`Notifier::stop`] ends
/// it cleanly.
#[derive(Debug)]
pub struct Notifier {
    shared: Arc<NotifierShared>,
    task: JoinSet<()>,
}

/// Notifications cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration of a receiver is unusable.
    #[error("the [[receiver]] {receiver}: {source}")]
    Receiver {
        /// The name of the receiver.
        receiver: String,
        source: ClientError,
    },
    /// The journal cannot be read, or a new one cannot be written.
    #[error("the journal {}: {source}", .path.display())]
    Journal { path: PathBuf, source: io::Error },
}

/// How long [`Notifier::stop`] waits for attempts in progress.
const STOP_GRACE: Duration = Duration::from_secs(3);
/// The wait after a failed write of the journal.
const JOURNAL_RETRY: Duration = Duration::from_secs(10);

impl Notifier {
    /// Starts with the alerts in `journal`. Without a journal, a restart forgets them. It reads files, and has to be
    /// called within a tokio runtime.
    pub fn start(receivers: &[Receiver], journal: Option<PathBuf>) -> Result<Self, StartError> {
        let clock = Clock::new();
        let policies: Vec<Policy> = receivers.iter().map(|receiver| receiver.policy.clone()).collect();
        let outlets = receivers.iter().map(outlet).collect::<Result<_, _>>()?;
        let journal = journal.map(Journal::new);
        let alerts = match &journal {
            Some(journal) => restored(journal, &policies, clock.now())?,
            None => Alerts::new(policies),
        };
        let shared = Arc::new(NotifierShared {
            alerts: Mutex::new(alerts),
            clock,
            wake: Notify::new(),
            stop: Notify::new(),
            journal_failures: Mutex::new(0),
        });
        let driver = NotifierTask {
            shared: Arc::clone(&shared),
            outlets,
            journal,
            unwritten: false,
            deliveries: Deliveries::default(),
        };
        let mut task = JoinSet::new();
        task.spawn(driver.run());
        Ok(Self { shared, task })
    }

    /// Takes a change of a server's state, from [`crate::board::Board::poll`]. The same state may be passed again. A
    /// caller that starts a notifier beside an older board has to pass the present state of each server: an alert without
    /// confirmation after a restart ends after [`super::UNCONFIRMED`].
    pub fn notify(&self, sensor: &str, change: &Change) {
        self.shared.lock().change(sensor, change, self.shared.clock.now());
        self.shared.wake.notify_one();
    }

    pub fn counts(&self) -> NotifierCounts {
        self.shared.counts()
    }

    /// The counts for Prometheus.
    pub fn metrics(&self) -> NotifierMetrics {
        NotifierMetrics(Arc::clone(&self.shared))
    }

    /// Waits for attempts in progress, if they do not take long, and writes the rest to the journal.
    pub async fn stop(mut self) {
        self.shared.stop.notify_one();
        self.task.join_next().await;
    }
}

fn outlet(receiver: &Receiver) -> Result<Arc<Outlet>, StartError> {
    let named = |source| StartError::Receiver { receiver: receiver.policy.name.clone(), source };
    Outlet::new(receiver).map(Arc::new).map_err(named)
}

/// The alerts of the journal. It is written again at once, so that a start fails if it cannot be written.
fn restored(journal: &Journal, policies: &[Policy], now: Timestamp) -> Result<Alerts, StartError> {
    let named = |source| StartError::Journal { path: journal.path().to_owned(), source };
    let alerts = journal.read(policies, now).map_err(named)?.unwrap_or_else(|damage| {
        let (path, aside) = (journal.path().display(), journal.aside());
        tracing::error!(%path, %damage, aside = %aside.display(), "the journal of alerts is damaged; a new one begins");
        Alerts::new(policies.to_vec())
    });
    journal.write(&journal::encode(&alerts)).map_err(named)?;
    Ok(alerts)
}

/// The state of the task.
#[derive(Debug)]
struct NotifierTask {
    shared: Arc<NotifierShared>,
    outlets: Vec<Arc<Outlet>>,
    journal: Option<Journal>,
    /// The last write of the journal failed, or is missing.
    unwritten: bool,
    deliveries: Deliveries,
}

/// The attempts in progress.
#[derive(Debug, Default)]
struct Deliveries {
    tasks: JoinSet<Result<(), DeliveryError>>,
    of: HashMap<Id, Delivery>,
}

impl NotifierTask {
    async fn run(mut self) {
        loop {
            self.shared.lock().advance(self.shared.clock.now());
            self.write().await;
            self.deliver();
            let timeout = self.timeout();
            tokio::select! {
                () = self.shared.wake.notified() => {}
                (delivery, result) = self.deliveries.next() => self.settle(delivery.as_ref(), result),
                () = sleep_until(timeout) => {}
                () = self.shared.stop.notified() => break,
            }
        }
        self.finish().await;
    }

    fn deliver(&mut self) {
        let now = self.shared.clock.now();
        for (at, outlet) in self.outlets.iter().enumerate() {
            let delivery = self.shared.lock().next(at, now);
            if let Some(delivery) = delivery {
                let (outlet, notice) = (Arc::clone(outlet), delivery.notice.clone());
                self.deliveries.start(delivery, async move { outlet.send(&notice, now).await });
            }
        }
    }

    fn settle(&self, delivery: Option<&Delivery>, result: Result<(), DeliveryError>) {
        let Some(delivery) = delivery else { return };
        let (mut alerts, now) = (self.shared.lock(), self.shared.clock.now());
        let receiver = alerts.policy(delivery.receiver).name.clone();
        let (status, alert) = (delivery.notice.status(), delivery.notice.summary());
        match result {
            Ok(()) => {
                alerts.delivered(delivery, now);
                tracing::info!(receiver, status, alert, "notice delivered");
            }
            Err(error) => {
                alerts.failed(delivery, error.retry(), now, rand::random());
                tracing::warn!(receiver, status, alert, %error, "cannot deliver a notice, will retry");
            }
        }
    }

    /// Writes changes to the disk before notices are sent. If the write fails, they are sent nevertheless.
    async fn write(&mut self) {
        let Some(journal) = self.journal.clone() else { return };
        let content = {
            let mut alerts = self.shared.lock();
            self.unwritten |= alerts.take_changed();
            if !self.unwritten {
                return;
            }
            journal::encode(&alerts)
        };
        let path = journal.path().to_owned();
        let written = tokio::task::spawn_blocking(move || journal.write(&content)).await;
        match written.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(()) => self.unwritten = false,
            Err(error) => {
                *self.shared.journal_failures.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                tracing::error!(path = %path.display(), %error, "cannot write the journal of alerts");
            }
        }
    }

    fn timeout(&self) -> Instant {
        let now = Instant::now();
        let next = self.shared.lock().timeout().map_or(now + IDLE, |at| self.shared.clock.instant(at));
        if self.unwritten { next.min(now + JOURNAL_RETRY) } else { next }
    }

    async fn finish(mut self) {
        let _ = timeout(STOP_GRACE, async {
            while !self.deliveries.is_empty() {
                let (delivery, result) = self.deliveries.next().await;
                self.settle(delivery.as_ref(), result);
            }
        })
        .await;
        self.deliveries.tasks.shutdown().await;
        self.shared.lock().advance(self.shared.clock.now());
        self.write().await;
    }
}

/// The wait without a timeout. Any event ends it.
const IDLE: Duration = Duration::from_hours(1);

impl Deliveries {
    fn start(&mut self, delivery: Delivery, telling: impl Future<Output = Result<(), DeliveryError>> + Send + 'static) {
        let id = self.tasks.spawn(telling).id();
        self.of.insert(id, delivery);
    }

    fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The next attempt that has ended. Waits forever if there is none.
    async fn next(&mut self) -> (Option<Delivery>, Result<(), DeliveryError>) {
        match self.tasks.join_next_with_id().await {
            Some(Ok((id, result))) => (self.of.remove(&id), result),
            Some(Err(error)) => (self.of.remove(&error.id()), Err(DeliveryError::Lost(error))),
            None => std::future::pending().await,
        }
    }
}
