//! The state of a run that workers make. The thread of the links and the caller share it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;
use watari_bench_engine::tally::Tally;

use super::results::{LostError, Taken, Worked};

#[derive(Debug)]
pub(super) struct FleetState {
    crew: Mutex<Vec<Member>>,
    pub(super) classes: Arc<[String]>,
    pub(super) cut: CancellationToken,
}

/// A worker of the run.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) after: Duration,
    pub(super) start_error: Duration,
    /// As of its last report.
    pub(super) tally: Tally,
    pub(super) causes: BTreeMap<String, u64>,
    /// How long its part took; `None` until it is over.
    pub(super) elapsed: Option<Duration>,
    pub(super) lost: Option<String>,
    /// Sends requests for results. Closed when the worker is done or lost.
    pub(super) asks: UnboundedSender<Ask>,
}

/// Where to send the results since the last request for them.
pub(super) type Ask = mpsc::Sender<Taken>;

impl FleetState {
    pub(super) fn new(classes: Arc<[String]>) -> Self {
        Self { crew: Mutex::default(), classes, cut: CancellationToken::new() }
    }

    pub(super) fn crew(&self) -> MutexGuard<'_, Vec<Member>> {
        self.crew.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    /// Asks the worker for its results. The channel closes without an answer if the worker cannot give one.
    pub(super) fn ask(&self) -> mpsc::Receiver<Taken> {
        let (ask, answer) = mpsc::channel();
        let _ = self.asks.send(ask);
        answer
    }

    pub(super) fn lost(&self) -> LostError {
        let why = self.lost.clone().unwrap_or_else(|| "it sends no results".to_owned());
        LostError { who: self.name.clone(), why }
    }

    pub(super) fn worked(&self) -> Worked {
        let lost = || self.elapsed.is_none().then(|| "it did not send its final results".to_owned());
        Worked {
            name: self.name.clone(),
            requests: self.tally.total().requests,
            after: self.after,
            start_error: self.start_error,
            lost: self.lost.clone().or_else(lost),
        }
    }
}
