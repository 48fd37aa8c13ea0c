//! Converts frames into events.

use std::ops::AddAssign;
use std::sync::Arc;

use watari_endings::{Connections, Counts, Event, Servers, Settings};
use watari_packets::{Decoded, Decoder, Frame, Other, Reassembly, Timestamp};

use crate::pseudonyms::Pseudonyms;

/// How frames are parsed, and which events are reported.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The parser of frames.
    pub decoder: Decoder,
    /// Timeouts and limits of connections. If it names servers, only their events are reported.
    pub settings: Settings,
    /// Replaces addresses in events; `None` replaces none.
    pub pseudonyms: Option<Arc<Pseudonyms>>,
}

/// Parses frames and follows connections. Pass it each frame, then call [`Analysis::poll`] until it returns `None`.
#[derive(Debug)]
pub struct Analysis {
    decoder: Decoder,
    reassembly: Reassembly,
    connections: Connections,
    servers: Servers,
    pseudonyms: Option<Arc<Pseudonyms>>,
    frames: FrameCounts,
    span: Option<(Timestamp, Timestamp)>,
}

/// Counts of frames by their result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// TCP segments.
    pub segments: u64,
    /// Other frames, in the order of [`Other::ALL`].
    pub others: [u64; Other::ALL.len()],
}

impl Analysis {
    pub fn new(options: Options) -> Self {
        let Options { decoder, settings, pseudonyms } = options;
        Self {
            decoder,
            reassembly: Reassembly::default(),
            servers: settings.servers.clone(),
            connections: Connections::new(settings),
            pseudonyms,
            frames: FrameCounts::default(),
            span: None,
        }
    }

    /// Takes a frame.
    pub fn see(&mut self, frame: &Frame<'_>) {
        // Matches by reference: a copy of the segment takes a tenth of the whole time.
        match &self.decoder.decode(frame) {
            Decoded::Segment(segment) | Decoded::FirstFragment(segment) => {
                self.frames.segments += 1;
                self.connections.observe(segment);
            }
            Decoded::Other(Other::Fragment) => self.see_fragment(frame),
            Decoded::Other(other) => {
                self.frames.others[*other as usize] += 1;
                self.connections.advance(frame.time);
            }
        }
        let (first, last) = self.span.unwrap_or((frame.time, frame.time));
        self.span = Some((first, last.max(frame.time)));
    }

    #[cold]
    fn see_fragment(&mut self, frame: &Frame<'_>) {
        match &self.reassembly.complete(&self.decoder, frame) {
            Decoded::Segment(segment) | Decoded::FirstFragment(segment) => {
                self.frames.segments += 1;
                self.connections.observe(segment);
            }
            Decoded::Other(other) => {
                self.frames.others[*other as usize] += 1;
                self.connections.advance(frame.time);
            }
        }
    }

    /// Advances time to `now`, without a frame.
    pub fn advance(&mut self, now: Timestamp) {
        self.connections.advance(now);
    }

    pub fn finish(&mut self) {
        self.connections.finish();
    }

    /// The next event of a reported server.
    pub fn poll(&mut self) -> Option<Event> {
        let mut event = loop {
            let event = self.connections.poll_event()?;
            if self.servers.is_told(event.server()) {
                break event;
            }
        };
        if let Some(pseudonyms) = &self.pseudonyms {
            pseudonyms.replace(&mut event);
        }
        Some(event)
    }

    pub const fn frames(&self) -> &FrameCounts {
        &self.frames
    }

    /// Connections and segments that were not followed.
    pub const fn counts(&self) -> Counts {
        self.connections.counts()
    }

    /// The times of the first frame and the latest one.
    pub const fn span(&self) -> Option<(Timestamp, Timestamp)> {
        self.span
    }
}

impl AddAssign for FrameCounts {
    fn add_assign(&mut self, other: Self) {
        self.segments += other.segments;
        for (count, other) in self.others.iter_mut().zip(other.others) {
            *count += other;
        }
    }
}

impl FrameCounts {
    /// All frames.
    pub fn all(&self) -> u64 {
        self.segments + self.others.iter().sum::<u64>()
    }

    /// Frames other than TCP segments by reason, for reasons with a count above 0.
    pub fn reasons(&self) -> impl Iterator<Item = (Other, u64)> + '_ {
        Other::ALL.into_iter().zip(self.others).filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use watari_packets::build::Builder;
    use watari_packets::{Flags, LinkType, Segment};

    use super::*;

    /// A SYN whose header is in two fragments counts as one segment, from which a connection begins.
    #[test]
    fn split_headers_are_segments() {
        let segment = Segment {
            time: Timestamp(0),
            source: ([192, 0, 2, 1], 50_000).into(),
            destination: ([192, 0, 2, 2], 443).into(),
            sequence: 7,
            acknowledgment: 0,
            flags: Flags::SYN,
            window: 1000,
            len: 0,
            data: b"",
        };
        let fragments = Builder::tcp(&segment, &[]).fragments(segment.source.ip(), segment.destination.ip(), 7, &[8]);
        let mut analysis = Analysis::new(Options::default());
        for data in fragments.into_iter().map(Builder::finish) {
            analysis.see(&Frame { time: Timestamp(1), link: LinkType::RAW, len: data.len() as u32, data: &data });
        }
        assert_eq!(analysis.frames().segments, 1);
        assert_eq!(analysis.frames().reasons().collect::<Vec<_>>(), [(Other::Fragment, 1)]);
        analysis.finish();
        assert!(analysis.poll().is_some(), "there is a connection");
    }
}
