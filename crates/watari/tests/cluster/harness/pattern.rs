//! Bodies that follow from a seed byte by byte, so that both ends can compute them.

use std::env;
use std::ops::Range;

/// The bytes `range` of the body of `seed`.
pub(crate) fn pattern(seed: u64, range: Range<u64>) -> Vec<u8> {
    let blocks = range.start / 8..range.end.div_ceil(8);
    let mut bytes = Vec::with_capacity((blocks.end - blocks.start) as usize * 8);
    for block in blocks {
        bytes.extend_from_slice(&mix(seed ^ mix(block)).to_le_bytes());
    }
    let skipped = (range.start % 8) as usize;
    bytes[skipped..skipped + (range.end - range.start) as usize].to_vec()
}

/// `SplitMix64`'s step and mixer.
pub(crate) fn mix(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// A number of this name in the environment.
pub(crate) fn given(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().unwrap())
}

/// The seed of a run: from the environment, to replay a run, or a new one. It is printed.
pub(crate) fn seed(name: &str) -> u64 {
    let seed = given(name).unwrap_or_else(|| {
        let mut bytes = [0; 4];
        aws_lc_rs::rand::fill(&mut bytes).unwrap();
        u32::from_le_bytes(bytes).into()
    });
    eprintln!("{name}={seed}");
    seed
}

/// Randomness that a seed replays.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}

#[test]
fn a_range_of_a_pattern_is_a_part_of_it() {
    let whole = pattern(7, 0..1000);
    assert_eq!(pattern(7, 3..977), whole[3..977]);
    assert!(pattern(7, 16..16).is_empty());
    assert_ne!(pattern(8, 0..1000), whole);
}
