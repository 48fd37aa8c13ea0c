//! Several files as one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;

use super::strays::Steady;
use super::{ReadError, Reader};
use crate::{Frame, Timestamp};

/// Reads several files as if they were one, in the order of time; of frames of one time, those of earlier files first.
///
/// Frames of one file stay in its order, also where it is not that of time. The next frame is known once each file has
/// one or has ended: where files are still being written, the slowest says how fast it goes.
///
/// A frame that is dated hours ahead of the one before it in its file, and of the one behind it, is a stray: it is taken for as late
/// as the one before it, and counted. One behind a pause of hours is known to be none when the next one has come.
#[derive(Debug)]
pub struct Merged<R> {
    files: Vec<Steady<R>>,
    /// Files that have come to a frame, by its time.
    ready: BinaryHeap<Reverse<(Timestamp, usize)>>,
    /// Files that have to go on before anything can be said: at first all, then the one whose frame was next.
    due: Vec<usize>,
}

/// One of several files cannot be read further. The others can.
#[derive(Debug, thiserror::Error)]
#[error("file {file} (counted from 0): {source}")]
pub struct FileError {
    /// Which, in the order in which they were given.
    pub file: usize,
    /// What is wrong.
    pub source: ReadError,
}

impl<R: Read> Merged<R> {
    /// Reads these files, in whatever order they are.
    pub fn new(files: Vec<Reader<R>>) -> Self {
        let files: Vec<_> = files.into_iter().map(Steady::new).collect();
        Self { due: (0..files.len()).rev().collect(), ready: BinaryHeap::with_capacity(files.len()), files }
    }

    /// How many frames were strays.
    pub fn strays(&self) -> u64 {
        self.files.iter().map(Steady::strays).sum()
    }

    /// The next frame, or `None` at the end of all files. After an error it goes on with the other files.
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
