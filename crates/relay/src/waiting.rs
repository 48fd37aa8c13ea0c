//! The counts of one direction.

use serde::{Deserialize, Serialize};

/// The bytes of one direction that were read from one side and not yet written to the other. `read = written + waiting`
/// holds by construction.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Waiting {
    pub(crate) read: u64,
    pub(crate) written: u64,
    /// Whether a preface, or the rest of one, waits in front of the stream. It is not counted.
    pub(crate) preface: bool,
}

impl Waiting {
    /// `len` bytes of the stream that were read elsewhere.
    pub(crate) fn holding(len: usize) -> Self {
        Self { read: len as u64, ..Self::default() }
    }

    /// The number of bytes of the stream that wait.
    pub(crate) fn len(&self) -> u64 {
        self.read - self.written
    }

    /// Whether neither a preface nor a byte waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0 && !self.preface
    }

    pub(crate) fn read(&mut self, bytes: usize) {
        self.read += bytes as u64;
    }

    /// Bytes that were written wait again.
    pub(crate) fn unwrite(&mut self, bytes: usize) {
        self.written = self.written.checked_sub(bytes as u64).expect("so many were written");
    }

    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.written += bytes as u64;
        assert!(self.written <= self.read, "a driver writes only what it has read");
    }
}
