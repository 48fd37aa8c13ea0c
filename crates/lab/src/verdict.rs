//! Whether a ratio reproduces the paper's.
//!
//! | ratio | verdict |
//! | --- | --- |
//! | outside of `at-least` or `at-most` | differs |
//! | without a figure of the paper | reproduced |
//! | better than the paper's by more than the tolerance | exceeded |
//! | within the tolerance of the paper's | reproduced |
//! | worse than that | differs |
//!
//! An experiment has the worst verdict of its ratios, and `exceeded` if one of them is and none differs.

use crate::experiment::{Better, Ratio};
use crate::result::Verdict;

/// The verdict of the value `ours`.
pub fn of_ratio(ratio: &Ratio, ours: f64) -> Verdict {
    let too_small = ratio.at_least.is_some_and(|bound| ours < bound);
    let too_large = ratio.at_most.is_some_and(|bound| ours > bound);
    if too_small || too_large || !ours.is_finite() {
        return Verdict::Differs;
    }
    let Some(paper) = ratio.paper else { return Verdict::Reproduced };
    let distance = (ours - paper) / paper;
    match ratio.better {
        Better::Higher if distance > ratio.tolerance => Verdict::Exceeded,
        Better::Lower if distance < -ratio.tolerance => Verdict::Exceeded,
        _ if distance.abs() <= ratio.tolerance => Verdict::Reproduced,
        _ => Verdict::Differs,
    }
}

/// The verdict of an experiment with these.
pub fn of_all(verdicts: impl IntoIterator<Item = Verdict>) -> Verdict {
    let rank = |verdict: &Verdict| match verdict {
        Verdict::Differs => 3,
        Verdict::Exceeded => 2,
        Verdict::Reproduced => 1,
        Verdict::Impossible => 0,
    };
    verdicts.into_iter().max_by_key(rank).unwrap_or(Verdict::Impossible)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn ratio(keys: &str) -> Ratio {
        toml::from_str(&format!("name = 'r'\nof = 'a:load.rate'\nover = 'b:load.rate'\n{keys}")).unwrap()
    }

    #[test]
    fn a_bound_decides_first() {
        let bounded = ratio("paper = 1.21\nat-least = 1.21\nbetter = 'higher'");
        assert_eq!(of_ratio(&bounded, 1.20), Verdict::Differs);
        assert_eq!(of_ratio(&bounded, 1.22), Verdict::Reproduced);
        assert_eq!(of_ratio(&bounded, 1.60), Verdict::Exceeded);
        assert_eq!(of_ratio(&ratio("at-most = 2.0"), 1.0), Verdict::Reproduced);
        assert_eq!(of_ratio(&ratio("at-most = 2.0"), 2.1), Verdict::Differs);
    }

    #[test]
    fn without_a_bound_the_tolerance_decides() {
        let equal = ratio("paper = 2.0");
        assert_eq!(of_ratio(&equal, 2.1), Verdict::Reproduced);
        assert_eq!(of_ratio(&equal, 2.5), Verdict::Differs);
        assert_eq!(of_ratio(&equal, 1.5), Verdict::Differs);
        let lower = ratio("paper = 2.0\nbetter = 'lower'\ntolerance = 0.2");
        assert_eq!(of_ratio(&lower, 1.5), Verdict::Exceeded);
        assert_eq!(of_ratio(&lower, 2.5), Verdict::Differs);
        assert_eq!(of_ratio(&lower, f64::NAN), Verdict::Differs);
    }

    #[test]
    fn a_ratio_that_differs_makes_the_experiment_differ() {
        use Verdict::{Differs, Exceeded, Impossible, Reproduced};
        assert_eq!(of_all([Reproduced, Exceeded]), Exceeded);
        assert_eq!(of_all([Exceeded, Differs, Reproduced]), Differs);
        assert_eq!(of_all([Impossible, Reproduced]), Reproduced);
        assert_eq!(of_all([Impossible]), Impossible);
    }
}
