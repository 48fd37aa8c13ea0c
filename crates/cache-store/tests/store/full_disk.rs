//! A full disk, and one that cannot be written.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate};
use watari_cache_store::{DISK_BYTES_MIN, OpenError};
use watari_test_origins::namespace::is_inside;

use crate::support::{Opened, directory, entry, key, until, version};

/// Memory for a few entries.
const MEMORY: usize = 1 << 20;

#[tokio::test]
async fn the_store_goes_on_in_memory_while_its_disk_is_full() {
    if !is_inside("full_disk::the_store_goes_on_in_memory_while_its_disk_is_full") {
        return;
    }
    let directory = directory();
    mount(directory.path(), "size=40m");
    let opened = Opened::new(MEMORY, directory.path()).await;
    opened.store.insert(key(1), entry(1, 1, 1000));
    opened.flushed().await;
    // The blocks are allocated, so a full disk alone is harmless.
    fill(directory.path());
    opened.store.insert(key(2), entry(2, 1, 1000));
    opened.flushed().await;
    assert_eq!(opened.metric("disk_writes_failed"), 0);
    fs::remove_file(directory.path().join("ballast")).unwrap();
    for file in fs::read_dir(directory.path()).unwrap() {
        let file = File::options().write(true).open(file.unwrap().path()).unwrap();
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    }
    fill(directory.path());
    let mut number = 10;
    until("the disk is off", || {
        number += 1;
        opened.store.insert(key(number), entry(number, 1, 1000));
        assert_eq!(version(number, &opened.store.get_now(&key(number)).unwrap()), 1);
        !opened.store.usage().disk.unwrap().is_working
    })
    .await;
    assert!(opened.metric("disk_writes_failed") > 0);
    let dropped = opened.metric("disk_writes_dropped");
    for number in 10_000..12_000 {
        opened.store.insert(key(number), entry(number, 2, 1000));
        assert_eq!(version(number, &opened.store.get(&key(number)).await.unwrap()), 2);
        opened.store.remove(&key(number));
        assert!(opened.store.get(&key(number)).await.is_none());
    }
    assert_eq!(opened.metric("disk_writes_dropped"), dropped + 2000);
    fs::remove_file(directory.path().join("ballast")).unwrap();
    until("the disk works again", || opened.store.usage().disk.unwrap().is_working).await;
    assert_eq!(opened.versions(1..2).await, [Some(1)], "it is in memory");
    opened.store.insert(key(3), entry(3, 1, 1000));
    opened.store.close().await;
    let again = Opened::new(MEMORY, directory.path()).await;
    assert_eq!(again.versions(3..4).await, [Some(1)]);
}

#[tokio::test]
async fn a_full_or_read_only_disk_is_an_error_at_the_start() {
    if !is_inside("full_disk::a_full_or_read_only_disk_is_an_error_at_the_start") {
        return;
    }
    for (options, wanted) in [("size=12m", ErrorKind::StorageFull), ("ro", ErrorKind::ReadOnlyFilesystem)] {
        let directory = directory();
        mount(directory.path(), options);
        let error = Opened::with(MEMORY, directory.path(), DISK_BYTES_MIN).await.err().unwrap();
        assert!(error.to_string().contains(directory.path().to_str().unwrap()), "{error}");
        let OpenError::Directory { cause, .. } = error else { panic!("{error}") };
        assert_eq!(cause.kind(), wanted);
        let left: u64 =
            fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert!(left < 1000, "{left} bytes are left");
    }
}

fn mount(path: &Path, options: &str) {
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(path).status().unwrap();
    assert!(mounted.success());
}

fn fill(path: &Path) {
    let mut ballast = File::create(path.join("ballast")).unwrap();
    let error = loop {
        if let Err(error) = ballast.write_all(&[0; 4096]) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull);
}
