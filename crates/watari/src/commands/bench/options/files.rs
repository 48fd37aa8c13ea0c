//! Files with the results of a run.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use clap::Args;
use watari_bench::ConnectionLog;
use watari_bench::connection_csv::ConnectionCsv;
use watari_bench::hdr_log;
use watari_bench::load::Finished;
use watari_bench::page::page;
use watari_bench::summary::Summary;

use crate::failure::Failure;

/// Files that the run is written to
#[derive(Args)]
pub(crate) struct Files {
    /// Write a self-contained page with charts and tables
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a line for each connection: the times of its steps, and its ending
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the times as an HDR histogram log
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
}

/// Files that exist and can be written.
pub(crate) struct OpenFiles {
    html: Option<OpenFile>,
    csv: Option<Arc<ConnectionCsv>>,
    hdr: Option<OpenFile>,
}

struct OpenFile {
    path: PathBuf,
    file: File,
}

impl Files {
    /// Creates the files. Called before the run, because a failure after it would lose the results. `classes` are the
    /// names of the plan's classes.
    pub(crate) fn open(&self, classes: Arc<[String]>) -> Result<OpenFiles, Failure> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(OpenFile::create).transpose();
        let csv = open(&self.csv)?.map(|csv| Arc::new(ConnectionCsv::new(csv.file, classes)));
        Ok(OpenFiles { html: open(&self.html)?, csv, hdr: open(&self.hdr)? })
    }
}

impl OpenFiles {
    /// The log of connections. `None`: no option asks for it.
    pub(crate) fn log(&self) -> Option<Arc<dyn ConnectionLog>> {
        self.csv.clone().map(|csv| csv as Arc<dyn ConnectionLog>)
    }

    /// Writes the results of a run that began at `started`.
    pub(crate) fn write(self, started: SystemTime, finished: &Finished, summary: &Summary) -> Result<(), Failure> {
        if let Some(csv) = self.csv {
            csv.finish()?;
        }
        if let Some(OpenFile { path, file }) = self.hdr {
            let written = hdr_log::write(&file, &finished.tally, started, finished.elapsed);
            written.map_err(|error| Failure::File(path, error))?;
        }
        if let Some(OpenFile { path, mut file }) = self.html {
            file.write_all(page(summary).as_bytes()).map_err(|error| Failure::File(path, error))?;
        }
        Ok(())
    }
}

impl OpenFile {
    fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|error| Failure::File(path.to_owned(), error))?;
        Ok(Self { path: path.to_owned(), file })
    }
}
