//! Reads a whole capture: the endings of its connections, and the states of its servers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use watari_endings::{Connection, Counts, Event, Learner, Profile, Request, States, Tally};
use watari_packets::{Frame, Timestamp};

use crate::analysis::{self, Analysis, FrameCounts};
use crate::spans::{Span, Spans};

/// Reads a capture. Pass it each frame, then take its [`Summary`].
#[derive(Debug)]
pub struct Batch<S> {
    analysis: Analysis,
    states: States,
    spans: Spans,
    minutes: BTreeMap<SocketAddr, BTreeMap<u64, Tally>>,
    learns: bool,
    totals: BTreeMap<SocketAddr, Tally>,
    /// Servers that never answered anything. New servers replace them.
    silent: BTreeSet<SocketAddr>,
    uncounted: u64,
    /// The current second.
    second: u64,
    /// The last second in which servers were judged.
    judged: u64,
    pending: Option<Pending>,
    sink: S,
}

/// The counts of a server in a second that are not added to the others yet. There may be an event for each packet.
#[derive(Debug)]
struct Pending {
    /// The server, and the second.
    place: (SocketAddr, u64),
    /// The time of its first event.
    at: Timestamp,
    events: u64,
    tally: Tally,
}

/// Receives results in their order.
pub trait Sink {
    /// The error of the receiver.
    type Error;

    /// A connection ended.
    fn connection(&mut self, connection: &Connection) -> Result<(), Self::Error>;
    /// A request was answered, or can no longer be answered.
    fn request(&mut self, request: &Request) -> Result<(), Self::Error>;
    /// A span of a server's state ended.
    fn span(&mut self, span: &Span) -> Result<(), Self::Error>;
}

/// Options for reading a capture.
#[derive(Debug, Clone)]
pub struct Options {
    /// How frames are parsed, and which events are reported.
    pub analysis: analysis::Options,
    /// The limits between the states.
    pub profile: Profile,
    /// Whether limits are learned.
    pub learns: bool,
}

/// The totals of a capture.
#[derive(Debug)]
pub struct Summary {
    /// The times of its first and its latest frame; `None` if it has none.
    pub span: Option<(Timestamp, Timestamp)>,
    pub frames: FrameCounts,
    /// Connections and segments that were not followed.
    pub counts: Counts,
    pub servers: BTreeMap<SocketAddr, Tally>,
    /// How often an event was at a server beyond [`SERVERS_MAX`], which is not judged, or a server gave way to another.
    pub uncounted: u64,
    minutes: BTreeMap<SocketAddr, BTreeMap<u64, Tally>>,
}

/// The most servers that are judged.
pub const SERVERS_MAX: usize = 4096;

impl<S: Sink> Batch<S> {
    pub fn new(options: Options, sink: S) -> Self {
        Self {
            analysis: Analysis::new(options.analysis),
            states: States::new(options.profile, SERVERS_MAX),
            spans: Spans::default(),
            minutes: BTreeMap::new(),
            learns: options.learns,
            totals: BTreeMap::new(),
            silent: BTreeSet::new(),
            uncounted: 0,
            second: 0,
            judged: 0,
            pending: None,
            sink,
        }
    }

    /// Takes the next frame.
    pub fn see(&mut self, frame: &Frame<'_>) -> Result<(), S::Error> {
        let second = frame.time.0 / 1_000_000_000;
        if second > self.second {
            // The seconds of silence before this frame are judged without it.
            let before = Timestamp(second * 1_000_000_000 - 1);
            self.analysis.advance(before);
            self.drain()?;
            self.judge(before)?;
            self.second = second;
        }
        self.analysis.see(frame);
        self.drain()?;
        self.judge(frame.time)
    }

    /// The receiver of results.
    pub const fn sink_mut(&mut self) -> &mut S {
        &mut self.sink
    }

    pub fn finish(mut self) -> Result<(Summary, S), S::Error> {
        self.analysis.finish();
        self.drain()?;
        self.flush();
        if let Some((_, last)) = self.analysis.span() {
            for span in self.spans.finish(last, &self.states) {
                self.sink.span(&span)?;
            }
        }
        let summary = Summary {
            span: self.analysis.span(),
            frames: *self.analysis.frames(),
            counts: self.analysis.counts(),
            servers: self.totals,
            uncounted: self.uncounted,
            minutes: self.minutes,
        };
        Ok((summary, self.sink))
    }

    fn drain(&mut self) -> Result<(), S::Error> {
        while let Some(event) = self.analysis.poll() {
            self.count(&event);
            match &event {
                Event::Closed(connection) => self.sink.connection(connection)?,
                Event::Request(request) => self.sink.request(request)?,
                Event::Opened(_) | Event::Overdue(_) | Event::Evicted(_) => {}
            }
        }
        Ok(())
    }

    /// Adds an event to those of the same second of its server.
    fn count(&mut self, event: &Event) {
        let Some(at) = Tally::at(event) else { return };
        let place = (event.server(), at.0 / 1_000_000_000);
        if self.pending.as_ref().is_none_or(|pending| pending.place != place) {
            self.flush();
            self.pending = Some(Pending { place, at, events: 0, tally: Tally::default() });
        }
        if let Some(pending) = &mut self.pending {
            pending.at = pending.at.min(at);
            pending.events += 1;
            pending.tally.count(event);
        }
    }

    fn flush(&mut self) {
        let Some(Pending { place: (server, _), at, events, tally }) = self.pending.take() else { return };
        if !self.totals.contains_key(&server) {
            if self.totals.len() >= SERVERS_MAX {
                self.uncounted += events;
                let Some(silent) = self.silent.pop_first() else { return };
                self.totals.remove(&silent);
                self.minutes.remove(&silent);
                self.spans.forget(&silent);
            }
            self.silent.insert(server);
        }
        if tally.is_alive() {
            self.silent.remove(&server);
        }
        *self.totals.entry(server).or_default() += tally;
        if self.learns {
            *self.minutes.entry(server).or_default().entry(at.0 / MINUTE.as_nanos() as u64).or_default() += tally;
        }
        self.states.add(server, at, &tally);
        self.spans.add(server, at, &tally);
    }

    fn judge(&mut self, now: Timestamp) -> Result<(), S::Error> {
        let second = now.0 / 1_000_000_000;
        if second <= self.judged {
            return Ok(());
        }
        self.judged = second;
        self.flush();
        self.states.advance(now);
        while let Some(change) = self.states.poll() {
            self.silent.remove(&change.server);
            if let Some(span) = self.spans.change(&change, &self.states) {
                self.sink.span(&span)?;
            }
        }
        Ok(())
    }
}

const MINUTE: Duration = Duration::from_mins(1);

impl Summary {
    /// The limits of a server, if it was normal all the time. `None` if it had too few connections.
    pub fn learned(&self, server: &SocketAddr, base: Profile) -> Option<Profile> {
        let mut learner = Learner::default();
        for block in self.minutes.get(server)?.values() {
            learner.add(block, base.ended_min);
        }
        learner.profile(base)
    }
}
