//! Hashes of keys. A key is a digest, so its bytes are as good as any hash of them.

use std::hash::{BuildHasher, Hasher};

use watari_cache::Key;

/// The number of locks and counters that keys share.
pub(crate) const STRIPES: usize = 64;

/// The lock of a key.
pub(crate) fn stripe(key: &Key) -> usize {
    usize::from(key.0[15]) % STRIPES
}

/// The same in every process, because hashes are stored on the disk.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KeyHashing;

/// Takes the first 8 bytes.
#[derive(Debug, Default)]
pub(crate) struct KeyHasher(u64);

impl BuildHasher for KeyHashing {
    type Hasher = KeyHasher;

    fn build_hasher(&self) -> KeyHasher {
        KeyHasher::default()
    }
}

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    /// The length of a key, which precedes it.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_the_beginning_of_the_key() {
        let hash = KeyHashing.hash_one(Key(*b"\x01\0\0\0\0\0\0\0another."));
        assert_eq!(hash, 1);
    }
}
