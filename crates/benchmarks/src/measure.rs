//! Interleaved rounds and their medians.

use crate::failure::Failure;

/// Costs of one unit of work, one sample for each round, in ascending order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn new(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        Self(samples)
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub(crate) fn min(&self) -> f64 {
        self.quantile(0.0)
    }

    pub(crate) fn max(&self) -> f64 {
        self.quantile(1.0)
    }

    /// The value below which the share `quantile` (0 to 1) of the samples is, interpolated between two samples.
    pub(crate) fn quantile(&self, quantile: f64) -> f64 {
        let Some(last) = self.0.len().checked_sub(1) else { return f64::NAN };
        let at = quantile * last as f64;
        #[expect(clippy::cast_sign_loss, reason = "neither factor is below 0")]
        let below = at as usize;
        let above = (below + 1).min(last);
        self.0[below] + (self.0[above] - self.0[below]) * at.fract()
    }

    /// The samples of `value`, one for each round.
    pub(crate) fn of(rounds: &[Vec<f64>], value: impl Fn(&[f64]) -> f64) -> Self {
        Self::new(rounds.iter().map(|costs| value(costs)).collect())
    }
}

/// Takes a sample of each of `candidates` in turn, `rounds` times (A B C A B C ..), so that a disturbance of the
/// machine affects all of them. `cost` returns one figure or several. The result has the rounds of each candidate.
pub(crate) fn interleaved<T>(
    rounds: usize,
    candidates: &[T],
    mut cost: impl FnMut(&T) -> Result<Vec<f64>, Failure>,
) -> Result<Vec<Vec<Vec<f64>>>, Failure> {
    let mut costs: Vec<Vec<Vec<f64>>> = candidates.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for _ in 0..rounds {
        for (candidate, costs) in candidates.iter().zip(&mut costs) {
            costs.push(cost(candidate)?);
        }
    }
    Ok(costs)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    // Halves are exact.
    #![allow(clippy::float_cmp)]

    use super::*;

    #[test]
    fn quantiles_are_between_the_samples_they_fall_between() {
        let samples = Samples::new(vec![4.0, 1.0, 2.0, 10.0]);
        let quantiles = [samples.min(), samples.median(), samples.quantile(0.75), samples.max()];
        assert_eq!(quantiles, [1.0, 3.0, 5.5, 10.0]);
        assert!(Samples::default().median().is_nan());
    }

    #[test]
    fn candidates_take_turns() {
        let mut order = Vec::new();
        let costs = interleaved(2, &["a", "b"], |candidate| {
            order.push(*candidate);
            Ok(vec![order.len() as f64])
        });
        assert_eq!(costs.unwrap(), [[[1.0], [3.0]], [[2.0], [4.0]]]);
        assert_eq!(order, ["a", "b", "a", "b"]);
    }
}
