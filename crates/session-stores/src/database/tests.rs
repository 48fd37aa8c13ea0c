#![allow(clippy::unwrap_used)]

mod crash;
mod disk;
mod model;
mod opening;
mod size;

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use watari_values::SessionKey;

pub(crate) use disk::in_memory;

use super::tables::View;
use super::{Database, DatabaseError, Usage};
use crate::Entry;

/// A directory, and the path of a database in it.
fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sessions.redb");
    (dir, path)
}

fn open(path: &Path, bytes_max: u64) -> Database {
    Database::open(path, bytes_max).unwrap()
}

fn key(number: u64) -> SessionKey {
    let mut key = [0; 32];
    // Spread evenly, as digests are.
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key[8..16].copy_from_slice(&number.to_be_bytes());
    SessionKey(key)
}

fn entry(number: u64, len: usize, expires: u64) -> Entry {
    Entry { key: key(number), value: vec![number.to_le_bytes()[0]; len], expires }
}

/// Blocks all writes until this is dropped.
pub(crate) fn hold(database: &Database) -> redb::WriteTransaction {
    database.file.read().unwrap().as_ref().unwrap().begin_write().unwrap()
}

/// The usage that the database reports, after a check by a count of all entries.
fn usage(database: &Database) -> Usage {
    let usage = database.usage().unwrap();
    assert_eq!(database.read(|transaction| View(transaction).recount()).unwrap(), Some(usage));
    usage
}
