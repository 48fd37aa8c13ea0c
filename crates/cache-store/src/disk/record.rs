//! Keys and entries in foyer.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use foyer::{Code, Error, ErrorKind, Result};
use watari_cache::{Entry, Key};

use crate::disk::queue::Ticket;

/// The key of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RecordKey(pub(super) Key);

/// What the disk has under a key.
#[derive(Debug)]
pub(super) struct Record {
    /// None: the entry was removed. Such a record outlives the entry in the log, so that a restart does not find it.
    pub(super) entry: Option<Arc<Entry>>,
    /// None if the record is from the disk.
    ticket: Option<Ticket>,
    is_encoded: AtomicBool,
}

impl Record {
    pub(super) fn new(entry: Option<Arc<Entry>>, ticket: Ticket) -> Self {
        Self { entry, ticket: Some(ticket), is_encoded: AtomicBool::new(false) }
    }
}

/// Foyer drops a record after its write, or if it has no room for it.
impl Drop for Record {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            ticket.finish(*self.is_encoded.get_mut());
        }
    }
}

impl Code for RecordKey {
    fn encode(&self, writer: &mut impl Write) -> Result<()> {
        writer.write_all(&self.0.0).map_err(Error::io_error)
    }

    fn decode(reader: &mut impl Read) -> Result<Self> {
        let mut key = [0; 16];
        reader.read_exact(&mut key).map_err(|_| damaged())?;
        Ok(Self(Key(key)))
    }

    fn estimated_size(&self) -> usize {
        16
    }
}

impl Code for Record {
    fn encode(&self, writer: &mut impl Write) -> Result<()> {
        let mut encoded = Vec::new();
        if let Some(entry) = &self.entry {
            entry.encode(&mut encoded);
        }
        writer.write_all(&encoded).map_err(Error::io_error)?;
        self.is_encoded.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn decode(reader: &mut impl Read) -> Result<Self> {
        let mut encoded = Vec::new();
        reader.read_to_end(&mut encoded).map_err(|_| damaged())?;
        let entry = match encoded.as_slice() {
            [] => None,
            _ => Some(Arc::new(Entry::decode(&encoded.into()).map_err(|_| damaged())?)),
        };
        Ok(Self { entry, ticket: None, is_encoded: AtomicBool::new(false) })
    }

    fn estimated_size(&self) -> usize {
        self.entry.as_ref().map_or(0, |entry| entry.weight())
    }
}

/// Makes foyer forget the record.
fn damaged() -> Error {
    Error::new(ErrorKind::ChecksumMismatch, "damaged entry")
}
