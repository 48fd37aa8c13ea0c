//! Entries in memory.

use crate::support::{Opened, directory, entry, key, version};

const MEMORY: usize = 8 << 20;

#[tokio::test]
async fn memory_is_bounded() {
    let opened = Opened::in_memory(MEMORY).await;
    for number in 0..20_000 {
        opened.store.insert(key(number), entry(number, 1, (number % 3000) as usize));
        let usage = opened.store.usage();
        assert!(usage.memory_bytes <= MEMORY as u64, "{usage:?}");
    }
    let usage = opened.store.usage();
    assert!(usage.memory_bytes > MEMORY as u64 * 9 / 10, "{usage:?}");
    assert_eq!(opened.metric("memory_bytes"), usage.memory_bytes);
    assert_eq!(opened.metric("memory_evictions"), 20_000 - usage.memory_entries);
}

#[tokio::test]
async fn a_scan_does_not_evict_entries_that_are_used_often() {
    let opened = Opened::in_memory(MEMORY).await;
    let often = 0..200_u64;
    for number in often.clone() {
        opened.store.insert(key(number), entry(number, 1, 10_000));
    }
    // All entries of the scan take 25 times the memory.
    for scanned in 1000..21_000 {
        opened.store.insert(key(scanned), entry(scanned, 1, 10_000));
        opened.store.get_now(&key(scanned % 200));
    }
    let found = often.filter(|number| opened.store.get_now(&key(*number)).is_some()).count();
    assert!(found >= 198, "{found}");
}

#[tokio::test]
async fn an_entry_larger_than_memory_evicts_nothing() {
    let opened = Opened::in_memory(MEMORY).await;
    for number in 0..100 {
        opened.store.insert(key(number), entry(number, 1, 1000));
    }
    opened.store.insert(key(1000), entry(1000, 1, MEMORY));
    assert!(opened.store.get_now(&key(1000)).is_none());
    assert_eq!(opened.store.usage().memory_entries, 100);
    // An earlier entry of the key does not stay.
    opened.store.insert(key(7), entry(7, 2, MEMORY));
    assert!(opened.store.get_now(&key(7)).is_none());
}

#[tokio::test]
async fn the_last_entry_counts() {
    let directory = directory();
    for opened in [Opened::in_memory(MEMORY).await, Opened::new(MEMORY, directory.path()).await] {
        assert!(opened.store.get(&key(1)).await.is_none());
        opened.store.insert(key(1), entry(1, 1, 100));
        opened.store.insert(key(1), entry(1, 2, 100));
        opened.store.insert(key(2), entry(2, 1, 100));
        assert_eq!(version(1, &opened.store.get_now(&key(1)).unwrap()), 2);
        assert_eq!(version(1, &opened.store.get(&key(1)).await.unwrap()), 2);
        opened.store.remove(&key(1));
        assert!(opened.store.get_now(&key(1)).is_none());
        assert!(opened.store.get(&key(1)).await.is_none());
        assert_eq!(version(2, &opened.store.get(&key(2)).await.unwrap()), 1);
    }
}
