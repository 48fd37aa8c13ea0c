//! A process that is killed while it writes.

use std::env;
use std::io::{BufRead, BufReader, Write, stdout};
use std::process::{Command, Stdio};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::{NO_MEMORY, Opened, directory, entry, key};

const ENTRIES: u64 = 200;
const ROUNDS: u64 = 25;

/// Set in the process that writes: its directory and the number of the round.
const WRITER: &str = "WATARI_TEST_CACHE_WRITER";

#[tokio::test]
async fn a_kill_leaves_whole_entries() {
    let directory = directory();
    let mut random = StdRng::seed_from_u64(24);
    let (mut found, mut last) = (0, Vec::new());
    for round in 1..=ROUNDS {
        let mut writer = Command::new(env::current_exe().unwrap())
            .args(["--exact", "kill::writer", "--ignored", "--nocapture"])
            .env(WRITER, format!("{round} {}", directory.path().display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines().map_while(Result::ok);
        let progress = random.random_range(0..60);
        assert!(lines.by_ref().filter(|line| line.starts_with("written")).nth(progress).is_some());
        writer.kill().unwrap();
        writer.wait().unwrap();
        let opened = Opened::new(NO_MEMORY, directory.path()).await;
        let versions = opened.versions(0..ENTRIES).await;
        found += versions.iter().flatten().count();
        assert!(versions.iter().flatten().all(|version| version >> 32 <= round), "{versions:?}");
        last.extend(versions.into_iter().flatten().map(|version| version >> 32).max());
        opened.store.close().await;
    }
    println!("{found} entries found in {ROUNDS} rounds");
    assert!(found as u64 > ROUNDS * ENTRIES / 4, "{found}");
    assert!(last.iter().zip(1..).filter(|(last, round)| *last == round).count() > 10, "{last:?}");
}

/// Writes and removes entries until it is killed. Half of the rounds go over the whole disk.
#[tokio::test]
#[ignore = "the process that is killed"]
async fn writer() {
    let Ok(config) = env::var(WRITER) else { return };
    let (round, directory) = config.split_once(' ').unwrap();
    let round: u64 = round.parse().unwrap();
    let opened = Opened::new(NO_MEMORY, directory.as_ref()).await;
    let mut random = StdRng::seed_from_u64(round);
    let len_max = if round.is_multiple_of(2) { 60_000 } else { 8_000 };
    for count in 1_u64.. {
        let number = random.random_range(0..ENTRIES);
        if random.random_ratio(1, 20) {
            opened.store.remove(&key(number));
        } else {
            let version = round << 32 | count;
            opened.store.insert(key(number), entry(number, version, random.random_range(0..len_max)));
        }
        if count % 10 == 0 {
            tokio::task::yield_now().await;
            writeln!(stdout(), "written {count}").unwrap();
        }
    }
}
