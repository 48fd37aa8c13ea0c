//! Capture files as one, as fast as they can be read or as fast as they were captured.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use watari_packets::capture_file::{FileError, Merged, ReadError, Reader};
use watari_packets::{Frame, Timestamp};

/// Several capture files, in the order of time.
#[derive(Debug)]
pub struct Files {
    names: Vec<PathBuf>,
    merged: Merged<Box<dyn Source>>,
    pace: Option<Pace>,
}

/// What a capture is read from.
trait Source: Read + std::fmt::Debug {}
impl<R: Read + std::fmt::Debug> Source for R {}

/// Frames wait until as much time has passed as between them and the first.
#[derive(Debug)]
struct Pace {
    began: Option<(Instant, Timestamp)>,
}

/// A capture file cannot be read, or not further.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// It cannot be opened.
    #[error("cannot open {}: {source}", .path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What stands in it is no capture, or ends too early.
    #[error("{}: {source}", .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What is wrong, and where.
        source: ReadError,
    },
}

impl Files {
    /// Opens them; `-` is the standard input. `real_time`: each frame is read when its time has come.
    pub fn open(paths: &[PathBuf], real_time: bool) -> Result<Self, FilesError> {
        let reader = |path: &PathBuf| {
            let file = source(path).map_err(|source| FilesError::Open { path: path.clone(), source })?;
            Reader::new(file).map_err(|source| FilesError::Read { path: path.clone(), source })
        };
        let readers = paths.iter().map(reader).collect::<Result<_, _>>()?;
        let pace = real_time.then_some(Pace { began: None });
        Ok(Self { names: paths.to_vec(), merged: Merged::new(readers), pace })
    }

    /// The next frame, or `None` at the end of all. After an error it goes on with the other files.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FilesError> {
        let Self { names, merged, pace } = self;
        let named = |FileError { file, source }| FilesError::Read { path: names[file].clone(), source };
        let frame = merged.next_frame().map_err(named)?;
        if let (Some(frame), Some(pace)) = (&frame, pace) {
            pace.wait(frame.time);
        }
        Ok(frame)
    }

    /// How many frames were dated hours ahead of those around them, and were taken for as late as those before them.
    pub fn strays(&self) -> u64 {
        self.merged.strays()
    }
}

impl Pace {
    fn wait(&mut self, time: Timestamp) {
        let (began, first) = *self.began.get_or_insert_with(|| (Instant::now(), time));
        let due = time.since(first).saturating_sub(began.elapsed());
        if due > Duration::ZERO {
            thread::sleep(due);
        }
    }
}

fn source(path: &Path) -> io::Result<Box<dyn Source>> {
    if path == Path::new("-") { Ok(Box::new(io::stdin())) } else { Ok(Box::new(File::open(path)?)) }
}
