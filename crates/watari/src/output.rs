//! The output of commands.
//!
//! All output goes through this module, `commands::print`, or a writer whose errors become `Failure::Output`. The
//! macros of the standard library panic if the reader of a pipe has closed it (`watari ctl connections | head`).

use std::fmt;
use std::io::{self, ErrorKind, Write};

/// Writes `text` to the standard output. If the reader has closed it, that is no error: the command continues, and its
/// exit status stays the same.
pub(crate) fn write(text: impl fmt::Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes a line to the standard error. Ignores errors: they could not be reported anywhere else.
pub(crate) fn print_line(line: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
