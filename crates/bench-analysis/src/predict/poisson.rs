//! The expected maximum of random arrivals.

#![allow(clippy::cast_sign_loss, reason = "nothing here is under 0")]

/// The number of arrivals that the fullest of `windows` windows does not exceed, with probability `quantile`. Arrivals
/// are a Poisson process with `mean` of them in a window.
///
/// # Panics
/// Unless `mean` is from 0 to [`MEAN_MAX`], and `quantile` over 0 and under 1.
pub fn fullest(mean: f64, windows: u32, quantile: f64) -> u64 {
    assert!((0.0..=MEAN_MAX).contains(&mean) && quantile > 0.0 && quantile < 1.0, "{mean}, {quantile}");
    // No window exceeds the number with probability `F^windows`. So one window may exceed it with this probability,
    // computed without `1 - tiny`.
    let over = -(quantile.ln() / f64::from(windows)).exp_m1();
    let mode = mean.floor();
    let upper: Vec<f64> = weights_from(mode, mean).collect();
    let total = weights_below(mode, mean).sum::<f64>() + upper.iter().sum::<f64>();
    let mut tail = 0.0;
    let above = upper.iter().rev().take_while(|weight| {
        tail += **weight;
        tail <= over * total
    });
    let beyond_mode = upper.len() - above.count();
    // The number is below the mode only for a low quantile of few windows, which callers do not request.
    mode as u64 + beyond_mode.saturating_sub(1) as u64
}

/// The largest supported mean.
pub const MEAN_MAX: f64 = 1e11;

/// Probabilities of `mode`, `mode + 1`, ... relative to that of `mode`, as far as they matter.
fn weights_from(mode: f64, mean: f64) -> impl Iterator<Item = f64> {
    let count = spread(mean);
    (0..count).scan(1.0, move |weight, above| {
        let this = *weight;
        *weight *= mean / (mode + f64::from(above) + 1.0);
        Some(this)
    })
}

/// Probabilities of `mode - 1`, `mode - 2`, ... relative to that of `mode`, as far as they matter.
fn weights_below(mode: f64, mean: f64) -> impl Iterator<Item = f64> {
    let count = f64::from(spread(mean)).min(mode) as u32;
    (0..count).scan(1.0, move |weight, below| {
        *weight *= (mode - f64::from(below)) / mean;
        Some(*weight)
    })
}

/// The distance from the mode beyond which probabilities do not matter: ten standard deviations, plus a constant for
/// small means. Less than 1 in 10^20 lies beyond.
fn spread(mean: f64) -> u32 {
    (10.0 * mean.sqrt()) as u32 + 60
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from tables of the distribution.
    #[test]
    fn quantiles_are_those_of_tables() {
        // P(X <= 17) = 0.9857, P(X <= 18) = 0.9928 for mean 10; P(X <= 4) = 0.9963, P(X <= 3) = 0.9810 for mean 1.
        assert_eq!(fullest(10.0, 1, 0.985), 17);
        assert_eq!(fullest(10.0, 1, 0.99), 18);
        assert_eq!(fullest(1.0, 1, 0.99), 4);
        assert_eq!(fullest(1.0, 1, 0.98), 3);
        // P(X = 0) = exp(-mean).
        assert_eq!(fullest(0.01, 1, 0.99), 0);
        assert_eq!(fullest(0.011, 1, 0.99), 1);
        assert_eq!(fullest(0.0, 3600, 0.999_999), 0);
    }

    /// Of 100 windows all stay under with F^100: F(20) = 0.99841, F(21) = 0.99930, F(24) = 0.99995, F(25) = 0.99998 for mean 10.
    #[test]
    fn many_windows_have_a_fuller_one() {
        assert_eq!(fullest(10.0, 100, 0.85), 20);
        assert_eq!(fullest(10.0, 100, 0.86), 21);
        assert_eq!(fullest(10.0, 100, 0.995), 24);
        assert_eq!(fullest(10.0, 100, 0.996), 25);
    }

    /// A large mean's quantile is the normal distribution's: 2.3263 standard deviations for 0.99.
    #[test]
    fn large_means_are_reckoned_with() {
        for mean in [1e6_f64, 1e9, MEAN_MAX] {
            #[allow(clippy::cast_precision_loss)]
            let deviations = (fullest(mean, 1, 0.99) as f64 - mean) / mean.sqrt();
            assert!((deviations - 2.3263).abs() < 0.005, "{mean}: {deviations}");
        }
    }
}
