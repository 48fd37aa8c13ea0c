//! The size of the file.

use super::*;

/// Steady turnover, with each session in a random place among the others. After everything has been replaced a few
/// times, the file does not grow any more. (A small file is the worst case. For 100,000 sessions, the file has one and
/// a half times the size of the limit.)
#[test]
fn the_file_does_not_grow_with_turnover() {
    const ROOM: u64 = 4_000;
    const BATCH: u64 = 200;
    let bytes_max = ROOM * (300 + Database::OVERHEAD);
    let (database, disk) = in_memory(bytes_max);
    let turn_over = |turns: std::ops::Range<u64>| {
        for batch in turns.start * ROOM / BATCH..turns.end * ROOM / BATCH {
            let numbers = batch * BATCH..(batch + 1) * BATCH;
            let entries: Vec<_> = numbers.map(|number| entry(number, 300, number + 1)).collect();
            database.put(&entries, 0).unwrap();
        }
        disk.len_max()
    };
    let len = turn_over(0..5);
    assert!((bytes_max..4 * bytes_max).contains(&len), "{len} bytes, for {bytes_max} that may be kept");
    assert_eq!(turn_over(5..20), len);
    assert_eq!(usage(&database), Usage { entries: ROOM, bytes: bytes_max });
}
