//! Damaged files: entries are missing, or are what was written.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::{NO_MEMORY, Opened, directory, entry, key};

const ENTRIES: u64 = 300;

/// Stores for each damage.
const STORES: u64 = 5;

/// Damages a block. Its entries are at the beginning.
type Damage = fn(&Path, &mut StdRng);

#[tokio::test]
async fn damaged_files_are_misses() {
    let kinds: [(&str, Damage); 6] = [
        ("truncated", |block, random| {
            let len = random.random_range(0..900_000);
            File::options().write(true).open(block).unwrap().set_len(len).unwrap();
        }),
        ("deleted", |block, _| fs::remove_file(block).unwrap()),
        ("zeroed", |block, random| overwrite(block, random, |_| 0)),
        ("random", |block, random| {
            let mut noise = StdRng::seed_from_u64(random.random());
            overwrite(block, random, |_| noise.random());
        }),
        ("one bit", |block, random| {
            for _ in 0..20 {
                let (at, bit) = (random.random_range(0..900_000), 1 << random.random_range(0..8));
                change(block, at, 1, |byte| byte ^ bit);
            }
        }),
        ("moved pages", |block, random| {
            let file = File::options().read(true).write(true).open(block).unwrap();
            for _ in 0..20 {
                let mut page = [0; 4096];
                file.read_exact_at(&mut page, random.random_range(0..220) * 4096).unwrap();
                file.write_all_at(&page, random.random_range(0..220) * 4096).unwrap();
            }
        }),
    ];
    for (seed, (name, damage)) in (0..).zip(kinds) {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut found, mut damaged) = (0, 0);
        for _ in 0..STORES {
            let (store_found, store_damaged) = after(damage, &mut random).await;
            found += store_found;
            damaged += store_damaged;
        }
        println!("{name}: {found} of {} entries found, {damaged} noticed", STORES * ENTRIES);
        assert!(found < STORES * ENTRIES, "{name} damages nothing");
        assert!(found > 0 || name == "deleted", "{name}");
    }
}

/// Damages that happen while the store is open.
#[tokio::test]
async fn damage_of_an_open_store_is_counted() {
    let directory = directory();
    let opened = filled(directory.path()).await;
    for block in blocks(directory.path()) {
        change(&block, 4096, 700_000, |byte| !byte);
    }
    let found = opened.versions(0..ENTRIES).await.into_iter().flatten().count() as u64;
    assert!(found < ENTRIES);
    assert_eq!(opened.metric("disk_entries_damaged"), ENTRIES - found);
    for block in blocks(directory.path()) {
        File::options().write(true).open(block).unwrap().set_len(0).unwrap();
    }
    assert_eq!(opened.versions(0..ENTRIES).await.into_iter().flatten().count(), 0);
    assert_eq!(opened.metric("disk_reads_failed"), found);
    // It goes on.
    opened.store.insert(key(1), entry(1, 2, 100));
    opened.flushed().await;
    assert_eq!(opened.versions(1..2).await, [Some(2)]);
}

/// The entries that a store has after the damage, and those that it counts as damaged.
async fn after(damage: Damage, random: &mut StdRng) -> (u64, u64) {
    let directory = directory();
    filled(directory.path()).await.store.close().await;
    for block in blocks(directory.path()).into_iter().filter(|block| has_entries(block)) {
        damage(&block, random);
    }
    let opened = Opened::new(NO_MEMORY, directory.path()).await;
    let found = opened.versions(0..ENTRIES).await.into_iter().flatten().count() as u64;
    let damaged = opened.metric("disk_entries_damaged") + opened.metric("disk_reads_failed");
    opened.store.insert(key(1), entry(1, 2, 100));
    opened.flushed().await;
    assert_eq!(opened.versions(1..2).await, [Some(2)]);
    (found, damaged)
}

async fn filled(directory: &Path) -> Opened {
    let opened = Opened::new(NO_MEMORY, directory).await;
    for number in 0..ENTRIES {
        opened.store.insert(key(number), entry(number, 1, (number * 50) as usize));
        if number % 50 == 0 {
            opened.flushed().await;
        }
    }
    opened.flushed().await;
    opened
}

fn blocks(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let mut blocks: Vec<_> = paths.filter(|path| path.to_str().unwrap().contains("foyer-storage")).collect();
    blocks.sort();
    blocks
}

fn has_entries(block: &Path) -> bool {
    fs::read(block).unwrap().iter().any(|byte| *byte != 0)
}

fn overwrite(block: &Path, random: &mut StdRng, byte: impl FnMut(u8) -> u8) {
    let at = random.random_range(0..900_000);
    change(block, at, random.random_range(1..100_000), byte);
}

fn change(block: &Path, at: u64, len: usize, byte: impl FnMut(u8) -> u8) {
    let file = File::options().read(true).write(true).open(block).unwrap();
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, at).unwrap();
    let bytes: Vec<u8> = bytes.into_iter().map(byte).collect();
    file.write_all_at(&bytes, at).unwrap();
}
