//! The directory of a store.
//!
//! ```text
//!  watari-cache                       the version and the block size; locked by the store
//!  foyer-storage-direct-fs-00000000   a block
//!  ...
//! ```
//!
//! All blocks are allocated when the store opens. So a disk that fills up later does not fail its writes.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use tokio::task::spawn_blocking;
use tracing::warn;

use crate::disk::DISK_BYTES_MIN;
use crate::{DiskConfig, OpenError};

/// The directory, which belongs to this store.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Its lock ends with it.
    version: File,
    blocks: u32,
    block_len: u64,
    /// Whether entries of another form were deleted.
    is_replaced: bool,
}

impl Directory {
    /// Takes the directory, in a thread for blocking calls. If the entries there have another form, deletes them.
    pub(super) async fn take_elsewhere(config: DiskConfig) -> Result<Self, OpenError> {
        let taken = spawn_blocking(move || Self::take(&config)).await.expect("it does not panic")?;
        if taken.is_replaced {
            warn!("the cache in {} is of another version or size, and starts empty", taken.path.display());
        }
        Ok(taken)
    }

    /// Deletes all entries, and makes room for new ones.
    pub(super) async fn clear_elsewhere(mut self) -> Result<Self, (Self, OpenError)> {
        let clear = move || match self.clear() {
            Ok(()) => Ok(self),
            Err(cause) => {
                let error = OpenError::Directory { directory: self.path.clone(), cause };
                Err((self, error))
            }
        };
        spawn_blocking(clear).await.expect("it does not panic")
    }

    fn take(config: &DiskConfig) -> Result<Self, OpenError> {
        let path = config.directory.clone();
        if config.bytes_max < DISK_BYTES_MIN {
            return Err(OpenError::TooSmall { directory: path, bytes_max: config.bytes_max });
        }
        let unusable = |cause| OpenError::Directory { directory: path.clone(), cause };
        fs::create_dir_all(&path).map_err(unusable)?;
        let options = File::options().read(true).write(true).create(true).truncate(false).open(path.join(VERSION_NAME));
        let version = options.map_err(unusable)?;
        match version.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse { directory: path }),
            Err(TryLockError::Error(cause)) => return Err(unusable(cause)),
        }
        let block_len = block_len(config.bytes_max);
        let blocks = u32::try_from(config.bytes_max / block_len).unwrap_or(u32::MAX);
        let mut directory = Self { path: path.clone(), version, blocks, block_len, is_replaced: false };
        directory.check_version().and_then(|()| directory.allocate()).map_err(unusable)?;
        Ok(directory)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.version.set_len(0)?;
        self.delete_blocks(0)?;
        if let Err(cause) = self.allocate() {
            self.delete_blocks(0)?;
            return Err(cause);
        }
        self.version.rewind()?;
        self.version.write_all(self.wanted_version().as_bytes())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn block_len(&self) -> usize {
        self.block_len as usize
    }

    /// The size of all blocks, in bytes.
    pub(super) fn len(&self) -> u64 {
        self.block_len * u64::from(self.blocks)
    }

    /// When each block was written.
    pub(super) fn times(&self) -> io::Result<Vec<SystemTime>> {
        (0..self.blocks).map(|block| fs::metadata(self.block(block))?.modified()).collect()
    }

    /// Frees the block that was written first, if all blocks have entries: foyer 0.22 would wait for a free one without
    /// end. A killed process can leave such files.
    pub(super) fn free_one(&self, times: &[SystemTime]) -> io::Result<()> {
        let mut page = [0; PAGE_LEN];
        for block in 0..self.blocks {
            File::open(self.block(block))?.read_exact_at(&mut page, 0)?;
            if page == [0; PAGE_LEN] {
                return Ok(());
            }
        }
        let Some((_, oldest)) = times.iter().zip(0..).min() else { return Ok(()) };
        File::options().write(true).open(self.block(oldest))?.write_all_at(&[0; PAGE_LEN], 0)
    }

    /// Sets when each block was written. Foyer changes the times when it opens the files.
    pub(super) fn set_times(&self, times: &[SystemTime]) -> io::Result<()> {
        for (block, time) in (0..).zip(times) {
            File::options().write(true).open(self.block(block))?.set_modified(*time)?;
        }
        Ok(())
    }

    fn check_version(&mut self) -> io::Result<()> {
        let mut found = Vec::new();
        Read::by_ref(&mut self.version).take(VERSION_LEN_MAX).read_to_end(&mut found)?;
        if found == self.wanted_version().as_bytes() {
            return self.delete_blocks(self.blocks);
        }
        self.is_replaced = !found.is_empty() || self.block_paths()?.next().is_some();
        self.clear()
    }

    fn wanted_version(&self) -> String {
        format!("watari cache 1, foyer 0.22, blocks of {} bytes\n", self.block_len)
    }

    /// Deletes the blocks from this number on.
    fn delete_blocks(&self, first: u32) -> io::Result<()> {
        for (number, path) in self.block_paths()? {
            if number >= first {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn block_paths(&self) -> io::Result<impl Iterator<Item = (u32, PathBuf)>> {
        Ok(fs::read_dir(&self.path)?.flatten().filter_map(|file| {
            let number = file.file_name().to_str()?.strip_prefix(BLOCK_PREFIX)?.parse().ok()?;
            Some((number, file.path()))
        }))
    }

    fn allocate(&self) -> io::Result<()> {
        for block in 0..self.blocks {
            let file = File::options().write(true).create(true).truncate(false).open(self.block(block))?;
            let written = file.metadata()?.modified()?;
            match fallocate(&file, FallocateFlags::empty(), 0, self.block_len) {
                // Not every file system can. Then a full disk fails later writes.
                Ok(()) | Err(Errno::OPNOTSUPP) => {}
                Err(cause) => return Err(cause.into()),
            }
            file.set_modified(written)?;
        }
        Ok(())
    }

    fn block(&self, number: u32) -> PathBuf {
        self.path.join(format!("{BLOCK_PREFIX}{number:08}"))
    }
}

/// A power of two, so that most changes of the size keep the entries. Each block is an open file.
fn block_len(bytes_max: u64) -> u64 {
    (bytes_max / 256).clamp(BLOCK_LEN_MIN, BLOCK_LEN_MAX).next_power_of_two()
}

const VERSION_NAME: &str = "watari-cache";
const VERSION_LEN_MAX: u64 = 256;

/// Foyer's name for its files.
const BLOCK_PREFIX: &str = "foyer-storage-direct-fs-";

/// The length of foyer's index at the beginning of a block, in bytes. In a free block, it is zero.
const PAGE_LEN: usize = 4096;

const BLOCK_LEN_MIN: u64 = 1 << 20;
const BLOCK_LEN_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_hundreds_of_blocks() {
        for (bytes_max, wanted) in
            [(DISK_BYTES_MIN, 1 << 20), (1 << 30, 4 << 20), (100 << 30, 512 << 20), (1 << 40, 1 << 30)]
        {
            assert_eq!(block_len(bytes_max), wanted, "{bytes_max}");
        }
    }
}
