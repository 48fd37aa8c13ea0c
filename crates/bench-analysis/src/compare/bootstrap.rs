//! Confidence intervals by resampling the measured values (Efron's bootstrap, by percentiles).

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use super::course::Course;
use super::figures::Figure;
use super::options::Options;

/// The data of one side to draw from.
#[derive(Clone, Debug)]
pub(super) enum Side {
    /// The figures of each run.
    Runs(Vec<Vec<f64>>),
    /// The intervals of each run.
    Seconds(Vec<Course>),
}

/// A confidence interval of a difference, in the figure's unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Interval {
    /// Whether the difference is not 0, with the requested confidence.
    pub fn excludes_0(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// The interval of `b - a` for each figure; `None` if there are too few measurements.
pub(super) fn intervals(a: &Side, b: &Side, figures: &[Figure], options: &Options) -> Vec<Option<Interval>> {
    if a.is_too_short() || b.is_too_short() {
        return vec![None; figures.len()];
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(options.seed);
    let mut differences = vec![Vec::new(); figures.len()];
    for _ in 0..options.replicates {
        let (a, b) = (a.draw(figures, &mut random), b.draw(figures, &mut random));
        for (differences, pair) in differences.iter_mut().zip(a.into_iter().zip(b)) {
            differences.extend(pair.1.zip(pair.0).map(|(b, a)| b - a));
        }
    }
    let known = differences.iter().filter(|differences| !differences.is_empty()).count();
    let outside = (1.0 - options.confidence) / known.max(1) as f64;
    differences.into_iter().map(|differences| middle(differences, outside)).collect()
}

impl Side {
    pub(super) fn is_too_short(&self) -> bool {
        match self {
            Self::Runs(_) => false,
            Self::Seconds(runs) => runs.iter().any(Course::is_too_short),
        }
    }

    /// Draws as many runs as the side has, and returns the median of each figure.
    fn draw(&self, figures: &[Figure], random: &mut Xoshiro256PlusPlus) -> Vec<Option<f64>> {
        match self {
            Self::Runs(runs) => {
                let drawn: Vec<_> = runs.iter().map(|_| &runs[random.random_range(0..runs.len())]).collect();
                (0..figures.len()).map(|at| median(drawn.iter().map(|run| run[at]).collect())).collect()
            }
            Self::Seconds(runs) => {
                let drawn: Vec<_> =
                    runs.iter().map(|_| runs[random.random_range(0..runs.len())].draw(random)).collect();
                let of = |figure: &Figure| drawn.iter().map(|run| figure.of_drawing(run)).collect::<Option<_>>();
                figures.iter().map(|figure| median(of(figure)?)).collect()
            }
        }
    }
}

/// The middle value, or the mean of the two middle values; `None` if `values` is empty.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

/// Cuts off the share `outside`, half of it at each end; `None` if `values` is empty.
fn middle(mut values: Vec<f64>, outside: f64) -> Option<Interval> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    let cut = (values.len() as f64 * outside / 2.0).floor() as usize;
    let cut = cut.min(last / 2);
    Some(Interval { low: values[cut], high: values[last - cut] })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_median_lies_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }

    #[test]
    fn as_much_is_cut_off_at_each_end() {
        let values: Vec<_> = (0..1_000).map(f64::from).collect();
        assert_eq!(middle(values, 0.05), Some(Interval { low: 25.0, high: 974.0 }));
        assert_eq!(middle(vec![7.0], 0.5), Some(Interval { low: 7.0, high: 7.0 }));
        assert_eq!(middle(vec![], 0.05), None);
    }
}
