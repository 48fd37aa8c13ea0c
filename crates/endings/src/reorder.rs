//! Holds segments that were captured ahead of what they follow, as with a network card that has several queues.
//!
//! Numbers show what a segment follows: its sequence number shows what its sender had sent, its acknowledgment what its
//! sender had received. So an answer waits for its request, and the next request for the answer before it. If a segment
//! does not arrive within [`WINDOW`], it was not captured, and the held ones are processed without it. All segments of
//! a connection that are captured before its SYN wait for the SYN.

use std::collections::VecDeque;
use std::time::Duration;

use watari_packets::{Flags, Segment, Timestamp};

/// How long a segment waits for what it follows.
pub(crate) const WINDOW: Duration = Duration::from_millis(1);
/// The most segments held at once, and the most octets in them. Beyond that, the oldest are released.
const SEGMENTS_MAX: usize = 1 << 10;
const OCTETS_MAX: usize = 1 << 22;
/// How far into its connection's stream a segment captured ahead of the SYN may be, in octets.
const AHEAD_MAX: u32 = 1 << 16;

/// The held segments, in order of capture.
#[derive(Debug, Default)]
pub(crate) struct ReorderBuffer {
    waiting: VecDeque<Waiting>,
    octets: usize,
}

/// A held segment.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) id: u32,
    pub(crate) source_is_first: bool,
    /// All fields except its data.
    bare: Segment<'static>,
    data: Box<[u8]>,
}

impl ReorderBuffer {
    /// Holds a segment.
    pub(crate) fn hold(&mut self, id: u32, source_is_first: bool, segment: &Segment<'_>) {
        let Segment { time, source, destination, sequence, acknowledgment, flags, window, len, data } = *segment;
        let bare = Segment { time, source, destination, sequence, acknowledgment, flags, window, len, data: &[] };
        self.octets += data.len();
        self.waiting.push_back(Waiting { id, source_is_first, bare, data: data.into() });
    }

    /// A connection with a segment that has waited long enough at `now`, or that is too many.
    pub(crate) fn due(&self, now: Timestamp) -> Option<u32> {
        let first = self.waiting.front()?;
        let is_full = self.waiting.len() > SEGMENTS_MAX || self.octets > OCTETS_MAX;
        (is_full || now.since(first.bare.time) > WINDOW).then_some(first.id)
    }

    /// Removes and returns the first held segment of a connection for which `is_it` is true.
    pub(crate) fn take(&mut self, id: u32, is_it: impl Fn(&Waiting) -> bool) -> Option<Waiting> {
        let at = self.waiting.iter().position(|waiting| waiting.id == id && is_it(waiting))?;
        let waiting = self.waiting.remove(at)?;
        self.octets -= waiting.data.len();
        Some(waiting)
    }

    /// Whether `is_it` is true of any held segment of a connection.
    pub(crate) fn any(&self, id: u32, is_it: impl Fn(&Waiting) -> bool) -> bool {
        self.waiting.iter().any(|waiting| waiting.id == id && is_it(waiting))
    }

    /// The connection of the oldest held segment.
    pub(crate) fn first(&self) -> Option<u32> {
        Some(self.waiting.front()?.id)
    }
}

impl Waiting {
    pub(crate) fn segment(&self) -> Segment<'_> {
        Segment { data: &self.data, ..self.bare }
    }

    pub(crate) fn is_answer_to_syn(&self) -> bool {
        self.bare.flags.contains(Flags::SYN) && !self.bare.flags.contains(Flags::RST)
    }

    /// Whether the segment belongs to the connection that this SYN begins, by its numbers.
    pub(crate) fn follows(&self, source_is_first: bool, syn: &Segment<'_>) -> bool {
        let is_near = |number: u32| number.wrapping_sub(syn.sequence.wrapping_add(1)) < AHEAD_MAX;
        if self.source_is_first == source_is_first {
            return is_near(self.bare.sequence);
        }
        self.bare.flags.contains(Flags::ACK) && is_near(self.bare.acknowledgment)
    }
}
