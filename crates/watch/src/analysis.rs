//! From frames to what happened.

use std::ops::AddAssign;
use std::sync::Arc;

use watari_endings::{Connections, Counts, Event, Servers, Settings};
use watari_packets::{Decoded, Decoder, Frame, Other, Reassembly, Timestamp};

use crate::pseudonyms::Pseudonyms;

/// How frames are read, and what is said of them.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How frames are read.
    pub decoder: Decoder,
    /// What connections are held to. Of servers that are named in it only those are told of.
    pub settings: Settings,
    /// Whose addresses are not said; `None`: all are.
    pub pseudonyms: Option<Arc<Pseudonyms>>,
}

/// Reads frames and follows connections. Give it each frame, and then take what there is from [`Analysis::poll`] until it says
/// nothing.
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

/// What frames were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Segments of TCP.
    pub segments: u64,
    /// What was none, in the order of [`Other::ALL`].
    pub others: [u64; Other::ALL.len()],
}

impl Analysis {
    /// Of no frames yet.
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
        // Not taken out of what it is in: a copy of a segment costs as much as a tenth of all.
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

    /// Time has come to `now`, though there was no frame.
    pub fn advance(&mut self, now: Timestamp) {
        self.connections.advance(now);
    }

    /// There are no more frames.
    pub fn finish(&mut self) {
        self.connections.finish();
    }

    /// The next of what happened at servers that are told of.
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

    /// What frames were.
    pub const fn frames(&self) -> &FrameCounts {
        &self.frames
    }

    /// What was not followed.
    pub const fn counts(&self) -> Counts {
        self.connections.counts()
    }

    /// When the first frame came, and the latest.
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
    /// All of them.
    pub fn all(&self) -> u64 {
        self.segments + self.others.iter().sum::<u64>()
    }

    /// Those that were something else than TCP, or were not understood, by reason; without those of which there were none.
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
