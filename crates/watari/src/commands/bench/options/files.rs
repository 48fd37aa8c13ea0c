//! Files with the results of a run.

use std::path::PathBuf;

use clap::Args;
use watari_bench_report::files::FilePaths;

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

impl Files {
    pub(crate) fn paths(&self) -> FilePaths {
        FilePaths { html: self.html.clone(), csv: self.csv.clone(), hdr: self.hdr.clone() }
    }
}
