//! The subcommands, one file each: its arguments, what it does, what it prints.

pub(crate) mod bench;
pub(crate) mod ctl;
pub(crate) mod demo;
pub(crate) mod pki;
pub(crate) mod run;
pub(crate) mod watch;

use std::fmt;
use std::io::{self, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Writes `text` as it is to the standard output.
fn print(text: impl fmt::Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush()).map_err(Failure::Output)
}

/// Writes one JSON value and the end of its line.
fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(value).map_err(|error| Failure::Output(error.into()))?;
    print(format_args!("{json}\n"))
}
