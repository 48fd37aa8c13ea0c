//! Threads that listen to interfaces, each to a ring of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::{Receiver, Sender, channel};
use watari_capture::{CaptureError, Ring};
use watari_endings::Event;
use watari_packets::Timestamp;

use crate::listener::{Listener, Lost};
use crate::report::Report;

/// What a thread has heard.
#[derive(Debug)]
pub enum Heard {
    /// What happened in the last second.
    Report(Report),
    /// Each of what happened, if that is wanted.
    Events(Vec<Event>),
    /// It hears no more.
    Failed(CaptureError),
}

/// Threads that listen until this is dropped.
#[derive(Debug)]
pub struct Live {
    heard: Receiver<(usize, Heard)>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// How much may wait until somebody takes it; then threads wait, and the kernel counts what it drops.
const WAITING_MAX: usize = 64;
/// How many events travel together.
const EVENTS_MAX: usize = 1024;

impl Live {
    /// Starts a thread for each ring; each thing that it hears comes with the ring's number. `wants_events`: not only reports.
    pub fn start(rings: Vec<(Ring, Listener)>, wants_events: bool) -> std::io::Result<Self> {
        let (sender, heard) = channel(WAITING_MAX);
        let is_over = Arc::new(AtomicBool::new(false));
        let mut live = Self { heard, is_over, threads: Vec::with_capacity(rings.len()) };
        for (part, (ring, listener)) in rings.into_iter().enumerate() {
            let events = wants_events.then(Vec::new);
            let thread = Thread { part, ring, listener, events, lost: Lost::default(), sender: sender.clone() };
            let is_over = Arc::clone(&live.is_over);
            live.threads
                .push(thread::Builder::new().name(format!("capture-{part}")).spawn(move || thread.run(&is_over))?);
        }
        Ok(live)
    }

    /// The next of what is heard, and by which thread. `None`: all have failed.
    pub async fn next(&mut self) -> Option<(usize, Heard)> {
        self.heard.recv().await
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.heard.close();
        for thread in self.threads.drain(..) {
            // It has said why if it failed.
            let _ = thread.join();
        }
    }
}

struct Thread {
    part: usize,
    ring: Ring,
    listener: Listener,
    events: Option<Vec<Event>>,
    lost: Lost,
    sender: Sender<(usize, Heard)>,
}

impl Thread {
    fn run(mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            match self.step() {
                Ok(true) => {}
                // Nobody listens any more.
                Ok(false) => return,
                Err(error) => {
                    let _ = self.sender.blocking_send((self.part, Heard::Failed(error)));
                    return;
                }
            }
        }
    }

    /// One frame, or none for a while. Returns whether anybody takes what is heard.
    fn step(&mut self) -> Result<bool, CaptureError> {
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
        while let Some(event) = self.listener.poll() {
            if let Some(events) = &mut self.events {
                events.push(event);
            }
        }
        if !self.send_events(is_quiet) {
            return Ok(false);
        }
        let (ring, lost) = (&mut self.ring, &mut self.lost);
        let report = self.listener.report(|| {
            // Where counts cannot be had, those before are the best there is.
            if let Ok(counts) = ring.counts() {
                *lost = Lost { dropped: counts.dropped, by_interface: counts.dropped_by_interface };
            }
            *lost
        });
        Ok(report.is_none_or(|report| self.sender.blocking_send((self.part, Heard::Report(report))).is_ok()))
    }

    fn send_events(&mut self, is_quiet: bool) -> bool {
        let Some(events) = &mut self.events else { return true };
        if events.is_empty() || events.len() < EVENTS_MAX && !is_quiet {
            return true;
        }
        let events = std::mem::take(events);
        self.sender.blocking_send((self.part, Heard::Events(events))).is_ok()
    }
}

/// By the clock that the kernel dates frames by.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
