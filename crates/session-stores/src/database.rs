//! Sessions in a file.
//!
//! ```text
//!   sessions:   key            -> expires, value      what is looked up
//!   by_expiry:  expires, key   -> nothing             who leaves next
//!   numbers:    "bytes", "format"                     what they take together, and how they are written
//! ```
//!
//! All three change in one transaction, so that whatever ends the process leaves them as they were before it or after it. A
//! transaction is on disk when its call returns. Finding an entry takes a walk down a tree whose height is the logarithm of the
//! number of entries; making room and expiring begin at the first of `by_expiry`, and look at nothing that stays.

mod error;
mod file;
mod tables;

use std::path::{Path, PathBuf};

use redb::{ReadTransaction, ReadableDatabase};
use watari_wire::SessionKey;

pub use error::DatabaseError;
use tables::{FORMAT, Format, Tables, View};

use crate::Entry;

/// Sessions in a file of this process alone, as many as fit into a number of bytes. Those that expire first make room.
///
/// Every call reads or writes the file, and waits for it: [`Writer`](crate::Writer) is for callers who must not. After an error
/// of the system (a full disk, say) nothing can be written until the database is opened anew.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    bytes_max: u64,
    file: redb::Database,
}

/// What a database holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many entries there are, expired or not.
    pub entries: u64,
    /// How many bytes they take: their values, each with [`Database::OVERHEAD`].
    pub bytes: u64,
}

/// So many entries leave in one call of [`Database::expire`] at most.
pub const EXPIRE_MAX: usize = 4096;

/// What is done to a database in a transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change<'a> {
    Put(&'a Entry),
    Take(&'a SessionKey),
}

/// What came of a transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// How many entries left, or were not kept, for want of room.
    pub(crate) evicted: usize,
    /// How many of those that were taken had been there.
    pub(crate) taken: usize,
}

impl Database {
    /// What an entry takes in the file besides its value, in bytes: its key and its time in two tables, and half of what these
    /// have as room for more.
    pub const OVERHEAD: u64 = 192;

    /// Opens the database in the file at `path`, or begins one there, which this user alone may read. Every byte of it is
    /// checked first, which takes as long as reading it. It keeps at most `bytes_max` bytes, counted as in [`Usage`]; the file
    /// is larger by a small factor, for what was removed makes room for others but does not make it shorter.
    pub fn open(path: &Path, bytes_max: u64) -> Result<Self, DatabaseError> {
        Self::on(file::open(path)?, path, bytes_max)
    }

    fn on(file: redb::Database, path: &Path, bytes_max: u64) -> Result<Self, DatabaseError> {
        let mut database = Self { path: path.to_owned(), bytes_max, file };
        match database.read(Format::of)? {
            Format::New => database.change(tables::begin)?,
            Format::Ours(FORMAT) => database.shrink()?,
            Format::Ours(found) => return Err(DatabaseError::OtherFormat { path: path.to_owned(), found }),
            Format::Foreign => return Err(DatabaseError::NotADatabase(path.to_owned())),
        }
        Ok(database)
    }

    /// Keeps entries until they expire, in place of others with their keys, in one transaction. Returns how many had to leave
    /// before their time, or do not fit by themselves. What has expired is not kept.
    pub fn put(&self, entries: &[Entry], now: u64) -> Result<usize, DatabaseError> {
        self.apply(entries.iter().map(Change::Put), now).map(|changed| changed.evicted)
    }

    /// Those of the entries with these keys that are here and have not expired.
    pub fn get(&self, keys: &[SessionKey], now: u64) -> Result<Vec<Entry>, DatabaseError> {
        self.read(|transaction| View(transaction).get(keys, now))
    }

    /// Forgets the entries with these keys, in one transaction. Returns how many there were.
    pub fn take(&self, keys: &[SessionKey]) -> Result<usize, DatabaseError> {
        self.apply(keys.iter().map(Change::Take), 0).map(|changed| changed.taken)
    }

    /// Forgets entries that have expired, [`EXPIRE_MAX`] at most. Returns how many; if that is all it may be, there may be more.
    pub fn expire(&self, now: u64) -> Result<usize, DatabaseError> {
        // A transaction that changes nothing would be written, too.
        if !self.read(|transaction| View(transaction).has_expired(now))? {
            return Ok(0);
        }
        self.change(|tables| tables.expire(now, EXPIRE_MAX))
    }

    /// What it holds.
    pub fn usage(&self) -> Result<Usage, DatabaseError> {
        self.read(|transaction| View(transaction).usage())
    }

    /// Makes all of these changes, in their order, or none of them.
    pub(crate) fn apply<'a>(
        &self,
        changes: impl IntoIterator<Item = Change<'a>>,
        now: u64,
    ) -> Result<Changed, DatabaseError> {
        self.change(|tables| {
            let mut done = Changed::default();
            for change in changes {
                match change {
                    Change::Put(entry) if entry.expires <= now => {
                        tables.remove(&entry.key)?;
                    }
                    Change::Put(entry) => done.evicted += usize::from(!tables.put(entry, self.bytes_max)?),
                    Change::Take(key) => done.taken += usize::from(tables.remove(key)?),
                }
            }
            done.evicted += tables.evict(self.bytes_max, now)?;
            Ok(done)
        })
    }

    /// Makes room, in case that more was allowed when it was last open.
    fn shrink(&mut self) -> Result<(), DatabaseError> {
        if self.usage()?.bytes > self.bytes_max {
            while self.change(|tables| tables.evict_some(self.bytes_max, EXPIRE_MAX))? == EXPIRE_MAX {}
            self.file.compact().map_err(|cause| self.failed(cause))?;
        }
        Ok(())
    }

    fn change<T>(&self, change: impl FnOnce(&mut Tables<'_>) -> Result<T, redb::Error>) -> Result<T, DatabaseError> {
        let changing = || {
            let transaction = self.file.begin_write()?;
            let mut tables = Tables::open(&transaction)?;
            let result = change(&mut tables)?;
            tables.close()?;
            transaction.commit()?;
            Ok(result)
        };
        changing().map_err(|cause: redb::Error| self.failed(cause))
    }

    fn read<T>(&self, read: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>) -> Result<T, DatabaseError> {
        let reading = || read(&self.file.begin_read()?);
        reading().map_err(|cause: redb::Error| self.failed(cause))
    }

    fn failed(&self, cause: impl Into<redb::Error>) -> DatabaseError {
        DatabaseError::Failed { path: self.path.clone(), cause: Box::new(cause.into()) }
    }
}

#[cfg(test)]
pub(crate) mod tests;
