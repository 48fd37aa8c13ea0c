//! Reads several files as one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;

use super::strays::Steady;
use super::{ReadError, Reader};
use crate::{Frame, Timestamp};

/// Reads several files as one, in order of time. Frames of equal time come in the order of their files.
///
/// Frames of one file keep its order, even if their times do not. The next frame is known once each file has one or has
/// ended. Among files that are still being written, the slowest one sets the pace.
///
/// A frame dated hours ahead of both its neighbors in its file is a stray: it gets the time of the frame before it, and
/// is counted. After a pause of hours, the reader needs the next frame to see that this one is not a stray.
#[derive(Debug)]
pub struct Merged<R> {
    files: Vec<Steady<R>>,
    /// The current frames' times, and their files.
    ready: BinaryHeap<Reverse<(Timestamp, usize)>>,
    /// Files that have to be advanced first: initially all, then the one whose frame was returned.
    due: Vec<usize>,
}

/// One of several files cannot be read further. The others can.
#[derive(Debug, thiserror::Error)]
#[error("file {file} (counted from 0): {source}")]
pub struct FileError {
    /// Index of the file, in the order in which they were given.
    pub file: usize,
    pub source: ReadError,
}

impl<R: Read> Merged<R> {
    /// Reads these files, in any order.
    pub fn new(files: Vec<Reader<R>>) -> Self {
        let files: Vec<_> = files.into_iter().map(Steady::new).collect();
        Self { due: (0..files.len()).rev().collect(), ready: BinaryHeap::with_capacity(files.len()), files }
    }

    /// Number of stray frames.
    pub fn strays(&self) -> u64 {
        self.files.iter().map(Steady::strays).sum()
    }

    /// The next frame, or `None` at the end of all files. After an error it continues with the other files.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FileError> {
        while let Some(file) = self.due.pop() {
            let advanced = self.files[file].advance().map_err(|source| FileError { file, source })?;
            self.ready.extend(advanced.map(|time| Reverse((time, file))));
        }
        let Some(Reverse((_, file))) = self.ready.pop() else { return Ok(None) };
        self.due.push(file);
        Ok(self.files[file].frame())
    }
}
