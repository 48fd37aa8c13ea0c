//! Stray frames, dated far ahead of their neighbors: a clock or a driver was wrong for one frame, or a file is damaged.
//! Packet time does not go back, so one such frame would hide all later ones.

use std::io::Read;
use std::time::Duration;

use super::{ReadError, Reader};
use crate::{Frame, LinkType, Timestamp};

/// A frame dated this far ahead of both its neighbors is a stray. Frames of several queues or interfaces are seconds
/// apart at most. After a pause, all frames are later than those before it.
const AHEAD_MIN: Duration = Duration::from_hours(1);

/// Reads a file, and gives strays the time of the frame before them.
#[derive(Debug)]
pub(super) struct Steady<R> {
    reader: Reader<R>,
    /// The time given to the last frame.
    time: Option<Timestamp>,
    /// The last frame and the result of the read behind it, if the reader had to look ahead.
    held: Option<Held>,
    next: Option<Result<Option<Timestamp>, ReadError>>,
    strays: u64,
}

/// A frame that owns its octets.
#[derive(Debug)]
struct Held {
    link: LinkType,
    len: u32,
    data: Vec<u8>,
}

impl<R: Read> Steady<R> {
    pub(super) const fn new(reader: Reader<R>) -> Self {
        Self { reader, time: None, held: None, next: None, strays: 0 }
    }

    /// Goes to the next frame, and returns its time; `None` if there is none.
    pub(super) fn advance(&mut self) -> Result<Option<Timestamp>, ReadError> {
        self.held = None;
        let read = self.next.take().unwrap_or_else(|| self.reader.advance())?;
        let time = read.map(|time| match self.time {
            Some(before) if time.since(before) >= AHEAD_MIN => self.look_ahead(before, time),
            _ => time,
        });
        self.time = time.or(self.time);
        Ok(time)
    }

    /// The current frame.
    pub(super) fn frame(&self) -> Option<Frame<'_>> {
        let Some(Held { link, len, data }) = &self.held else { return self.reader.frame() };
        Some(Frame { time: self.time?, link: *link, len: *len, data })
    }

    pub(super) const fn strays(&self) -> u64 {
        self.strays
    }

    /// The time for a frame dated `time`, far after the one before it. Reads the next frame to decide.
    fn look_ahead(&mut self, before: Timestamp, time: Timestamp) -> Timestamp {
        let held = |Frame { link, len, data, .. }| Held { link, len, data: data.to_vec() };
        self.held = self.reader.frame().map(held);
        let next = self.next.insert(self.reader.advance());
        if matches!(next, Ok(Some(next)) if time.since(*next) >= AHEAD_MIN) {
            self.strays += 1;
            return before;
        }
        time
    }
}
