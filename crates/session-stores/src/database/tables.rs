//! The tables of a database, which change together.

use redb::{
    Error, ReadTransaction, ReadableTable, ReadableTableMetadata, Table, TableDefinition, TableError, WriteTransaction,
};
use watari_values::SessionKey;

use super::usage::{OVERHEAD, Usage};
use crate::{Entry, VALUE_MAX};

/// The format number of the tables. A change of the format must increase it.
pub(super) const FORMAT: u64 = 1;

/// The format of the tables in a file.
pub(super) enum Format {
    /// There are no tables.
    New,
    /// Our tables, with this format number.
    Ours(u64),
    /// Tables of another program.
    Foreign,
}

/// All tables, in a write transaction.
pub(super) struct Tables<'t> {
    sessions: Table<'t, Key, Session>,
    by_expiry: Table<'t, (u64, Key), ()>,
    numbers: Table<'t, &'static str, u64>,
    bytes: u64,
}

/// All tables, as at the beginning of a read transaction. Each is opened when it is needed, because opening is a lookup
/// of its own.
pub(super) struct View<'t>(pub(super) &'t ReadTransaction);

type Key = &'static [u8; 32];
type Session = (u64, &'static [u8]);

impl Format {
    pub(super) fn of(transaction: &ReadTransaction) -> Result<Self, Error> {
        if transaction.list_tables()?.next().is_none() {
            return Ok(Self::New);
        }
        match transaction.open_table(NUMBERS) {
            Ok(numbers) => Ok(number(&numbers, FORMAT_NAME)?.map_or(Self::Foreign, Self::Ours)),
            Err(TableError::Storage(cause)) => Err(cause.into()),
            Err(_) => Ok(Self::Foreign),
        }
    }
}

impl<'t> Tables<'t> {
    pub(super) fn open(transaction: &'t WriteTransaction) -> Result<Self, Error> {
        let numbers = transaction.open_table(NUMBERS)?;
        let bytes = number(&numbers, BYTES)?.unwrap_or(0);
        let (sessions, by_expiry) = (transaction.open_table(SESSIONS)?, transaction.open_table(BY_EXPIRY)?);
        Ok(Self { sessions, by_expiry, numbers, bytes })
    }

    /// Must be called before the transaction ends. Otherwise the number of bytes is not updated.
    pub(super) fn close(mut self) -> Result<(), Error> {
        self.numbers.insert(BYTES, self.bytes)?;
        Ok(())
    }

    /// Stores an entry in place of another with its key. Returns whether it alone fits into `bytes_max`; the other
    /// entry is removed in any case.
    pub(super) fn put(&mut self, entry: &Entry, bytes_max: u64) -> Result<bool, Error> {
        self.remove(&entry.key)?;
        let bytes = bytes_of(&entry.value);
        let fits = bytes <= bytes_max && entry.value.len() <= VALUE_MAX;
        if fits {
            self.sessions.insert(&entry.key.0, (entry.expires, &entry.value[..]))?;
            self.by_expiry.insert((entry.expires, &entry.key.0), ())?;
            self.bytes += bytes;
        }
        Ok(fits)
    }

    /// Returns whether the entry was stored.
    pub(super) fn remove(&mut self, key: &SessionKey) -> Result<bool, Error> {
        let Some((expires, bytes)) = self.sessions.remove(&key.0)?.map(|session| stored(session.value())) else {
            return Ok(false);
        };
        self.by_expiry.remove((expires, &key.0))?;
        self.bytes = self.bytes.saturating_sub(bytes);
        Ok(true)
    }

    /// Removes the entries that expire first until the others fit into `bytes_max`. Returns the number of those that
    /// had not expired at `now`.
    pub(super) fn evict(&mut self, bytes_max: u64, now: u64) -> Result<usize, Error> {
        let mut evicted = 0;
        while self.bytes > bytes_max {
            let Some(expires) = self.remove_first(u64::MAX)? else { break };
            evicted += usize::from(expires > now);
        }
        Ok(evicted)
    }

    /// Like [`Self::evict`], but removes at most `most` entries. Returns their number.
    pub(super) fn evict_some(&mut self, bytes_max: u64, most: usize) -> Result<usize, Error> {
        let mut evicted = 0;
        while evicted < most && self.bytes > bytes_max && self.remove_first(u64::MAX)?.is_some() {
            evicted += 1;
        }
        Ok(evicted)
    }

    /// Removes at most `most` expired entries. Returns their number.
    pub(super) fn expire(&mut self, now: u64, most: usize) -> Result<usize, Error> {
        let mut expired = 0;
        while expired < most && self.remove_first(now)?.is_some() {
            expired += 1;
        }
        Ok(expired)
    }

    /// Removes the entry that expires first, unless it expires after `last`. Returns its expiry.
    fn remove_first(&mut self, last: u64) -> Result<Option<u64>, Error> {
        let Some((expires, key)) = first(&self.by_expiry)?.filter(|(expires, _)| *expires <= last) else {
            return Ok(None);
        };
        if !self.remove(&key)? {
            self.by_expiry.remove((expires, &key.0))?;
        }
        Ok(Some(expires))
    }
}

impl View<'_> {
    /// The entries with these keys that are stored and have not expired.
    pub(super) fn get(&self, keys: &[SessionKey], now: u64) -> Result<Vec<Entry>, Error> {
        let (sessions, mut found) = (self.0.open_table(SESSIONS)?, Vec::new());
        for key in keys {
            let Some(session) = sessions.get(&key.0)? else { continue };
            let (expires, value) = session.value();
            if now < expires {
                found.push(Entry { key: *key, value: value.to_vec(), expires });
            }
        }
        Ok(found)
    }

    pub(super) fn has_expired(&self, now: u64) -> Result<bool, Error> {
        Ok(first(&self.0.open_table(BY_EXPIRY)?)?.is_some_and(|(expires, _)| expires <= now))
    }

    pub(super) fn usage(&self) -> Result<Usage, Error> {
        let bytes = number(&self.0.open_table(NUMBERS)?, BYTES)?.unwrap_or(0);
        Ok(Usage { entries: self.0.open_table(SESSIONS)?.len()?, bytes })
    }

    /// The correct result of [`Self::usage`], from a count of all entries. `None` if the tables contradict each other.
    #[cfg(test)]
    pub(super) fn recount(&self) -> Result<Option<Usage>, Error> {
        let (mut usage, mut times) = (Usage::default(), Vec::new());
        for session in self.0.open_table(SESSIONS)?.iter()? {
            let (key, session) = session?;
            let (expires, bytes) = stored(session.value());
            usage.entries += 1;
            usage.bytes += bytes;
            times.push((expires, *key.value()));
        }
        times.sort_unstable();
        let mut known = Vec::new();
        for time in self.0.open_table(BY_EXPIRY)?.iter()? {
            let (expires, key) = owned(time?.0.value());
            known.push((expires, key.0));
        }
        Ok((known == times).then_some(usage))
    }
}

/// Writes the format number of new tables.
pub(super) fn begin(tables: &mut Tables<'_>) -> Result<(), Error> {
    tables.numbers.insert(FORMAT_NAME, FORMAT)?;
    Ok(())
}

/// The expiry and the key of the entry that expires first.
fn first(by_expiry: &impl ReadableTable<(u64, Key), ()>) -> Result<Option<(u64, SessionKey)>, Error> {
    Ok(by_expiry.first()?.map(|(time, _)| owned(time.value())))
}

fn owned((expires, key): (u64, &[u8; 32])) -> (u64, SessionKey) {
    (expires, SessionKey(*key))
}

/// The expiry and the size of a stored session.
fn stored((expires, value): (u64, &[u8])) -> (u64, u64) {
    (expires, bytes_of(value))
}

fn bytes_of(value: &[u8]) -> u64 {
    value.len() as u64 + OVERHEAD
}

fn number(numbers: &impl ReadableTable<&'static str, u64>, name: &str) -> Result<Option<u64>, Error> {
    Ok(numbers.get(name)?.map(|number| number.value()))
}

const SESSIONS: TableDefinition<'_, Key, Session> = TableDefinition::new("sessions");
const BY_EXPIRY: TableDefinition<'_, (u64, Key), ()> = TableDefinition::new("by_expiry");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const BYTES: &str = "bytes";
const FORMAT_NAME: &str = "format";
