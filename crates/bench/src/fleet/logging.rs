//! The log of connections, where others make the load.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use tokio::sync::mpsc::UnboundedSender;

use crate::ConnectionLog;
use crate::sample::ConnectionSample;

/// Has a log take what workers tell, by a thread of its own: a log may block, and links may not. When it is dropped, the log has taken
/// everything.
#[derive(Debug)]
pub(super) struct Logging {
    /// `None` once dropped.
    batches: Option<mpsc::Sender<Batch>>,
    thread: Option<JoinHandle<()>>,
}

/// Connections that a worker told of. When it is dropped, the log has taken them, and the worker may tell of more.
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

    /// Takes the samples, and says by `taken` when the log has. How many wait is for links to limit.
    pub(super) fn take(&self, samples: Vec<ConnectionSample>, taken: UnboundedSender<()>) {
        if let Some(batches) = &self.batches {
            // A panic of the log was reported by its thread; the load goes on.
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
        // Nobody listens when the worker is lost.
        let _ = self.taken.send(());
    }
}
