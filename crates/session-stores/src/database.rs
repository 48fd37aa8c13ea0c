//! Sessions in a file.
//!
//! ```text
//!   sessions:   key            -> expires, value      for lookups
//!   by_expiry:  expires, key   -> nothing             the order of removal
//!   numbers:    "bytes", "format"                     the total size, and the format of the tables
//! ```
//!
//! All three change in one transaction. If the process ends at any moment, the tables are as before the transaction or
//! as after it. A transaction is on disk when its call returns. A lookup walks down a tree whose height is the
//! logarithm of the number of entries. Eviction and expiry begin at the first entry of `by_expiry`, and read no entry
//! that stays.

mod error;
mod file;
mod tables;
mod usage;

use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, TryLockError};

use redb::{ReadTransaction, ReadableDatabase};
use watari_values::SessionKey;

pub use error::DatabaseError;
use tables::{FORMAT, Format, Tables, View};
pub use usage::Usage;

use crate::Entry;

/// Sessions in a file of this process alone, up to a number of bytes. If there is no room, the entries that expire
/// first are evicted.
///
/// Every call reads or writes the file, and blocks. Callers that must not block use a [`Writer`](crate::Writer). After
/// a system error (for example a full disk), no write succeeds until the database is opened again.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    bytes_max: u64,
    /// `None`: it was closed after an error, and could not be opened again.
    file: RwLock<Option<redb::Database>>,
}

/// The maximum number of entries that one call of [`Database::expire`] removes.
pub const EXPIRE_MAX: usize = 4096;

/// A change of a database in a transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change<'a> {
    Put(&'a Entry),
    Take(&'a SessionKey),
}

/// The result of a transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// The number of entries that were evicted, or were not stored because they alone are too large.
    pub(crate) evicted: usize,
    /// The number of removed entries that were stored before.
    pub(crate) taken: usize,
}

impl Database {
    /// The bytes of an entry in the file besides its value: its key and its time in two tables, and half of the free
    /// space in these.
    pub const OVERHEAD: u64 = usage::OVERHEAD;

    /// Opens the database in the file at `path`, or creates one that only this user may read. Checks every byte first,
    /// which takes as long as reading the file. The database stores at most `bytes_max` bytes, counted as in [`Usage`].
    /// The file is larger by a small factor, because removed entries leave space for others but do not shorten it.
    pub fn open(path: &Path, bytes_max: u64) -> Result<Self, DatabaseError> {
        Self::on(file::open(path)?, path, bytes_max)
    }

    fn on(file: redb::Database, path: &Path, bytes_max: u64) -> Result<Self, DatabaseError> {
        let mut database = Self { path: path.to_owned(), bytes_max, file: RwLock::new(Some(file)) };
        match database.read(Format::of)? {
            Format::New => database.change(tables::begin)?,
            Format::Ours(FORMAT) => database.shrink()?,
            Format::Ours(found) => return Err(DatabaseError::OtherFormat { path: path.to_owned(), found }),
            Format::Foreign => return Err(DatabaseError::NotADatabase(path.to_owned())),
        }
        Ok(database)
    }

    /// Closes the file and opens it again, after an error. Until it is open, all calls fail.
    pub(crate) fn reopen(&self) -> Result<(), DatabaseError> {
        let mut file = self.file.write().unwrap_or_else(PoisonError::into_inner);
        // Only one handle at a time can have the lock on the file.
        *file = None;
        let opened = Self::open(&self.path, self.bytes_max)?;
        *file = opened.file.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(())
    }

    /// Stores entries until they expire, in place of others with their keys, in one transaction. Expired entries are
    /// not stored. Returns the number of entries that were evicted, or that alone are too large.
    pub fn put(&self, entries: &[Entry], now: u64) -> Result<usize, DatabaseError> {
        self.apply(entries.iter().map(Change::Put), now).map(|changed| changed.evicted)
    }

    /// The entries with these keys that are stored and have not expired.
    pub fn get(&self, keys: &[SessionKey], now: u64) -> Result<Vec<Entry>, DatabaseError> {
        self.read(|transaction| View(transaction).get(keys, now))
    }

    /// Removes the entries with these keys, in one transaction. Returns the number removed.
    pub fn take(&self, keys: &[SessionKey]) -> Result<usize, DatabaseError> {
        self.apply(keys.iter().map(Change::Take), 0).map(|changed| changed.taken)
    }

    /// Removes at most [`EXPIRE_MAX`] expired entries. Returns their number; if it is the maximum, there may be more.
    pub fn expire(&self, now: u64) -> Result<usize, DatabaseError> {
        // An empty transaction would be written, too.
        if !self.read(|transaction| View(transaction).has_expired(now))? {
            return Ok(0);
        }
        self.change(|tables| tables.expire(now, EXPIRE_MAX))
    }

    pub fn usage(&self) -> Result<Usage, DatabaseError> {
        self.read(|transaction| View(transaction).usage())
    }

    /// Makes all of these changes, in order, or none of them.
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

    /// Evicts entries if `bytes_max` was larger when the database was last open.
    fn shrink(&mut self) -> Result<(), DatabaseError> {
        if self.usage()?.bytes > self.bytes_max {
            while self.change(|tables| tables.evict_some(self.bytes_max, EXPIRE_MAX))? == EXPIRE_MAX {}
            let file = self.file.get_mut().unwrap_or_else(PoisonError::into_inner);
            let compacted = file.as_mut().map_or(Ok(false), redb::Database::compact);
            compacted.map_err(|cause| self.failed(cause))?;
        }
        Ok(())
    }

    fn change<T>(&self, change: impl FnOnce(&mut Tables<'_>) -> Result<T, redb::Error>) -> Result<T, DatabaseError> {
        let changing = || {
            let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
            let transaction = file.as_ref().ok_or(redb::Error::PreviousIo)?.begin_write()?;
            let mut tables = Tables::open(&transaction)?;
            let result = change(&mut tables)?;
            tables.close()?;
            transaction.commit()?;
            Ok(result)
        };
        changing().map_err(|cause: redb::Error| self.failed(cause))
    }

    fn read<T>(&self, read: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>) -> Result<T, DatabaseError> {
        let reading = || {
            // A lookup does not wait until the file is checked.
            let file = match self.file.try_read() {
                Ok(file) => file,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return Err(redb::Error::PreviousIo),
            };
            read(&file.as_ref().ok_or(redb::Error::PreviousIo)?.begin_read()?)
        };
        reading().map_err(|cause: redb::Error| self.failed(cause))
    }

    fn failed(&self, cause: impl Into<redb::Error>) -> DatabaseError {
        DatabaseError::Failed { path: self.path.clone(), cause: Box::new(cause.into()) }
    }
}

#[cfg(test)]
pub(crate) mod tests;
