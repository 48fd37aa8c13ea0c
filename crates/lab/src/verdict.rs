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
//! A median near the edge of a verdict can fall on either side. So a result also counts the rounds that alone would have
//! its verdict.
//!
//! An experiment has the worst verdict of its ratios, and `exceeded` if one of them is and none differs.

use crate::experiment::{Better, Ratio};
use crate::result::{RatioResult, Verdict};

/// The position of a value by the paper's value and the limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    /// Or without a distance: it is not a number, or both it and the paper's value are 0.
    BeyondLimit,
    /// Below the paper's value by more than the tolerance.
    Below,
    /// Within the tolerance, or there is no value of the paper.
    Near,
    /// Above the paper's value by more than the tolerance.
    Above,
}

/// What a value is compared with.
struct Required {
    paper: Option<f64>,
    tolerance: f64,
    at_least: Option<f64>,
    at_most: Option<f64>,
}

impl Required {
    fn place(&self, ours: f64) -> Place {
        let is_too_small = self.at_least.is_some_and(|limit| ours < limit);
        let is_too_large = self.at_most.is_some_and(|limit| ours > limit);
        if is_too_small || is_too_large || !ours.is_finite() {
            return Place::BeyondLimit;
        }
        let Some(paper) = self.paper else { return Place::Near };
        let distance = (ours - paper) / paper;
        if distance.is_nan() {
            Place::BeyondLimit
        } else if distance < -self.tolerance {
            Place::Below
        } else if distance <= self.tolerance {
            Place::Near
        } else {
            Place::Above
        }
    }
}

/// The verdict of the value `ours`.
pub fn of_ratio(ratio: &Ratio, ours: f64) -> Verdict {
    let &Ratio { paper, tolerance, at_least, at_most, .. } = ratio;
    let required = Required { paper, tolerance, at_least, at_most };
    match (required.place(ours), ratio.better) {
        (Place::Near, _) => Verdict::Reproduced,
        (Place::Above, Better::Higher) | (Place::Below, Better::Lower) => Verdict::Exceeded,
        (Place::BeyondLimit | Place::Above | Place::Below, _) => Verdict::Differs,
    }
}

/// The number of rounds that alone would have the verdict of the median, for the same reason: on the same side of the
/// paper's value, or beyond a limit.
pub(crate) fn agreeing_rounds(result: &RatioResult) -> usize {
    let &RatioResult { paper, tolerance, at_least, at_most, .. } = result;
    let required = Required { paper, tolerance, at_least, at_most };
    let Some(place) = result.ours.map(|ours| required.place(ours)) else { return 0 };
    result.values.iter().flatten().filter(|value| required.place(**value) == place).count()
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

    use std::collections::BTreeMap;

    use super::*;
    use crate::statistics::median;

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
        for better in ["higher", "lower", "equal"] {
            let nothing = ratio(&format!("paper = 0.0\nbetter = '{better}'"));
            assert_eq!(of_ratio(&nothing, 0.0), Verdict::Differs, "a distance from 0 is not known: {better}");
        }
    }

    #[test]
    fn rounds_agree_that_are_on_the_same_side_as_the_median() {
        let agreeing = |paper, at_least, values: &[f64]| {
            let result = RatioResult {
                paper,
                ours: median(values.iter().copied()),
                peers: BTreeMap::new(),
                spread: None,
                speed_spread: None,
                values: values.iter().copied().map(Some).chain([None]).collect(),
                tolerance: 0.1,
                at_least,
                at_most: None,
                source: String::new(),
                verdict: Verdict::Reproduced,
                because: String::new(),
                spread_because: String::new(),
            };
            agreeing_rounds(&result)
        };
        assert_eq!(agreeing(Some(2.0), None, &[1.9, 2.0, 2.1]), 3);
        assert_eq!(agreeing(Some(2.0), None, &[1.0, 2.0, 3.0]), 1);
        assert_eq!(agreeing(Some(2.0), None, &[2.0, 3.0, 3.1]), 2);
        assert_eq!(agreeing(None, Some(1.0), &[0.9, 1.1, 5.0]), 2);
        assert_eq!(agreeing(Some(2.0), Some(2.0), &[1.95, 1.99, 2.01]), 2, "two are beyond the limit");
        assert_eq!(agreeing(Some(2.0), None, &[]), 0);
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
