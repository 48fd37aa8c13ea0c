//! Measurements:
//! `cargo test --release -p watari-cache-store --test store -- --ignored --nocapture --test-threads 1 measure`

use std::env;
use std::fs;
use std::hint::black_box;
use std::thread;
use std::time::Instant;

use crate::support::{NO_MEMORY, Opened, directory, entry, key};

const MILLION: u64 = 1_000_000;

/// The time of a hit in memory.
#[tokio::test]
#[ignore = "a measurement"]
async fn measure_hits() {
    const ENTRIES: u64 = 10_000;
    let opened = Opened::in_memory(256 << 20).await;
    for number in 0..ENTRIES {
        opened.store.insert(key(number), entry(number, 1, 1024));
    }
    let keys: Vec<_> = (0..ENTRIES).map(key).collect();
    for threads in [1, 2, 4] {
        let start = Instant::now();
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for key in (0..MILLION).map(|number| &keys[(number * 7919 % ENTRIES) as usize]) {
                        assert!(black_box(opened.store.get_now(key)).is_some());
                    }
                });
            }
        });
        println!("{threads} threads: {:.1} ns for a hit", start.elapsed().as_nanos() as f64 / MILLION as f64);
    }
}

/// The memory that entries really take, and their weight.
#[tokio::test]
#[ignore = "a measurement"]
async fn measure_overhead() {
    const ENTRIES: u64 = 100_000;
    // Memory of a store that has ended would be used again.
    let mut stores = Vec::new();
    for len in [0, 100, 1000] {
        let before = resident();
        let opened = Opened::in_memory(1 << 30).await;
        for number in 0..ENTRIES {
            opened.store.insert(key(number), entry(number, 1, len));
        }
        let (taken, counted) = ((resident() - before) / ENTRIES, opened.store.usage().memory_bytes / ENTRIES);
        println!("content of {len} bytes: {taken} bytes for each entry, counted {counted}");
        assert_eq!(opened.store.usage().memory_entries, ENTRIES);
        stores.push(opened);
    }
}

/// The time of a start with entries on the disk, and the memory that they take. `CACHE_MILLIONS` is their number, 1 unless
/// it is set. Needs 5 GiB for each million, in the directory for temporary files.
#[tokio::test]
#[ignore = "a measurement"]
async fn measure_start() {
    let millions =
        env::var("CACHE_MILLIONS").map_or(1, |millions| millions.parse().expect("CACHE_MILLIONS is a number"));
    let (entries, disk) = (millions * MILLION, millions * (5 << 30));
    let directory = directory();
    let start = Instant::now();
    let opened = Opened::with(NO_MEMORY, directory.path(), disk).await.unwrap();
    for number in 0..entries {
        opened.store.insert(key(number), entry(number, 1, 500));
        if number % 1000 == 0 {
            opened.flushed().await;
        }
    }
    opened.store.close().await;
    println!("written in {:.1} s, {} dropped", start.elapsed().as_secs_f64(), opened.metric("disk_writes_dropped"));
    drop(opened);
    let before = resident();
    let start = Instant::now();
    let opened = Opened::with(NO_MEMORY, directory.path(), disk).await.unwrap();
    let took = start.elapsed().as_secs_f64();
    let taken = resident() - before;
    let sample = (0..entries).step_by(entries as usize / 1000);
    let found = opened.versions(sample).await.into_iter().flatten().count();
    println!("{entries} entries, {found} of 1000 found: open in {took:.2} s, {} bytes of memory each", taken / entries);
    println!("at once, {} in all", resident() / entries);
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
