//! The output of commands.
//!
//! All output goes through this module, or through a writer whose errors become [`Failure::Output`]. The macros of the
//! standard library panic if the reader of a pipe has closed it (`watari ctl connections | head`).

use std::fmt;
use std::io::{self, ErrorKind, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Writes `text` to the standard output. If the reader has closed it, the command continues, and its exit status stays
/// the same.
pub(crate) fn print(text: impl fmt::Display) -> Result<(), Failure> {
    write(text).map_err(Failure::Output)
}

/// The same, for callers that do not fail as commands do.
pub(crate) fn write(text: impl fmt::Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes a JSON value and a newline.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(value).map_err(|error| Failure::Output(error.into()))?;
    print(format_args!("{json}\n"))
}

/// Writes a line to the standard error. Ignores errors: they could not be reported anywhere else.
pub(crate) fn print_line(line: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
