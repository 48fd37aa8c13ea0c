//! The time in which a node finds a stored session, among more and more of them.

use std::hint::black_box;
use std::ops::Range;
use std::path::Path;

use watari_session::{Session, Store};
use watari_session_stores::{Database, Entry};
use watari_sys::thread_cpu_time;
use watari_values::{NodeName, SecretBytes, SessionKey};

use crate::Scale;
use crate::failure::{Failure, doing, tls};
use crate::measure::Samples;
use crate::report::{Report, Row, Unit};

/// The smallest number of sessions.
const FEWEST: u64 = 1_000;
const SESSION_LEN: usize = 300;
/// Lookups for one sample.
const LOOKUPS: u64 = 100_000;
/// Sessions that one transaction puts into a database.
const BATCH: u64 = 50_000;

/// Targets: the longest lookup with any number of sessions, in seconds. A resumed handshake takes much longer.
const MEMORY_TARGET: f64 = 2e-6;
const DATABASE_TARGET: f64 = 20e-6;

/// Times lookups in memory and in a database, with each number of sessions.
pub(super) fn measure(scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let counts =
        || std::iter::successors(Some(FEWEST), |count| Some(count * 10)).take_while(|count| *count <= scale.sessions);
    for count in counts() {
        let store = in_memory(count)?;
        let look = |key: &SessionKey| Ok(store.get(key, 0).is_some());
        add(report, "in memory", count, scale.rounds, MEMORY_TARGET, look)?;
    }
    for count in counts() {
        let dir = tempfile::tempdir().map_err(doing("making a directory"))?;
        let database = in_database(dir.path(), count)?;
        let look = |key: &SessionKey| Ok(!database.get(std::slice::from_ref(key), 0)?.is_empty());
        add(report, "in the database", count, scale.rounds, DATABASE_TARGET, look)?;
    }
    Ok(())
}

fn add(
    report: &mut Report,
    place: &'static str,
    count: u64,
    rounds: usize,
    limit: f64,
    look: impl Fn(&SessionKey) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let (mut known, mut unknown) = (Vec::with_capacity(rounds), Vec::with_capacity(rounds));
    for round in 0..rounds as u64 {
        let draws = round * LOOKUPS..(round + 1) * LOOKUPS;
        known.push(time(place, draws.clone(), LOOKUPS, |draw| look(&key(mixed(draw) % count, count)))?);
        unknown.push(time(place, draws, 0, |draw| look(&stranger(mixed(draw) % count, count)))?);
    }
    let what = format!("lookup {place}, {count} sessions");
    let (known, unknown) = (Samples::new(known), Samples::new(unknown));
    report.add(Row::limited(what, Unit::Nanoseconds, known, "unknown key", unknown, limit));
    Ok(())
}

/// CPU seconds per lookup. Returns an error unless exactly `expected` lookups find a session.
fn time(
    place: &'static str,
    draws: Range<u64>,
    expected: u64,
    look: impl Fn(u64) -> Result<bool, Failure>,
) -> Result<f64, Failure> {
    let (asked, begun, mut found) = (draws.end - draws.start, thread_cpu_time(), 0);
    for draw in draws {
        found += u64::from(black_box(look(black_box(draw))?));
    }
    let used = thread_cpu_time().saturating_sub(begun);
    if found != expected {
        return Err(Failure::Sessions { place, asked, found });
    }
    Ok(used.as_secs_f64() / asked as f64)
}

fn in_memory(count: u64) -> Result<Store, Failure> {
    let (mut store, issuer) = (Store::new(usize::MAX), NodeName::new("agent").map_err(tls("naming a node"))?);
    for number in 0..count {
        let secret = SecretBytes::new(vec![7; SESSION_LEN]);
        store.put(key(number, count), Session { secret, expires: u64::MAX, issuer: issuer.clone() }, true);
    }
    Ok(store)
}

/// Writes the sessions in the order of their keys. In any other order, ten million sessions would take hours.
fn in_database(dir: &Path, count: u64) -> Result<Database, Failure> {
    let database = Database::open(&dir.join("sessions.redb"), u64::MAX)?;
    for first in (0..count).step_by(BATCH as usize) {
        let numbers = first..count.min(first + BATCH);
        let entries: Vec<_> = numbers
            .map(|number| Entry { key: key(number, count), value: vec![7; SESSION_LEN], expires: 1 + number })
            .collect();
        database.put(&entries, 0)?;
    }
    Ok(database)
}

/// The key of session `number` of `count`. Keys are spread as evenly as digests, and rise with the number.
fn key(number: u64, count: u64) -> SessionKey {
    keyed(number, count, 0)
}

/// A key that no session has, next to the key of session `number`.
fn stranger(number: u64, count: u64) -> SessionKey {
    keyed(number, count, 1)
}

fn keyed(number: u64, count: u64, salt: u64) -> SessionKey {
    let mut key = [0; 32];
    let words = [number * (u64::MAX / count), mixed(number), mixed(number ^ 1 << 40), mixed(number ^ salt << 41)];
    for (bytes, word) in key.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    SessionKey(key)
}

/// A pseudorandom number, a different one for each input (the finalizer of `SplitMix64`).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_rise_and_strangers_are_none_of_them() {
        for number in 0..999 {
            assert!(key(number, 1000) < key(number + 1, 1000));
            assert_ne!(key(number, 1000), stranger(number, 1000));
        }
    }
}
