//! Entries on a disk.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use tracing_subscriber::fmt::MakeWriter;
use watari_cache_store::{DISK_BYTES_MIN, OpenError};

use crate::support::{NO_MEMORY, Opened, directory, entry, key, until, version};

const MEMORY: usize = 8 << 20;

#[tokio::test]
async fn entries_survive_close_and_open() {
    let directory = directory();
    let opened = Opened::new(MEMORY, directory.path()).await;
    for number in 0..500 {
        opened.store.insert(key(number), entry(number, number, number as usize * 10));
    }
    opened.store.close().await;
    opened.store.insert(key(0), entry(0, 1000, 10));
    let again = Opened::new(MEMORY, directory.path()).await;
    assert_eq!(again.store.usage().memory_entries, 0);
    assert_eq!(again.versions(0..500).await, (0..500).map(Some).collect::<Vec<_>>());
    assert_eq!(again.store.usage().memory_entries, 500, "read entries are in memory");
    assert_eq!(again.metric("disk_entries_damaged"), 0);
}

/// Also if the earlier entry is only on the disk.
#[tokio::test]
async fn an_entry_of_another_store_does_not_replace_one() {
    let directory = directory();
    let opened = Opened::new(MEMORY, directory.path()).await;
    opened.store.insert(key(1), entry(1, 1, 100));
    opened.store.close().await;
    let again = Opened::new(MEMORY, directory.path()).await;
    assert!(!again.store.insert_if_absent(key(1), entry(1, 2, 100)));
    assert!(again.store.insert_if_absent(key(2), entry(2, 3, 100)));
    assert!(!again.store.insert_if_absent(key(2), entry(2, 4, 100)));
    assert_eq!(again.versions(1..3).await, [Some(1), Some(3)]);
    again.store.close().await;
    let third = Opened::new(MEMORY, directory.path()).await;
    assert_eq!(third.versions(1..3).await, [Some(1), Some(3)]);
}

#[tokio::test]
async fn entries_survive_without_close() {
    let directory = directory();
    let opened = Opened::new(MEMORY, directory.path()).await;
    opened.store.insert(key(1), entry(1, 1, 10_000));
    opened.flushed().await;
    drop(opened);
    // The lock ends with the supervisor's task.
    let mut again = None;
    while again.is_none() {
        again = Opened::with(MEMORY, directory.path(), DISK_BYTES_MIN).await.ok();
    }
    assert_eq!(again.unwrap().versions(1..2).await, [Some(1)]);
}

#[tokio::test]
async fn an_earlier_entry_does_not_come_back() {
    let directory = directory();
    let opened = Opened::new(NO_MEMORY, directory.path()).await;
    for number in 0..4 {
        opened.store.insert(key(number), entry(number, 1, 100));
    }
    opened.flushed().await;
    assert_eq!(opened.versions(0..4).await, [Some(1); 4]);
    opened.store.insert(key(1), entry(1, 2, 100));
    opened.store.remove(&key(2));
    // Longer than a block: it is not written.
    opened.store.insert(key(3), entry(3, 2, 2 << 20));
    assert_eq!(opened.metric("disk_writes_dropped"), 1);
    let wanted = [Some(1), Some(2), None, None];
    assert_eq!(opened.versions(0..4).await, wanted);
    opened.flushed().await;
    assert_eq!(opened.versions(0..4).await, wanted);
    opened.store.close().await;
    let again = Opened::new(NO_MEMORY, directory.path()).await;
    assert_eq!(again.versions(0..3).await, wanted[..3]);
    // An entry after a removal.
    again.store.insert(key(2), entry(2, 3, 100));
    again.store.close().await;
    assert_eq!(Opened::new(NO_MEMORY, directory.path()).await.versions(2..3).await, [Some(3)]);
}

#[tokio::test]
async fn the_oldest_entries_are_overwritten_also_after_a_restart() {
    let directory = directory();
    for round in 0..8 {
        let opened = Opened::new(NO_MEMORY, directory.path()).await;
        for number in round * 100..(round + 1) * 100 {
            opened.store.insert(key(number), entry(number, 1, 30_000));
            if number % 25 == 0 {
                opened.flushed().await;
            }
        }
        opened.store.close().await;
        assert_eq!(opened.metric("disk_writes_failed"), 0);
    }
    // 800 entries of 32 KiB in 16 blocks of 1 MiB.
    let versions = Opened::new(NO_MEMORY, directory.path()).await.versions(0..800).await;
    let first = versions.iter().position(Option::is_some).unwrap();
    assert!((300..450).contains(&first), "{first}");
    assert!(versions[first..].iter().all(Option::is_some), "{versions:?}");
}

/// A killed process can leave no free block.
#[tokio::test]
async fn a_store_without_a_free_block_goes_on() {
    let directory = directory();
    let opened = Opened::new(NO_MEMORY, directory.path()).await;
    for number in 0..500 {
        opened.store.insert(key(number), entry(number, 1, 30_000));
        if number % 25 == 0 {
            opened.flushed().await;
        }
    }
    opened.store.close().await;
    // Each free block gets the first page of another one.
    let block = |number: u32| directory.path().join(format!("foyer-storage-direct-fs-{number:08}"));
    let first = |number| fs::read(block(number)).unwrap()[..4096].to_vec();
    let written = (0..16).map(first).find(|page| page.iter().any(|byte| *byte != 0)).unwrap();
    let mut freed = 0;
    for number in (0..16).filter(|number| first(*number).iter().all(|byte| *byte == 0)) {
        freed += 1;
        fs::File::options().write(true).open(block(number)).unwrap().write_all_at(&written, 0).unwrap();
    }
    assert!(freed > 0);
    let opened = Opened::new(NO_MEMORY, directory.path()).await;
    opened.store.insert(key(1), entry(1, 2, 100));
    opened.flushed().await;
    assert_eq!(opened.versions(1..2).await, [Some(2)]);
}

#[tokio::test]
async fn entries_of_memory_that_the_disk_has_overwritten_are_written_at_the_end() {
    let directory = directory();
    let opened = Opened::new(MEMORY, directory.path()).await;
    for number in 0..10 {
        opened.store.insert(key(number), entry(number, 1, 1000));
    }
    for number in 100..1100 {
        for often in 0..10 {
            assert!(opened.store.get_now(&key(often)).is_some());
        }
        opened.store.insert(key(number), entry(number, 1, 30_000));
        opened.flushed().await;
    }
    opened.store.close().await;
    let again = Opened::new(NO_MEMORY, directory.path()).await;
    assert_eq!(again.versions(0..10).await, [Some(1); 10]);
}

#[tokio::test]
async fn concurrent_reads_and_writes_agree() {
    let directory = directory();
    let opened = Arc::new(Opened::new(NO_MEMORY, directory.path()).await);
    opened.store.insert(key(1), entry(1, 0, 1000));
    let tasks = (0..8).map(|_| {
        let opened = opened.clone();
        tokio::spawn(async move {
            let mut last = 0;
            for _ in 0..300 {
                let found = opened.store.get(&key(1)).await.map_or(last, |entry| version(1, &entry));
                assert!(found >= last, "{found} after {last}");
                last = found;
                tokio::task::yield_now().await;
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    for number in 1..300 {
        opened.store.insert(key(1), entry(1, number, 1000));
        tokio::task::yield_now().await;
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn the_queue_is_bounded() {
    let directory = directory();
    let opened = Opened::new(NO_MEMORY, directory.path()).await;
    let long = entry(0, 1, 250_000);
    // 500 MB, as fast as possible.
    for number in 0..2000 {
        opened.store.insert(key(number), long.clone());
        assert!(opened.store.usage().disk.unwrap().queued_bytes <= 2 << 20);
    }
    assert!(opened.metric("disk_writes_dropped") > 0);
    assert_eq!(opened.metric("disk_writes_failed"), 0);
}

#[tokio::test]
async fn a_directory_has_one_store() {
    let directory = directory();
    let opened = Opened::new(MEMORY, directory.path()).await;
    let second = Opened::with(MEMORY, directory.path(), DISK_BYTES_MIN).await;
    assert!(matches!(second.err(), Some(OpenError::InUse { directory: named }) if named == directory.path()));
    opened.store.close().await;
    Opened::new(MEMORY, directory.path()).await;
}

#[tokio::test]
async fn an_unusable_directory_is_an_error() {
    let directory = directory();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    for unusable in [file.clone(), file.join("below")] {
        let error = Opened::with(MEMORY, &unusable, DISK_BYTES_MIN).await.err().unwrap();
        assert!(error.to_string().contains(unusable.to_str().unwrap()), "{error}");
    }
    let small = Opened::with(MEMORY, directory.path(), DISK_BYTES_MIN - 1).await;
    assert!(matches!(small.err(), Some(OpenError::TooSmall { .. })));
}

#[tokio::test(flavor = "current_thread")]
async fn files_of_others_and_of_other_versions_do_not_matter() {
    let directory = directory();
    let logged = Logged::default();
    let subscriber = tracing_subscriber::fmt().with_writer(logged.clone()).with_ansi(false).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    fs::write(directory.path().join("other"), "other").unwrap();
    fs::write(directory.path().join("foyer-storage-direct-fs-00000003"), vec![7; 5000]).unwrap();
    fs::write(directory.path().join("foyer-storage-direct-fs-00000300"), vec![7; 5000]).unwrap();
    for round in 1..=3 {
        let opened = Opened::new(MEMORY, directory.path()).await;
        assert_eq!(opened.versions(1..2).await, [None]);
        opened.store.insert(key(1), entry(1, 1, 100));
        opened.store.close().await;
        let text = logged.text();
        assert_eq!(text.matches("starts empty").count(), round, "{text}");
        fs::write(directory.path().join("watari-cache"), "watari cache 0\n").unwrap();
    }
    assert_eq!(fs::read_to_string(directory.path().join("other")).unwrap(), "other");
    assert!(!directory.path().join("foyer-storage-direct-fs-00000300").exists());
    // Another size.
    let opened = Opened::with(MEMORY, directory.path(), 600 << 20).await.unwrap();
    assert!(logged.text().contains(directory.path().to_str().unwrap()));
    // No line for each entry.
    let before = logged.text().lines().count();
    for number in 0..300 {
        opened.store.insert(key(number), entry(number, 1, 100));
        opened.store.remove(&key(number));
        opened.store.get(&key(number)).await;
    }
    until("the queue is empty", || opened.store.usage().disk.unwrap().queued_bytes == 0).await;
    assert_eq!(logged.text().lines().count(), before, "{}", logged.text());
}

#[derive(Debug, Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl Logged {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl std::io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Logged {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
