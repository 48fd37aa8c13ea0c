//! Segments that were captured ahead of what they follow, as where a network card has several queues: they wait for it, for a
//! moment.
//!
//! Numbers say what a segment follows: its sequence number what its sender had sent before, its acknowledgment what its sender
//! had got. So an answer waits for its request, and the next request for the answer before it. What does not come within
//! [`WINDOW`] was not captured at all, and then all goes on without it. All that is seen of a connection before its SYN waits for that.

use std::collections::VecDeque;
use std::time::Duration;

use watari_packets::{Flags, Segment, Timestamp};

/// How long a segment waits for what it follows.
pub(crate) const WINDOW: Duration = Duration::from_millis(1);
/// How many wait at once, and how much they may hold; beyond, the oldest wait no longer.
const SEGMENTS_MAX: usize = 1 << 10;
const OCTETS_MAX: usize = 1 << 22;
/// How far into the octets of a connection one may be that is captured ahead of its SYN.
const AHEAD_MAX: u32 = 1 << 16;

/// Those that wait, in the order in which they were captured.
#[derive(Debug, Default)]
pub(crate) struct Early {
    waiting: VecDeque<Waiting>,
    octets: usize,
}

/// A segment that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Of which connection.
    pub(crate) id: u32,
    pub(crate) source_is_first: bool,
    /// All but its data.
    bare: Segment<'static>,
    data: Box<[u8]>,
}

impl Early {
    /// It waits.
    pub(crate) fn hold(&mut self, id: u32, source_is_first: bool, segment: &Segment<'_>) {
        let Segment { time, source, destination, sequence, acknowledgment, flags, window, len, data } = *segment;
        let bare = Segment { time, source, destination, sequence, acknowledgment, flags, window, len, data: &[] };
        self.octets += data.len();
        self.waiting.push_back(Waiting { id, source_is_first, bare, data: data.into() });
    }

    /// A connection of which one has waited for long enough at `now`, or is one too many.
    pub(crate) fn due(&self, now: Timestamp) -> Option<u32> {
        let first = self.waiting.front()?;
        let is_full = self.waiting.len() > SEGMENTS_MAX || self.octets > OCTETS_MAX;
        (is_full || now.since(first.bare.time) > WINDOW).then_some(first.id)
    }

    /// The first one of a connection of which this is true, which waits no longer.
    pub(crate) fn take(&mut self, id: u32, is_it: impl Fn(&Waiting) -> bool) -> Option<Waiting> {
        let at = self.waiting.iter().position(|waiting| waiting.id == id && is_it(waiting))?;
        let waiting = self.waiting.remove(at)?;
        self.octets -= waiting.data.len();
        Some(waiting)
    }

    /// Whether this is true of some that waits, of a connection.
    pub(crate) fn any(&self, id: u32, is_it: impl Fn(&Waiting) -> bool) -> bool {
        self.waiting.iter().any(|waiting| waiting.id == id && is_it(waiting))
    }

    /// Any one.
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

    /// Whether it is of the connection that this SYN begins, by its numbers.
    pub(crate) fn follows(&self, source_is_first: bool, syn: &Segment<'_>) -> bool {
        let is_near = |number: u32| number.wrapping_sub(syn.sequence.wrapping_add(1)) < AHEAD_MAX;
        if self.source_is_first == source_is_first {
            return is_near(self.bare.sequence);
        }
        self.bare.flags.contains(Flags::ACK) && is_near(self.bare.acknowledgment)
    }
}
