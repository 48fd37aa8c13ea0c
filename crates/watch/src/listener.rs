//! One capture thread: it takes frames, and returns a report each second.
//!
//! ```text
//!   Frame, or a pause ──▶ Analysis ──▶ Event ──▶ a consumer of single events (rows)
//!                                        │
//!                                        ▼
//!                                     Tallies ──▶ Report, once a second
//! ```
//!
//! Time is that of frames, and does not go back. If the clock of frames is set back, the listener would have to ignore
//! frames until the clock has caught up. It restarts instead: it reports open connections as at the end of a capture,
//! with a last report of the old time. Later reports have the new time. Connections that are still open are reported
//! again, like those that were open when the listener began.

use std::time::Duration;

use watari_endings::{Counts, Event};
use watari_packets::{Frame, Timestamp};

use crate::analysis::{Analysis, FrameCounts, Options};
use crate::report::{Health, Report, Tallies};

/// Call [`Listener::poll`] until it returns `None`, and then [`Listener::report`], after each frame and after each
/// [`Listener::quiet`].
#[derive(Debug)]
pub struct Listener {
    options: Options,
    analysis: Analysis,
    tallies: Tallies,
    now: Timestamp,
    told_s: u64,
    /// Whether the last time was far before the present one.
    is_behind: bool,
    /// The analysis from before the clock was set back, until all its events are taken.
    before: Option<Before>,
    /// Counts of earlier analyses.
    frames: FrameCounts,
    counts: Counts,
    set_back: u64,
}

/// An analysis that ended when the clock was set back.
#[derive(Debug)]
struct Before {
    analysis: Analysis,
    /// Its last time.
    now: Timestamp,
}

/// Frames lost since the capture began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// Frames for which the ring had no room.
    pub dropped: u64,
    /// Frames that the network interface dropped.
    pub by_interface: u64,
}

/// The longest delay of frames in the kernel. On a quiet link, time is this much behind the kernel's clock.
pub(crate) const DELAY_MAX: Duration = Duration::from_millis(500);
/// A frame dated further back than this is not late: the clock was set back. Frames of one ring are late by at most
/// [`DELAY_MAX`]. Corrections of a clock by less than a second only slow it down (adjtime(3)). Up to this limit,
/// waiting costs less than a restart.
pub(crate) const SET_BACK_MIN: Duration = Duration::from_secs(10);

impl Listener {
    pub fn new(options: Options) -> Self {
        Self {
            analysis: Analysis::new(options.clone()),
            options,
            tallies: Tallies::default(),
            now: Timestamp(0),
            told_s: 0,
            is_behind: false,
            before: None,
            frames: FrameCounts::default(),
            counts: Counts::default(),
            set_back: 0,
        }
    }

    /// Takes a captured frame.
    pub fn see(&mut self, frame: &Frame<'_>) {
        if self.is_set_back(frame.time) {
            self.begin_anew(frame.time);
        }
        self.now = self.now.max(frame.time);
        self.analysis.see(frame);
    }

    /// No frame came until `now`, by the clock of frames.
    pub fn quiet(&mut self, now: Timestamp) {
        let now = Timestamp(now.0.saturating_sub(DELAY_MAX.as_nanos() as u64));
        if self.is_set_back(now) {
            self.begin_anew(now);
        } else if now > self.now {
            self.now = now;
            self.analysis.advance(now);
        }
    }

    /// How often the clock was set back, and the listener restarted.
    pub const fn set_back(&self) -> u64 {
        self.set_back
    }

    /// Whether `time` shows that the clock was set back. A single frame is a stray.
    fn is_set_back(&mut self, time: Timestamp) -> bool {
        let is_behind = time.0.saturating_add(SET_BACK_MIN.as_nanos() as u64) < self.now.0;
        std::mem::replace(&mut self.is_behind, is_behind) && is_behind
    }

    fn begin_anew(&mut self, now: Timestamp) {
        let mut analysis = std::mem::replace(&mut self.analysis, Analysis::new(self.options.clone()));
        analysis.finish();
        self.frames += *analysis.frames();
        self.counts += analysis.counts();
        self.before = Some(Before { analysis, now: self.now });
        (self.now, self.is_behind) = (now, false);
        self.set_back += 1;
    }

    /// The next event, after it was counted for the report.
    pub fn poll(&mut self) -> Option<Event> {
        let before = self.before.as_mut().and_then(|before| before.analysis.poll());
        let event = before.or_else(|| self.analysis.poll())?;
        self.tallies.add(&event);
        Some(event)
    }

    /// The report of the time since the last one, once a second is over. It calls `lost` only then.
    pub fn report(&mut self, lost: impl FnOnce() -> Lost) -> Option<Report> {
        let second = self.now.0 / 1_000_000_000;
        if let Some(before) = self.before.take() {
            self.told_s = second;
            return Some(Report { at: before.now, ..self.rest(lost()) });
        }
        if second <= self.told_s {
            return None;
        }
        self.told_s = second;
        Some(self.rest(lost()))
    }

    /// Ends the input: reports open connections. Then take [`Listener::rest`].
    pub fn finish(&mut self) {
        self.analysis.finish();
    }

    /// The report of the time since the last one, without waiting for the end of a second.
    pub fn rest(&mut self, lost: Lost) -> Report {
        let (mut frames, mut counts) = (self.frames, self.counts);
        frames += *self.analysis.frames();
        counts += self.analysis.counts();
        let health = Health {
            frames,
            counts,
            dropped: lost.dropped,
            dropped_by_interface: lost.by_interface,
            uncounted: self.tallies.uncounted(),
        };
        Report { at: self.now, tallies: self.tallies.take(), health }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::net::SocketAddr;

    use watari_packets::build::ethernet;
    use watari_packets::{Flags, LinkType, Segment};

    use super::*;

    fn ends() -> (SocketAddr, SocketAddr) {
        (SocketAddr::from(([10, 0, 0, 1], 4000)), SocketAddr::from(([10, 0, 0, 2], 80)))
    }

    /// Passes a segment of the client or the server to the listener, at this time in milliseconds.
    fn capture(listener: &mut Listener, at_ms: u64, is_client: bool, flags: Flags) {
        let (client, server) = ends();
        let (source, destination) = if is_client { (client, server) } else { (server, client) };
        let segment = Segment {
            time: Timestamp(at_ms * 1_000_000),
            source,
            destination,
            sequence: if flags.contains(Flags::SYN) { 7 } else { 8 },
            acknowledgment: if flags.contains(Flags::ACK) { 8 } else { 0 },
            flags,
            window: 9,
            len: 0,
            data: &[],
        };
        let octets = ethernet(&segment);
        let len = octets.len() as u32;
        listener.see(&Frame { time: segment.time, link: LinkType::ETHERNET, len, data: &octets });
    }

    fn poll_all(listener: &mut Listener) -> Vec<Event> {
        std::iter::from_fn(|| listener.poll()).collect()
    }

    const HOUR_MS: u64 = 3_600_000;
    /// The time at which the clock is set back.
    const STEP_MS: u64 = 2 * HOUR_MS + 500;

    /// A listener with an open connection.
    fn listening() -> Listener {
        let mut listener = Listener::new(Options::default());
        capture(&mut listener, STEP_MS - 100, true, Flags::SYN);
        capture(&mut listener, STEP_MS - 90, false, Flags::SYN.with(Flags::ACK));
        capture(&mut listener, STEP_MS - 80, true, Flags::ACK);
        assert!(matches!(poll_all(&mut listener)[..], [Event::Opened(_)]));
        assert!(listener.report(Lost::default).is_some());
        listener
    }

    #[test]
    fn reports_go_on_after_a_clock_is_set_back() {
        let step = |listener: &mut Listener, is_quiet: bool, at_ms: u64| {
            if is_quiet {
                listener.quiet(Timestamp(at_ms * 1_000_000));
            } else {
                capture(listener, at_ms, true, Flags::ACK);
            }
        };
        for is_quiet in [true, false] {
            let mut listener = listening();
            step(&mut listener, is_quiet, STEP_MS - HOUR_MS);
            step(&mut listener, is_quiet, STEP_MS - HOUR_MS + 100);
            assert_eq!(listener.set_back(), 1);
            // Open connections are reported as at the end of a capture, in a report of the old time.
            let events = poll_all(&mut listener);
            assert!(matches!(&events[..], [Event::Closed(it)] if it.ending.as_str() == "OPEN"), "{events:?}");
            let report = listener.report(Lost::default).unwrap();
            assert_eq!((report.at, report.tallies.len()), (Timestamp((STEP_MS - 80) * 1_000_000), 1));
            assert_eq!(listener.report(Lost::default), None);
            let frames = report.health.frames.segments;
            // Then time continues from there.
            for second in 1..6 {
                capture(&mut listener, STEP_MS - HOUR_MS + 100 + second * 1_000, true, Flags::SYN);
                let report = listener.report(Lost::default).unwrap();
                assert_eq!(report.at, Timestamp((STEP_MS - HOUR_MS + 100 + second * 1_000) * 1_000_000));
                assert_eq!(report.health.frames.segments, frames + second);
            }
            assert!(matches!(poll_all(&mut listener)[..], [Event::Opened(_), Event::Overdue(_)]));
            assert_eq!(listener.set_back(), 1);
        }
    }

    #[test]
    fn what_is_late_sets_no_clock_back() {
        let mut listener = listening();
        for _ in 0..9 {
            // Within the delay of frames, and within corrections of clocks.
            capture(&mut listener, STEP_MS - 500, true, Flags::ACK);
            listener.quiet(Timestamp((STEP_MS - 9_000) * 1_000_000));
            // A frame with an impossible time.
            capture(&mut listener, 0, true, Flags::ACK);
            listener.quiet(Timestamp((STEP_MS + 500) * 1_000_000));
        }
        assert_eq!((listener.set_back(), poll_all(&mut listener)), (0, Vec::new()));
    }

    #[test]
    fn a_report_comes_once_a_second_whether_frames_do_or_not() {
        let mut listener = Listener::new(Options::default());
        capture(&mut listener, 1_000, true, Flags::SYN);
        assert!(matches!(listener.poll(), Some(Event::Opened(opened)) if opened.server == ends().1));
        assert_eq!(listener.poll(), None);
        let report = listener.report(|| Lost { dropped: 3, by_interface: 1 }).unwrap();
        assert_eq!((report.tallies.len(), report.health.dropped, report.health.frames.segments), (1, 3, 1));
        assert_eq!(listener.report(Lost::default), None);
        // The clock is ahead of the last frame.
        listener.quiet(Timestamp(2_200_000_000));
        assert_eq!(listener.report(Lost::default), None);
        listener.quiet(Timestamp(80_000_000_000));
        // The SYN was overdue after 3 s, and given up after 75 s.
        assert!(matches!(listener.poll(), Some(Event::Overdue(_))));
        assert!(matches!(listener.poll(), Some(Event::Closed(_))));
        assert_eq!(listener.report(Lost::default).unwrap().tallies.len(), 2);
    }
}
