//! The parameters of a comparison.

/// Parameters of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The probability that all intervals hold, from 0 to 1.
    pub confidence: f64,
    /// Smaller differences are not real, as a share of side A's figure.
    pub min_effect: f64,
    /// Number of bootstrap repetitions.
    pub replicates: u32,
    /// The seed of the random draws.
    pub seed: u64,
}

/// 95 % for all figures together, effects from 2 %, 5,000 replicates.
impl Default for Options {
    fn default() -> Self {
        Self { confidence: 0.95, min_effect: 0.02, replicates: 5_000, seed: 1 }
    }
}
