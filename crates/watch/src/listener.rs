//! One thread that listens: frames come in as they are captured, a report goes out each second.
//!
//! ```text
//!   Frame, or that none came ──▶ Analysis ──▶ Event ──▶ whoever wants each of them (rows)
//!                                               │
//!                                               ▼
//!                                            Tallies ──▶ Report, once a second
//! ```
//!
//! Time is that of frames, and goes on. Where the clock that dates them is set back, waiting until it has caught up would make
//! the listener blind for as long: it begins anew instead. Connections that are open are told as at the end of a capture, and a
//! last report as of the time before; the next ones are of the new time. What is open still is told again when more is
//! heard of it, as what was open when the listener began.

use std::time::Duration;

use watari_endings::{Counts, Event};
use watari_packets::{Frame, Timestamp};

use crate::analysis::{Analysis, FrameCounts, Options};
use crate::report::{Health, Report, Tallies};

/// Listens. After each frame, and after each [`Listener::quiet`], take what there is from [`Listener::poll`] until it says
/// nothing, and then from [`Listener::report`].
#[derive(Debug)]
pub struct Listener {
    options: Options,
    analysis: Analysis,
    tallies: Tallies,
    now: Timestamp,
    told_s: u64,
    /// Whether what was heard last is of a time that was over by far.
    is_behind: bool,
    /// What is over since the clock was set back, until all is told of it.
    before: Option<Before>,
    /// What was counted before that.
    frames: FrameCounts,
    counts: Counts,
    set_back: u64,
}

/// What ended by the clock.
#[derive(Debug)]
struct Before {
    analysis: Analysis,
    /// How far it had come.
    now: Timestamp,
}

/// What was lost before anybody read it, since the capture began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// Because nobody read it in time.
    pub dropped: u64,
    /// By the network interface.
    pub by_interface: u64,
}

/// How long frames may be on their way from the kernel. So far behind its clock time is on a quiet link.
pub(crate) const DELAY_MAX: Duration = Duration::from_millis(500);
/// What is dated further back than this was not late: the clock was set back. Frames of one ring are late by [`DELAY_MAX`], and
/// who corrects a clock by less than a second does so by letting it go slower (adjtime(3)); but by up to this much it costs less to
/// wait than to begin anew.
pub(crate) const SET_BACK_MIN: Duration = Duration::from_secs(10);

impl Listener {
    /// Has heard nothing yet.
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

    /// A frame was captured.
    pub fn see(&mut self, frame: &Frame<'_>) {
        if self.is_set_back(frame.time) {
            self.begin_anew(frame.time);
        }
        self.now = self.now.max(frame.time);
        self.analysis.see(frame);
    }

    /// No frame came until `now`, by the clock that frames are dated by.
    pub fn quiet(&mut self, now: Timestamp) {
        let now = Timestamp(now.0.saturating_sub(DELAY_MAX.as_nanos() as u64));
        if self.is_set_back(now) {
            self.begin_anew(now);
        } else if now > self.now {
            self.now = now;
            self.analysis.advance(now);
        }
    }

    /// How often the clock was set back by so much that this began anew.
    pub const fn set_back(&self) -> u64 {
        self.set_back
    }

    /// Whether what is of `time` shows that the clock was set back. One frame alone is a stray.
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

    /// The next of what happened. It is counted for the report by then.
    pub fn poll(&mut self) -> Option<Event> {
        let before = self.before.as_mut().and_then(|before| before.analysis.poll());
        let event = before.or_else(|| self.analysis.poll())?;
        self.tallies.add(&event);
        Some(event)
    }

    /// What has happened since the last report, if a second is over. `lost` is asked for only then.
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

    /// There are no more frames: connections that are open are told as such, and then [`Listener::rest`].
    pub fn finish(&mut self) {
        self.analysis.finish();
    }

    /// What has happened since the last report, whenever that was.
    pub fn rest(&mut self, lost: Lost) -> Report {
        let (mut frames, mut counts) = (self.frames, self.counts);
        frames += *self.analysis.frames();
        counts += self.analysis.counts();
        let health = Health {
            frames,
            counts,
            dropped: lost.dropped,
            dropped_by_interface: lost.by_interface,
            untold: self.tallies.untold(),
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

    /// A segment of a client's or its server's, at so many milliseconds.
    fn hear(listener: &mut Listener, at_ms: u64, is_client: bool, flags: Flags) {
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

    fn told(listener: &mut Listener) -> Vec<Event> {
        std::iter::from_fn(|| listener.poll()).collect()
    }

    const HOUR_MS: u64 = 3_600_000;
    /// When the clock is set back.
    const STEP_MS: u64 = 2 * HOUR_MS + 500;

    /// With a connection that is open.
    fn listening() -> Listener {
        let mut listener = Listener::new(Options::default());
        hear(&mut listener, STEP_MS - 100, true, Flags::SYN);
        hear(&mut listener, STEP_MS - 90, false, Flags::SYN.with(Flags::ACK));
        hear(&mut listener, STEP_MS - 80, true, Flags::ACK);
        assert!(matches!(told(&mut listener)[..], [Event::Opened(_)]));
        assert!(listener.report(Lost::default).is_some());
        listener
    }

    #[test]
    fn a_clock_that_is_set_back_makes_nobody_blind() {
        let step = |listener: &mut Listener, is_quiet: bool, at_ms: u64| {
            if is_quiet {
                listener.quiet(Timestamp(at_ms * 1_000_000));
            } else {
                hear(listener, at_ms, true, Flags::ACK);
            }
        };
        for is_quiet in [true, false] {
            let mut listener = listening();
            step(&mut listener, is_quiet, STEP_MS - HOUR_MS);
            step(&mut listener, is_quiet, STEP_MS - HOUR_MS + 100);
            assert_eq!(listener.set_back(), 1);
            // What was open is told as at the end of a capture, in a report of the time before.
            let events = told(&mut listener);
            assert!(matches!(&events[..], [Event::Closed(it)] if it.ending.as_str() == "OPEN"), "{events:?}");
            let report = listener.report(Lost::default).unwrap();
            assert_eq!((report.at, report.tallies.len()), (Timestamp((STEP_MS - 80) * 1_000_000), 1));
            assert_eq!(listener.report(Lost::default), None);
            let frames = report.health.frames.segments;
            // Then time goes on from there.
            for second in 1..6 {
                hear(&mut listener, STEP_MS - HOUR_MS + 100 + second * 1_000, true, Flags::SYN);
                let report = listener.report(Lost::default).unwrap();
                assert_eq!(report.at, Timestamp((STEP_MS - HOUR_MS + 100 + second * 1_000) * 1_000_000));
                assert_eq!(report.health.frames.segments, frames + second);
            }
            assert!(matches!(told(&mut listener)[..], [Event::Opened(_), Event::Overdue(_)]));
            assert_eq!(listener.set_back(), 1);
        }
    }

    #[test]
    fn what_is_late_sets_no_clock_back() {
        let mut listener = listening();
        for _ in 0..9 {
            // As late as frames may be, and as clocks are corrected.
            hear(&mut listener, STEP_MS - 500, true, Flags::ACK);
            listener.quiet(Timestamp((STEP_MS - 9_000) * 1_000_000));
            // One is of no time at all.
            hear(&mut listener, 0, true, Flags::ACK);
            listener.quiet(Timestamp((STEP_MS + 500) * 1_000_000));
        }
        assert_eq!((listener.set_back(), told(&mut listener)), (0, Vec::new()));
    }

    #[test]
    fn a_report_comes_once_a_second_whether_frames_do_or_not() {
        let mut listener = Listener::new(Options::default());
        hear(&mut listener, 1_000, true, Flags::SYN);
        assert!(matches!(listener.poll(), Some(Event::Opened(opened)) if opened.server == ends().1));
        assert_eq!(listener.poll(), None);
        let report = listener.report(|| Lost { dropped: 3, by_interface: 1 }).unwrap();
        assert_eq!((report.tallies.len(), report.health.dropped, report.health.frames.segments), (1, 3, 1));
        assert_eq!(listener.report(Lost::default), None);
        // The clock is ahead of what is known of frames.
        listener.quiet(Timestamp(2_200_000_000));
        assert_eq!(listener.report(Lost::default), None);
        listener.quiet(Timestamp(80_000_000_000));
        // The knock was overdue after three seconds, and given up after 75.
        assert!(matches!(listener.poll(), Some(Event::Overdue(_))));
        assert!(matches!(listener.poll(), Some(Event::Closed(_))));
        assert_eq!(listener.report(Lost::default).unwrap().tallies.len(), 2);
    }
}
