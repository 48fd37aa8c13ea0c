//! Capture threads, each with a ring of its own.

use std::io::{self, Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use tokio::sync::mpsc::{Receiver, Sender, channel};
use tracing::warn;
use watari_capture::{CaptureError, READ_TIMEOUT, Ring};
use watari_endings::Event;

use crate::clock::now;
use crate::listener::{Listener, Lost};
use crate::report::Report;

/// A message of a capture thread.
#[derive(Debug)]
pub enum CaptureMessage {
    /// The counts of the last second.
    Report(Report),
    /// Single events, if requested.
    Events(Vec<Event>),
    /// The thread has ended.
    Failed(CaptureError),
}

/// Capture threads. Dropping this ends them.
#[derive(Debug)]
pub struct Live {
    messages: Receiver<(u8, CaptureMessage)>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// The most messages in the queue. If it is full, threads wait, and the kernel counts the frames that it drops.
const WAITING_MAX: usize = 64;
/// The most events in one message.
const EVENTS_MAX: usize = 1024;

impl Live {
    /// Starts a thread for each ring, of which there may be 256. Each message has the ring's number. `wants_events`:
    /// send single events as well as reports.
    pub fn start(rings: Vec<(Ring, Listener)>, wants_events: bool) -> io::Result<Self> {
        let (sender, messages) = channel(WAITING_MAX);
        let is_over = Arc::new(AtomicBool::new(false));
        let mut live = Self { messages, is_over, threads: Vec::with_capacity(rings.len()) };
        for (part, (ring, listener)) in rings.into_iter().enumerate() {
            let part = u8::try_from(part).map_err(|_| Error::new(ErrorKind::InvalidInput, "more than 256 threads"))?;
            let events = wants_events.then(Vec::new);
            let thread = Thread { part, ring, listener, events, lost: Lost::default(), sender: sender.clone() };
            let is_over = Arc::clone(&live.is_over);
            live.threads
                .push(thread::Builder::new().name(format!("capture-{part}")).spawn(move || thread.run(&is_over))?);
        }
        Ok(live)
    }

    /// Ends the threads. Their last events and their open connections still come from [`Live::next`].
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// The next message, and the number of its thread. `None` once all threads have ended.
    pub async fn next(&mut self) -> Option<(u8, CaptureMessage)> {
        self.messages.recv().await
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.end();
        self.messages.close();
        for thread in self.threads.drain(..) {
            // A failure was sent as a message.
            let _ = thread.join();
        }
    }
}

struct Thread {
    part: u8,
    ring: Ring,
    listener: Listener,
    events: Option<Vec<Event>>,
    lost: Lost,
    sender: Sender<(u8, CaptureMessage)>,
}

impl Thread {
    fn run(mut self, is_over: &AtomicBool) {
        // After the end is requested, the thread still reads the frames that the kernel has by then.
        let mut end = None;
        while end.is_none_or(|end| Instant::now() < end) {
            match self.step() {
                Ok(true) => {}
                // The receiver is gone.
                Ok(false) => return,
                Err(error) => {
                    self.finish();
                    let _ = self.sender.blocking_send((self.part, CaptureMessage::Failed(error)));
                    return;
                }
            }
            if end.is_none() && is_over.load(Ordering::Relaxed) {
                end = Some(Instant::now() + 2 * READ_TIMEOUT);
            }
        }
        self.finish();
    }

    fn finish(&mut self) {
        self.listener.finish();
        self.take_events();
        if self.send_events(true) {
            let report = self.listener.rest(self.lost);
            // The receiver may be gone.
            let _ = self.sender.blocking_send((self.part, CaptureMessage::Report(report)));
        }
    }

    /// Reads one frame, or none for a while. Returns false if the receiver is gone.
    fn step(&mut self) -> Result<bool, CaptureError> {
        let set_back = self.listener.set_back();
        let is_quiet = match self.ring.next()? {
            Some(frame) => {
                self.listener.see(&frame);
                false
            }
            None => true,
        };
        if is_quiet {
            self.listener.quiet(now());
        }
        if set_back != self.listener.set_back() {
            warn!(
                part = self.part,
                "the clock was set back: the sensor reports open connections as OPEN, and begins again"
            );
        }
        self.take_events();
        if !self.send_events(is_quiet) {
            return Ok(false);
        }
        let (ring, lost) = (&mut self.ring, &mut self.lost);
        let report = self.listener.report(|| {
            // If the counts cannot be read, the last ones stay.
            if let Ok(counts) = ring.counts() {
                *lost = Lost { dropped: counts.dropped, by_interface: counts.dropped_by_interface };
            }
            *lost
        });
        Ok(report.is_none_or(|report| self.sender.blocking_send((self.part, CaptureMessage::Report(report))).is_ok()))
    }

    fn take_events(&mut self) {
        while let Some(event) = self.listener.poll() {
            if let Some(events) = &mut self.events {
                events.push(event);
            }
        }
    }

    fn send_events(&mut self, is_quiet: bool) -> bool {
        let Some(events) = &mut self.events else { return true };
        if events.is_empty() || events.len() < EVENTS_MAX && !is_quiet {
            return true;
        }
        let events = std::mem::take(events);
        self.sender.blocking_send((self.part, CaptureMessage::Events(events))).is_ok()
    }
}
