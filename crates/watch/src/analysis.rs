//! From frames to what happened.

use std::ops::AddAssign;

use watari_endings::{Connections, Counts, Event, Settings};
use watari_packets::{Decoded, Decoder, Frame, Other, Timestamp};

/// Reads frames and follows connections. Give it each frame, and then take what there is from [`Analysis::poll`] until it says
/// nothing.
#[derive(Debug)]
pub struct Analysis {
    decoder: Decoder,
    connections: Connections,
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
    pub fn new(decoder: Decoder, settings: Settings) -> Self {
        Self { decoder, connections: Connections::new(settings), frames: FrameCounts::default(), span: None }
    }

    /// Takes a frame.
    pub fn see(&mut self, frame: &Frame<'_>) {
        match self.decoder.decode(frame) {
            Decoded::Segment(segment) | Decoded::FirstFragment(segment) => {
                self.frames.segments += 1;
                self.connections.observe(&segment);
            }
            Decoded::Other(other) => {
                self.frames.others[other as usize] += 1;
                self.connections.advance(frame.time);
            }
        }
        let (first, last) = self.span.unwrap_or((frame.time, frame.time));
        self.span = Some((first, last.max(frame.time)));
    }

    /// Time has come to `now`, though there was no frame.
    pub fn advance(&mut self, now: Timestamp) {
        self.connections.advance(now);
    }

    /// There are no more frames.
    pub fn finish(&mut self) {
        self.connections.finish();
    }

    /// The next of what happened.
    pub fn poll(&mut self) -> Option<Event> {
        self.connections.poll_event()
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
