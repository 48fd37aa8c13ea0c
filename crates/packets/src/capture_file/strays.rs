//! Frames that are dated far ahead of those around them: a clock or a driver was wrong for one frame, or a file is damaged. Time
//! does not go back for whoever follows it, so one such frame would hide all that comes behind it.

use std::io::Read;
use std::time::Duration;

use super::{ReadError, Reader};
use crate::{Frame, LinkType, Timestamp};

/// A frame that is dated so far ahead of the one before it, and of the one behind it, is a stray. Frames of several queues or
/// interfaces are apart by seconds at most; and behind a pause, all are later than what was before it.
const AHEAD_MIN: Duration = Duration::from_hours(1);

/// Reads a file, and takes strays for as late as the frame before them.
#[derive(Debug)]
pub(super) struct Steady<R> {
    reader: Reader<R>,
    /// What the last frame was taken for.
    time: Option<Timestamp>,
    /// The last frame, and what was read behind it, where that had to be known.
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

    /// Goes to the next frame; returns its time, unless there is none.
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

    /// The frame to which the reader has come.
    pub(super) fn frame(&self) -> Option<Frame<'_>> {
        let Some(Held { link, len, data }) = &self.held else { return self.reader.frame() };
        Some(Frame { time: self.time?, link: *link, len: *len, data })
    }

    pub(super) const fn strays(&self) -> u64 {
        self.strays
    }

    /// What a frame is to be taken for that is dated `time`, far behind the one before it: what comes next tells.
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
