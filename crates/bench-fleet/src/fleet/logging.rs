//! The log of connections, when workers generate the load.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use tokio::sync::mpsc::UnboundedSender;
use watari_bench_engine::connection_log::ConnectionLog;
use watari_bench_engine::sample::ConnectionSample;

/// Passes connection samples of workers to a log, in a separate thread, because a log may block and links may not.
/// Dropping it waits until the log has taken all samples.
#[derive(Debug)]
pub(super) struct Logging {
    /// `None` once dropped.
    batches: Option<mpsc::Sender<Batch>>,
    thread: Option<JoinHandle<()>>,
}

/// Connection samples of a worker. Dropping it reports that the log has taken them, so that the worker may send more.
struct Batch {
    samples: Vec<ConnectionSample>,
    taken: UnboundedSender<()>,
}

impl Logging {
    pub(super) fn new(log: Arc<dyn ConnectionLog>) -> io::Result<Self> {
        let (batches, received) = mpsc::channel::<Batch>();
        let thread = thread::Builder::new().name("fleet-log".to_owned()).spawn(move || {
            for batch in received {
                batch.samples.iter().for_each(|sample| log.ended(sample));
            }
        })?;
        Ok(Self { batches: Some(batches), thread: Some(thread) })
    }

    /// Queues the samples, and signals `taken` when the log has taken them. The links limit the queue.
    pub(super) fn take(&self, samples: Vec<ConnectionSample>, taken: UnboundedSender<()>) {
        if let Some(batches) = &self.batches {
            // This fails if the log's thread has panicked, which the thread has reported. The load goes on.
            let _ = batches.send(Batch { samples, taken });
        }
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        self.batches = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // This fails if the worker is lost.
        let _ = self.taken.send(());
    }
}
