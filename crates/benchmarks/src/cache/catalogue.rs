//! URLs whose popularity follows a Zipf law.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// The exponent of the law.
const ALPHA: f64 = 0.9;
/// Half of all contents are shorter, in bytes.
const LEN_MEDIAN: f64 = 16_384.0;
/// Bounds of the lengths, in bytes.
const LENS: std::ops::RangeInclusive<f64> = 64.0..=1e6;
const SEED: u64 = 7;

/// The contents, by number. The smaller its number, the more popular is a content.
#[derive(Debug)]
pub(super) struct Catalogue {
    lens: Vec<u64>,
    /// Sums of popularity, up to each content.
    sums: Vec<f64>,
}

/// A sequence of requests.
pub(super) struct Requests<'a> {
    catalogue: &'a Catalogue,
    random: StdRng,
}

impl Catalogue {
    pub(super) fn new(count: usize) -> Self {
        let mut random = StdRng::seed_from_u64(SEED);
        let lens = (0..count).map(|_| len(&mut random)).collect();
        let popularities = (1..=count).map(|rank| (rank as f64).powf(-ALPHA));
        let sums = popularities.scan(0.0, |sum, popularity| {
            *sum += popularity;
            Some(*sum)
        });
        Self { lens, sums: sums.collect() }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.lens.iter().sum()
    }

    /// The length of a content, in bytes.
    pub(super) fn len(&self, number: usize) -> Option<u64> {
        self.lens.get(number).copied()
    }

    /// All contents with their lengths.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, u64)> {
        self.lens.iter().copied().enumerate()
    }

    /// Equal seeds give equal sequences.
    pub(super) fn requests(&self, seed: u64) -> Requests<'_> {
        Requests { catalogue: self, random: StdRng::seed_from_u64(seed) }
    }
}

impl Iterator for Requests<'_> {
    type Item = (usize, u64);

    /// The number and the length of the next content.
    fn next(&mut self) -> Option<Self::Item> {
        let Catalogue { lens, sums } = self.catalogue;
        let at = self.random.random_range(0.0..*sums.last()?);
        let number = sums.partition_point(|sum| *sum < at);
        Some((number, lens[number]))
    }
}

/// Log-normal.
fn len(random: &mut StdRng) -> u64 {
    let (a, b): (f64, f64) = (random.random_range(f64::MIN_POSITIVE..1.0), random.random());
    let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
    #[expect(clippy::cast_sign_loss, reason = "it has bounds")]
    let len = (LEN_MEDIAN * normal.exp()).clamp(*LENS.start(), *LENS.end()) as u64;
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_content_has_its_share() {
        let catalogue = Catalogue::new(100);
        let first = catalogue.requests(1).take(10_000).filter(|(number, _)| *number == 0).count() as f64;
        let share = 1.0 / (1..=100).map(|rank| f64::from(rank).powf(-ALPHA)).sum::<f64>();
        assert!((first / 10_000.0 / share - 1.0).abs() < 0.1, "{first} of 10000, expected a share of {share}");
    }

    #[test]
    fn sequences_repeat() {
        let catalogue = Catalogue::new(1000);
        let of = |seed| catalogue.requests(seed).take(100).collect::<Vec<_>>();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        assert!(of(1).iter().all(|(number, len)| catalogue.len(*number) == Some(*len)));
    }
}
