//! Programs that run to their end.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// The octets of standard error that an error shows.
const SHOWN_MAX: usize = 2000;

/// Runs a program to its end: its standard output, or the end of its standard error if it fails.
pub(crate) fn run(command: &mut Command) -> io::Result<Result<Vec<u8>, String>> {
    let output = command.stdin(Stdio::null()).output()?;
    Ok(if output.status.success() { Ok(output.stdout) } else { Err(end_of(&output.stderr)) })
}

/// The end of what a program has written.
pub(crate) fn end_of(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[text.len().saturating_sub(SHOWN_MAX)..]).trim().to_owned()
}

/// The end of what a program has written to a file.
pub(crate) fn end_of_file(path: &Path) -> String {
    end_of(&fs::read(path).unwrap_or_default())
}
