//! The measured program.

use std::env;
use std::path::PathBuf;

use crate::failure::{Failure, doing};

/// The path of `watari`, which was built together with this program and is in the same directory.
pub(super) fn watari() -> Result<PathBuf, Failure> {
    Ok(env::current_exe().map_err(doing("finding watari"))?.with_file_name("watari"))
}
