#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::database::tests::{hold, in_memory};

fn entry(number: u8, expires: u64) -> Entry {
    Entry { key: key(number), value: vec![number; 100], expires }
}

fn key(number: u8) -> SessionKey {
    SessionKey([number; 32])
}

fn database() -> (tempfile::TempDir, Database) {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(&dir.path().join("sessions.redb"), 1 << 20).unwrap();
    (dir, database)
}

#[tokio::test]
async fn what_was_written_is_found() {
    let (_dir, database) = database();
    let writer = Writer::start(database, || 10).unwrap();
    for number in 1..=3 {
        writer.put(entry(number, 10 + u64::from(number)));
    }
    writer.take(key(2));
    writer.flush().await;
    assert_eq!(writer.get(vec![key(1), key(2), key(3)]).await, [entry(1, 11), entry(3, 13)]);
    assert_eq!(writer.counters(), WriterCounters { written: 4, ..WriterCounters::default() });
}

#[tokio::test]
async fn orders_are_done_in_their_order() {
    let (_dir, database) = database();
    let writer = Writer::start(database, || 0).unwrap();
    writer.take(key(1));
    writer.put(entry(1, 5));
    writer.put(entry(1, 6));
    writer.put(entry(2, 5));
    writer.take(key(2));
    writer.flush().await;
    assert_eq!(writer.get(vec![key(1), key(2)]).await, [entry(1, 6)]);
}

#[test]
fn what_is_queued_is_written_when_it_is_dropped() {
    let (dir, database) = database();
    let writer = Writer::start(database, || 0).unwrap();
    for number in 0..=u8::MAX {
        writer.put(entry(number, 5));
    }
    drop(writer);
    let database = Database::open(&dir.path().join("sessions.redb"), 1 << 20).unwrap();
    assert_eq!(database.usage().unwrap().entries, 256);
}

#[tokio::test]
async fn entries_over_the_limit_are_dropped_without_a_wait() {
    let (_dir, database) = database();
    let writer = Writer::start_with(database, || 0, 10, 2).unwrap();
    let held = hold(&writer.database);
    // The thread takes some orders before it writes to the disk, but not more than a batch.
    for _ in 0..5000 {
        writer.put(entry(1, 5));
    }
    let dropped = writer.counters().dropped;
    assert!(dropped >= 5000 - 1000 - 10, "{dropped}");
    held.abort().unwrap();
    writer.flush().await;
    let counters = writer.counters();
    assert_eq!((counters.dropped, counters.written), (dropped, 5000 - dropped));
}

#[tokio::test]
async fn only_so_many_lookups_are_in_progress() {
    let (_dir, database) = database();
    let writer = Writer::start_with(database, || 0, 10, 2).unwrap();
    writer.put(entry(1, 5));
    writer.flush().await;
    let turns = Arc::clone(&writer.lookups).acquire_many_owned(2).await.unwrap();
    assert_eq!(writer.get(vec![key(1)]).await, []);
    assert_eq!(writer.counters().refused, 1);
    drop(turns);
    assert_eq!(writer.get(vec![key(1)]).await, [entry(1, 5)]);
    assert_eq!(writer.lookups.available_permits(), 2);
}

#[tokio::test]
async fn what_has_expired_leaves_by_itself() {
    let (_dir, database) = database();
    let now = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now);
    let writer = Writer::start(database, move || clock.load(Ordering::Relaxed)).unwrap();
    writer.put(entry(1, 5));
    writer.put(entry(2, 50));
    writer.flush().await;
    assert_eq!(writer.database().usage().unwrap().entries, 2);
    now.store(5, Ordering::Relaxed);
    let deadline = Instant::now() + Duration::from_secs(30);
    while writer.database().usage().unwrap().entries != 1 {
        assert!(Instant::now() < deadline, "nothing leaves");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_database_that_fails_costs_sessions_and_nothing_else() {
    let (database, disk) = in_memory(1 << 20);
    let writer = Writer::start(database, || 0).unwrap();
    disk.fill();
    writer.put(entry(1, 5));
    writer.put(entry(2, 5));
    writer.flush().await;
    assert_eq!(writer.get(vec![key(1)]).await, []);
    assert_eq!(writer.counters(), WriterCounters { failed: 2, ..WriterCounters::default() });
}
