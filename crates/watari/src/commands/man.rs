//! `watari man`: manual pages.

use std::fs;
use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;

/// Write manual pages, one for each command
#[derive(Args)]
#[command(after_help = "Example:\n  watari man --out /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// The directory; it is made if it is missing
    #[arg(long, value_name = "DIRECTORY")]
    out: PathBuf,
}

impl Man {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        fs::create_dir_all(&self.out)
            .and_then(|()| clap_mangen::generate_to(crate::command_line(), &self.out))
            .map_err(|error| Failure::ManualPages(self.out, error))
    }
}
