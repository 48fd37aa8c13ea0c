//! Reads several capture files as one, at full speed or at the speed of the capture.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use watari_packets::capture_file::{FileError, Merged, ReadError, Reader};
use watari_packets::{Frame, Timestamp};

/// Several capture files, in order of time.
#[derive(Debug)]
pub struct Files {
    names: Vec<PathBuf>,
    merged: Merged<Box<dyn Source>>,
    pace: Option<Pace>,
}

/// The input of a capture file.
trait Source: Read + std::fmt::Debug {}
impl<R: Read + std::fmt::Debug> Source for R {}

/// Delays each frame by the time between the first frame and it.
#[derive(Debug)]
struct Pace {
    began: Option<(Instant, Timestamp)>,
}

/// A capture file cannot be read, or not further.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// It cannot be opened.
    #[error("cannot open {}: {source}", .path.display())]
    Open { path: PathBuf, source: io::Error },
    /// It has no capture, or ends within a frame.
    #[error("{}: {source}", .path.display())]
    Read {
        path: PathBuf,
        /// The error and its position.
        source: ReadError,
    },
}

impl Files {
    /// Opens the files; `-` is the standard input. `real_time`: reads frames at the speed of the capture.
    pub fn open(paths: &[PathBuf], real_time: bool) -> Result<Self, FilesError> {
        let reader = |path: &PathBuf| {
            let file = source(path).map_err(|source| FilesError::Open { path: path.clone(), source })?;
            Reader::new(file).map_err(|source| FilesError::Read { path: path.clone(), source })
        };
        let readers = paths.iter().map(reader).collect::<Result<_, _>>()?;
        let pace = real_time.then_some(Pace { began: None });
        Ok(Self { names: paths.to_vec(), merged: Merged::new(readers), pace })
    }

    /// The next frame, or `None` at the end of all files. After an error it continues with the other files.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FilesError> {
        let Self { names, merged, pace } = self;
        let named = |FileError { file, source }| FilesError::Read { path: names[file].clone(), source };
        let frame = merged.next_frame().map_err(named)?;
        if let (Some(frame), Some(pace)) = (&frame, pace) {
            pace.wait(frame.time);
        }
        Ok(frame)
    }

    /// Frames dated hours ahead of both their neighbors, which got the times of the frames before them.
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
