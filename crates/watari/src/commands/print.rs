//! Prints the results of commands.

use std::fmt;

use serde::Serialize;

use crate::failure::Failure;
use crate::output::write;

/// Writes `text` to the standard output. If the reader has closed it, the command continues, and its exit status stays
/// the same.
pub(crate) fn print(text: impl fmt::Display) -> Result<(), Failure> {
    write(text).map_err(Failure::Output)
}

/// Writes a JSON value and a newline.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(value).map_err(|error| Failure::Output(error.into()))?;
    print(format_args!("{json}\n"))
}
