//! Bytes that are known without being kept.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// What an origin serves: given bytes, or generated ones of any length.
#[derive(Debug, Clone)]
pub struct Content {
    /// What the content consists of, again and again.
    block: Bytes,
    len: u64,
    altered: Range<u64>,
}

impl Content {
    /// These bytes.
    pub fn given(bytes: impl Into<Bytes>) -> Self {
        let block = bytes.into();
        Self { len: block.len() as u64, block, altered: 0..0 }
    }

    /// `len` bytes that look random, and are the same for the same seed.
    ///
    /// They repeat after a large prime number of bytes, which no error in sizes of buffers is a multiple of.
    pub fn generated(seed: u64, len: u64) -> Self {
        Self { block: generate(seed, len.min(PERIOD) as usize), len, altered: 0..0 }
    }

    /// The same, but each byte in `range` is another one.
    #[must_use]
    pub fn altered(self, range: Range<u64>) -> Self {
        Self { altered: range, ..self }
    }

    /// In bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// At most `len` bytes from `offset` on; fewer where the content ends. Copies nothing, unless there is something
    /// altered in them, or the end of a period.
    pub fn at(&self, offset: u64, len: usize) -> Bytes {
        let start = offset.min(self.len);
        let end = start.saturating_add(len as u64).min(self.len);
        let bytes = self.unaltered(start, (end - start) as usize);
        if self.altered.start < end && start < self.altered.end { self.alter(start, bytes) } else { bytes }
    }

    /// Where `bytes`, which are said to begin at `offset`, first differ from this content; bytes beyond its end differ.
    pub fn difference(&self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let expected = self.at(offset, bytes.len());
        if expected == bytes {
            return None;
        }
        let same = expected.iter().zip(bytes).take_while(|(a, b)| a == b).count();
        Some(offset + same as u64)
    }

    fn unaltered(&self, start: u64, len: usize) -> Bytes {
        let place = start.checked_rem(self.block.len() as u64).unwrap_or(0) as usize;
        if place + len <= self.block.len() {
            return self.block.slice(place..place + len);
        }
        let mut bytes = BytesMut::from(&self.block[place..]);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.block[..self.block.len().min(len - bytes.len())]);
        }
        bytes.freeze()
    }

    fn alter(&self, start: u64, bytes: Bytes) -> Bytes {
        let within = |offset: u64| (offset.saturating_sub(start) as usize).min(bytes.len());
        let altered = within(self.altered.start)..within(self.altered.end);
        let mut bytes = BytesMut::from(bytes);
        bytes[altered].iter_mut().for_each(|byte| *byte = !*byte);
        bytes.freeze()
    }
}

/// The largest prime number of bytes in a MiB.
const PERIOD: u64 = 1_048_573;

fn generate(seed: u64, len: usize) -> Bytes {
    let mut bytes: Vec<u8> = (0..len.div_ceil(8) as u64).flat_map(|word| mixed(seed, word).to_le_bytes()).collect();
    bytes.truncate(len);
    bytes.into()
}

/// The output of `SplitMix64` after `word` steps (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
/// 2014).
fn mixed(seed: u64, word: u64) -> u64 {
    let z = seed.wrapping_add(word.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_up_the_whole() {
        let content = Content::generated(7, 1000);
        let whole = content.at(0, 2000);
        assert_eq!(whole.len(), 1000);
        for offset in 0..1000 {
            for len in [0, 1, 7, 8, 9, 100] {
                let end = (offset + len).min(1000);
                assert_eq!(content.at(offset as u64, len), whole[offset..end]);
            }
        }
        assert!(content.at(1001, 1).is_empty());
    }

    #[test]
    fn it_repeats_after_its_period_only() {
        let content = Content::generated(7, 3 * PERIOD + 10);
        let (first, last) = (content.at(0, 100), content.at(3 * PERIOD - 10, 100));
        assert_eq!((last.len(), &last[10..]), (20, &first[..10]));
        assert_eq!(last[..10], content.at(PERIOD - 10, 10));
        assert_ne!(content.at(1 << 20, 100), first);
        let all = content.at(0, usize::MAX);
        assert_eq!((all.len() as u64, content.difference(0, &all)), (content.len(), None));
        assert_eq!(all[2 * PERIOD as usize..][..100], first);
    }

    #[test]
    fn nothing_is_content() {
        assert!(Content::generated(7, 0).at(0, 10).is_empty());
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(Content::generated(1, 64).at(0, 64), Content::generated(2, 64).at(0, 64));
    }

    #[test]
    fn altered_bytes_all_differ_and_others_do_not() {
        for content in [Content::generated(7, 100), Content::given(vec![1; 100])] {
            let altered = content.clone().altered(10..20);
            for offset in 0..100 {
                let same = content.at(offset, 1) == altered.at(offset, 1);
                assert_eq!(same, !(10..20).contains(&offset), "{offset}");
            }
            assert_eq!(content.difference(5, &altered.at(5, 90)), Some(10));
            assert_eq!(content.difference(20, &altered.at(20, 80)), None);
            assert_eq!(content.difference(99, &[content.at(99, 1)[0], 0]), Some(100));
        }
    }
}
