//! The files that a run is written to.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use watari_bench_engine::connection_log::ConnectionLog;
use watari_bench_engine::load::Finished;

use crate::connection_csv::{ConnectionCsv, CsvError};
use crate::hdr_log;
use crate::page::page;
use crate::summary::Summary;

/// The paths of the files. `None`: no such file.
#[derive(Clone, Debug, Default)]
pub struct FilePaths {
    /// A self-contained page.
    pub html: Option<PathBuf>,
    /// A line for each connection.
    pub csv: Option<PathBuf>,
    /// The times as an HDR histogram log.
    pub hdr: Option<PathBuf>,
}

/// Files that exist and can be written.
#[derive(Debug)]
pub struct OpenFiles {
    html: Option<OpenFile>,
    csv: Option<Arc<ConnectionCsv>>,
    hdr: Option<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    file: File,
}

/// A file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("cannot write {path}: {1}", path = .0.display())]
    File(PathBuf, io::Error),
    #[error(transparent)]
    Csv(#[from] CsvError),
}

impl FilePaths {
    /// Creates the files. Called before the run, because a failure after it would lose the results. `classes` are the
    /// names of the plan's classes.
    pub fn open(&self, classes: Arc<[String]>) -> Result<OpenFiles, WriteError> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(OpenFile::create).transpose();
        let csv = open(&self.csv)?.map(|csv| Arc::new(ConnectionCsv::new(csv.file, classes)));
        Ok(OpenFiles { html: open(&self.html)?, csv, hdr: open(&self.hdr)? })
    }
}

impl OpenFiles {
    /// The log of connections. `None`: there is no file for it.
    pub fn log(&self) -> Option<Arc<dyn ConnectionLog>> {
        self.csv.clone().map(|csv| csv as Arc<dyn ConnectionLog>)
    }

    /// Writes the results of a run that began at `started`.
    pub fn write(self, started: SystemTime, finished: &Finished, summary: &Summary) -> Result<(), WriteError> {
        if let Some(csv) = self.csv {
            csv.finish()?;
        }
        if let Some(OpenFile { path, file }) = self.hdr {
            let written = hdr_log::write(&file, &finished.tally, started, finished.elapsed);
            written.map_err(|error| WriteError::File(path, error))?;
        }
        if let Some(OpenFile { path, mut file }) = self.html {
            file.write_all(page(summary).as_bytes()).map_err(|error| WriteError::File(path, error))?;
        }
        Ok(())
    }
}

impl OpenFile {
    fn create(path: &Path) -> Result<Self, WriteError> {
        let file = File::create(path).map_err(|error| WriteError::File(path.to_owned(), error))?;
        Ok(Self { path: path.to_owned(), file })
    }
}
