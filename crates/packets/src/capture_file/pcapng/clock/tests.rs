#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

/// Section 4.2: `if_tsresol`, `if_tsoffset`.
#[test]
fn clocks_count_as_they_say() {
    let cases: [(u8, i64, u64, u64); 14] = [
        (6, 0, 1_800_000_000_000_001, 1_800_000_000_000_001_000),
        (9, 0, 1_800_000_000_000_000_001, 1_800_000_000_000_000_001),
        (0, 0, 1_800_000_000, 1_800_000_000_000_000_000),
        (3, 0, 1, 1_000_000),
        (12, 0, 1_800_000_000_999, 1_800_000_000),
        (19, 0, u64::MAX, 1_844_674_407),
        (0x80, 0, 7, 7_000_000_000),
        (0x8a, 0, 1536, 1_500_000_000),
        (0xa0, 0, 1 << 31, 500_000_000),
        (0xbf, 0, 1 << 62, 500_000_000),
        (0, 1_000_000_000, 800_000_000, 1_800_000_000_000_000_000),
        (0, -10, 11, 1_000_000_000),
        // Out of range on either side.
        (0, -10, 9, 0),
        (0, i64::MAX, u64::MAX, u64::MAX),
    ];
    for (resolution, offset_s, units, expected) in cases {
        let mut clock = Clock { offset_s, ..Clock::default() };
        clock.resolve(resolution).unwrap();
        assert_eq!(clock.time(units), Timestamp(expected), "{resolution:#x} {offset_s} {units}");
    }
    assert_eq!(Clock::default().time(5), Timestamp(5000));
    assert!([20, 0x7f, 0xc0, 0xff].iter().all(|resolution| Clock::default().resolve(*resolution).is_none()));
}

proptest! {
    #[test]
    fn clocks_never_panic_and_keep_order(resolution: u8, offset_s: i64, units: u64, later: u64) {
        let mut clock = Clock { offset_s, ..Clock::default() };
        let _ = clock.resolve(resolution);
        prop_assert!(clock.time(units) <= clock.time(units.saturating_add(later)));
    }
}
