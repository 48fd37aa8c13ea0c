//! A disk in memory.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redb::StorageBackend;
use redb::backends::InMemoryBackend;

use super::*;

/// The state of a disk, and its controls.
#[derive(Debug, Default)]
pub(crate) struct Control {
    is_full: AtomicBool,
    len_max: AtomicU64,
}

impl Control {
    /// From now on, all writes fail.
    pub(crate) fn fill(&self) {
        self.is_full.store(true, Ordering::Relaxed);
    }

    /// The maximum length that the file has had, in bytes.
    pub(crate) fn len_max(&self) -> u64 {
        self.len_max.load(Ordering::Relaxed)
    }
}

/// A database in memory.
pub(crate) fn in_memory(bytes_max: u64) -> (Database, Arc<Control>) {
    let control = Arc::<Control>::default();
    let disk = Disk { memory: InMemoryBackend::new(), control: Arc::clone(&control) };
    let file = redb::Builder::new().create_with_backend(disk).unwrap();
    (Database::on(file, Path::new("memory"), bytes_max).unwrap(), control)
}

#[derive(Debug)]
struct Disk {
    memory: InMemoryBackend,
    control: Arc<Control>,
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.memory.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.memory.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.control.len_max.fetch_max(len, Ordering::Relaxed);
        self.memory.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.control.is_full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.memory.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.memory.write(offset, data)
    }
}
