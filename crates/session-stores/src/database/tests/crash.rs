//! A process that writes is killed, many times.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use super::*;

/// The path of the child's database.
const PATH: &str = "WATARI_CRASH_PATH";
/// The number of batches that it contains at the start.
const BEGIN: &str = "WATARI_CRASH_BEGIN";

const BATCH: u64 = 50;
const LEN: usize = 200;
/// The number of entries for which there is room.
const ROOM: u64 = 1_000;
const BYTES_MAX: u64 = ROOM * (LEN as u64 + Database::OVERHEAD);

fn batch(number: u64) -> Vec<Entry> {
    (number * BATCH..(number + 1) * BATCH).map(|number| entry(number, LEN, 1 + number)).collect()
}

/// Whether the database contains what it should after this many batches.
fn holds(database: &Database, batches: u64) -> bool {
    let end = batches * BATCH;
    let begin = end.saturating_sub(ROOM);
    let keys: Vec<_> = (begin.saturating_sub(BATCH)..end + BATCH).map(key).collect();
    let expected: Vec<_> = (begin..end).map(|number| entry(number, LEN, 1 + number)).collect();
    database.get(&keys, 0).unwrap() == expected
}

/// Not a test of its own, but the code of the child. It prints the number of batches after each put.
#[test]
#[ignore = "run by the next test, in a process that it kills"]
fn writes_until_it_is_killed() {
    let (Ok(path), Ok(begin)) = (env::var(PATH), env::var(BEGIN)) else { return };
    let database = open(Path::new(&path), BYTES_MAX);
    for number in begin.parse().unwrap()..u64::MAX {
        database.put(&batch(number), 0).unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "put {}", number + 1).and_then(|()| out.flush()).unwrap();
    }
}

fn child(path: &Path, begin: u64) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "database::tests::crash::writes_until_it_is_killed", "--ignored", "--nocapture"])
        .env(PATH, path)
        .env(BEGIN, begin.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills a child after `batches` more puts. Returns the number of batches that it had acknowledged when it ended.
fn kill_after(mut child: Child, begin: u64, batches: u64) -> u64 {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let (mut put, mut killed) = (begin, false);
    for line in lines {
        let Some(number) = line.strip_prefix("put ") else { continue };
        put = number.parse().unwrap();
        if put >= begin + batches && !killed {
            child.kill().unwrap();
            killed = true;
        }
    }
    child.wait().unwrap();
    assert!(killed, "it ended by itself");
    put
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill() {
    let (_dir, path) = place();
    let mut batches = 0;
    for round in 0..25 {
        let acknowledged = kill_after(child(&path, batches), batches, 1 + round % 5);
        let database = open(&path, BYTES_MAX);
        let usage = usage(&database);
        assert!(usage.bytes <= BYTES_MAX);
        // The batch in progress may have been written.
        let found = (acknowledged..=acknowledged + 1).find(|batches| holds(&database, *batches));
        batches = found.unwrap_or_else(|| panic!("{acknowledged} batches were acknowledged; there are {usage:?}"));
    }
    assert!(batches * BATCH > ROOM, "nothing had to leave");
}
