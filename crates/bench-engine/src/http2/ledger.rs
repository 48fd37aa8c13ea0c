//! The counts and times of a connection and of its requests in progress.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use super::fault;
use super::frames::{Frame, Frames};
use crate::ending::{Ending, EndingKind, Phase, Side};
use crate::sample::ConnectionSample;
use crate::stream;

/// Shared by the parts of a connection. The wire enters bytes and times, and clients enter requests.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) sample: ConnectionSample,
    /// Requests in progress, by stream number.
    streams: BTreeMap<u32, Times>,
    begun: u64,
    incoming: Frames,
    outgoing: Frames,
    /// Streams whose requests are written, but perhaps still in a buffer.
    unflushed: Vec<u32>,
    read_at: Duration,
    /// The kind of the first I/O error.
    cut: Option<EndingKind>,
    /// Whether the server's first bytes are those of a status line of HTTP/1.
    is_http1: bool,
}

/// The times of one request. All are counted from the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// When the client had written the whole request.
    pub(super) written: Option<Duration>,
    /// When the first frame of the response had arrived.
    pub(super) first_byte: Option<Duration>,
    /// When the last frame of the response had arrived.
    pub(super) last_byte: Option<Duration>,
    /// Whether the server has reset the stream, or has excluded it by GOAWAY.
    given_up: bool,
}

impl Ledger {
    /// For a connection without any bytes yet.
    pub(super) fn new(sample: ConnectionSample) -> Self {
        Self {
            read_at: sample.opened,
            sample,
            streams: BTreeMap::new(),
            begun: 0,
            incoming: Frames::behind(0),
            outgoing: Frames::behind(PREFACE_BYTES),
            unflushed: Vec::new(),
            cut: None,
            is_http1: false,
        }
    }

    /// Why HTTP/2 failed, if the server's bytes show that it does not speak it.
    pub(super) fn no_http2(&self, ending: Ending) -> Option<&'static str> {
        match (self.is_http1, self.sample.bytes_read) {
            (true, _) => Some(ANSWERED_IN_HTTP1),
            (false, 0) if !ending.is_normal() && ending.kind != EndingKind::Timeout => Some(ANSWERED_NOTHING),
            _ => None,
        }
    }

    /// Adds a request; returns the number of requests so far.
    pub(super) fn begin(&mut self, stream: u32) -> u64 {
        self.streams.insert(stream, Times::default());
        self.begun += 1;
        self.begun
    }

    /// The times of the request on this stream.
    pub(super) fn times(&self, stream: u32) -> Times {
        self.streams.get(&stream).copied().unwrap_or_default()
    }

    /// Removes the request of this stream. `answered`: its response is complete.
    pub(super) fn end(&mut self, stream: u32, answered: bool) -> Times {
        self.sample.requests += u64::from(answered);
        self.streams.remove(&stream).unwrap_or_default()
    }

    /// Enters bytes that were read.
    pub(super) fn read(&mut self, data: &[u8], now: Duration) {
        let (sample, streams) = (&mut self.sample, &mut self.streams);
        if data.is_empty() {
            return;
        }
        self.is_http1 |= sample.bytes_read == 0 && data.starts_with(b"HTTP/");
        sample.bytes_read += data.len() as u64;
        self.read_at = now;
        self.incoming.follow(data, |frame| {
            if let Some(last) = frame.last_stream {
                streams.range_mut(last.saturating_add(1)..).for_each(|(_, times)| times.given_up = true);
            }
            if let Some(times) = streams.get_mut(&frame.stream) {
                times.came(frame, now);
                sample.first_byte = sample.first_byte.or(times.first_byte);
                sample.last_byte = times.last_byte.or(sample.last_byte);
            }
        });
    }

    /// Enters bytes that were written, but may still be in a buffer.
    pub(super) fn wrote(&mut self, data: &[u8]) {
        self.sample.bytes_written += data.len() as u64;
        self.outgoing.follow(data, |frame| self.unflushed.extend(frame.ends_stream().then_some(frame.stream)));
    }

    /// Enters that all written bytes have left this program.
    pub(super) fn flushed(&mut self, now: Duration) {
        for stream in self.unflushed.drain(..) {
            self.sample.written.get_or_insert(now);
            if let Some(times) = self.streams.get_mut(&stream) {
                times.written = Some(now);
            }
        }
    }

    /// Enters an I/O error.
    pub(super) fn broke(&mut self, error: &io::Error) {
        self.cut.get_or_insert(stream::cut(error, Phase::Close).kind);
    }

    /// Whether nothing was read since `then`.
    pub(super) fn is_silent_since(&self, then: Duration) -> bool {
        self.read_at < then
    }

    /// The ending of a request that failed with `error`.
    pub(super) fn ending_of_request(&self, error: &h2::Error, times: Times) -> Ending {
        let kind = if error.is_io() { self.cut.unwrap_or(EndingKind::Reset) } else { fault::kind(error) };
        Ending::new(kind, times.phase(), Side::Server)
    }

    /// The ending of a connection that the server closed, or that failed.
    pub(super) fn ending(&self, result: &Result<(), h2::Error>) -> Ending {
        let mut lost = self.streams.values().filter(|times| !times.is_over()).map(|times| times.phase()).peekable();
        let in_use = lost.peek().is_some();
        let kind = match result {
            Err(error) if !error.is_io() => fault::kind(error),
            _ => self.cut.filter(|&kind| in_use || kind != EndingKind::Reset).unwrap_or(if in_use {
                EndingKind::Reset
            } else {
                EndingKind::Normal
            }),
        };
        Ending::new(kind, lost.max().unwrap_or(Phase::Close), Side::Server)
    }
}

impl Times {
    /// The phase that the request has reached.
    pub(super) fn phase(self) -> Phase {
        match (self.written, self.first_byte) {
            (_, Some(_)) => Phase::Response,
            (Some(_), None) => Phase::Wait,
            (None, None) => Phase::Request,
        }
    }

    fn came(&mut self, frame: Frame, now: Duration) {
        if frame.is_of_message() {
            self.first_byte.get_or_insert(now);
        }
        if frame.ends_stream() {
            self.last_byte = Some(now);
        }
        self.given_up |= frame.is_reset();
    }

    /// Whether no more frames will arrive.
    fn is_over(self) -> bool {
        self.given_up || self.last_byte.is_some()
    }
}

/// Length of the connection preface that a client sends before its first frame (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();

/// RFC 9113, section 3.3.
const ANSWERED_IN_HTTP1: &str =
    "HTTP/2: the server answered in HTTP/1: it does not speak HTTP/2 on this port; leave out --http2";
const ANSWERED_NOTHING: &str =
    "HTTP/2: the server ended the connection before it sent anything: perhaps it does not speak HTTP/2 on this port";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Family;

    const MS: Duration = Duration::from_millis(1);

    fn ledger() -> Ledger {
        let remote = ([127, 0, 0, 1], 443).into();
        Ledger::new(ConnectionSample {
            class: 0,
            family: Family::of(remote),
            local: None,
            remote,
            tls: None,
            opened: Duration::ZERO,
            connected: None,
            secured: None,
            written: None,
            first_byte: None,
            last_byte: None,
            closed: Duration::ZERO,
            requests: 0,
            bytes_read: 0,
            bytes_written: 0,
            ending: Ending::new(EndingKind::Normal, Phase::Close, Side::Client),
        })
    }

    /// A frame without payload.
    fn frame(kind: u8, flags: u8, stream: u8) -> [u8; 9] {
        [0, 0, 0, kind, flags, 0, 0, 0, stream]
    }

    const HEADERS: u8 = 1;
    const END_HEADERS: u8 = 4;
    const ENDS: u8 = 5;

    #[test]
    fn times_are_those_of_the_bytes() {
        let mut ledger = ledger();
        assert_eq!((ledger.begin(1), ledger.begin(3)), (1, 2));
        ledger.wrote(&[0; PREFACE_BYTES]);
        ledger.wrote(&frame(HEADERS, ENDS, 1));
        assert_eq!(ledger.times(1).phase(), Phase::Request);
        ledger.flushed(MS);
        assert_eq!((ledger.times(1).written, ledger.times(3).written), (Some(MS), None));
        ledger.read(&frame(HEADERS, END_HEADERS, 1), 2 * MS);
        ledger.read(&frame(0, 1, 1), 3 * MS);
        let times = ledger.end(1, true);
        assert_eq!((times.first_byte, times.last_byte), (Some(2 * MS), Some(3 * MS)));
        let sample = &ledger.sample;
        assert_eq!((sample.written, sample.first_byte, sample.last_byte), (Some(MS), Some(2 * MS), Some(3 * MS)));
        assert_eq!((sample.requests, sample.bytes_written, sample.bytes_read), (1, PREFACE_BYTES as u64 + 9, 18));
        assert!(!ledger.is_silent_since(3 * MS) && ledger.is_silent_since(4 * MS));
    }

    #[test]
    fn an_end_is_normal_when_nothing_is_lost() {
        let normal = Ending::new(EndingKind::Normal, Phase::Close, Side::Server);
        let mut ledger = ledger();
        assert_eq!(ledger.ending(&Ok(())), normal);
        ledger.begin(1);
        ledger.begin(3);
        assert_eq!(ledger.ending(&Ok(())), Ending::new(EndingKind::Reset, Phase::Request, Side::Server));
        // A reset without requests in progress affects none.
        ledger.read(&frame(HEADERS, ENDS, 1), MS);
        ledger.read(&frame(3, 0, 3), MS);
        ledger.broke(&io::ErrorKind::ConnectionReset.into());
        assert_eq!(ledger.ending(&Ok(())), normal);
    }

    #[test]
    fn what_goaway_leaves_out_is_not_lost() {
        let mut ledger = ledger();
        ledger.begin(1);
        ledger.begin(3);
        // The last stream is 1.
        ledger.read(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], MS);
        assert_eq!(ledger.ending(&Ok(())).kind, EndingKind::Reset);
        ledger.read(&frame(HEADERS, ENDS, 1), MS);
        assert_eq!(ledger.ending(&Ok(())).kind, EndingKind::Normal);
    }
}
