//! One thread that listens: frames come in as they are captured, a report goes out each second.
//!
//! ```text
//!   Frame, or that none came ──▶ Analysis ──▶ Event ──▶ whoever wants each of them (rows)
//!                                               │
//!                                               ▼
//!                                            Tallies ──▶ Report, once a second
//! ```

use std::time::Duration;

use watari_endings::Event;
use watari_packets::{Frame, Timestamp};

use crate::analysis::{Analysis, Options};
use crate::report::{Health, Report, Tallies};

/// Listens. After each frame, and after each [`Listener::quiet`], take what there is from [`Listener::poll`] until it says
/// nothing, and then from [`Listener::report`].
#[derive(Debug)]
pub struct Listener {
    analysis: Analysis,
    tallies: Tallies,
    now: Timestamp,
    told_s: u64,
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
const DELAY_MAX: Duration = Duration::from_millis(500);

impl Listener {
    /// Has heard nothing yet.
    pub fn new(options: Options) -> Self {
        let (analysis, tallies) = (Analysis::new(options), Tallies::default());
        Self { analysis, tallies, now: Timestamp(0), told_s: 0 }
    }

    /// A frame was captured.
    pub fn see(&mut self, frame: &Frame<'_>) {
        self.now = self.now.max(frame.time);
        self.analysis.see(frame);
    }

    /// No frame came until `now`, by the clock that frames are dated by.
    pub fn quiet(&mut self, now: Timestamp) {
        let now = Timestamp(now.0.saturating_sub(DELAY_MAX.as_nanos() as u64));
        if now > self.now {
            self.now = now;
            self.analysis.advance(now);
        }
    }

    /// The next of what happened. It is counted for the report by then.
    pub fn poll(&mut self) -> Option<Event> {
        let event = self.analysis.poll()?;
        self.tallies.add(&event);
        Some(event)
    }

    /// What has happened since the last report, if a second is over. `lost` is asked for only then.
    pub fn report(&mut self, lost: impl FnOnce() -> Lost) -> Option<Report> {
        let second = self.now.0 / 1_000_000_000;
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
        let health = Health {
            frames: *self.analysis.frames(),
            counts: self.analysis.counts(),
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

    #[test]
    fn a_report_comes_once_a_second_whether_frames_do_or_not() {
        let mut listener = Listener::new(Options::default());
        let (client, server) = (SocketAddr::from(([10, 0, 0, 1], 4000)), SocketAddr::from(([10, 0, 0, 2], 80)));
        let syn = Segment {
            time: Timestamp(1_000_000_000),
            source: client,
            destination: server,
            sequence: 7,
            acknowledgment: 0,
            flags: Flags::SYN,
            window: 9,
            len: 0,
            data: &[],
        };
        let octets = ethernet(&syn);
        let len = octets.len() as u32;
        let frame = Frame { time: syn.time, link: LinkType::ETHERNET, len, data: &octets };
        listener.see(&frame);
        assert!(matches!(listener.poll(), Some(Event::Opened(opened)) if opened.server == server));
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
