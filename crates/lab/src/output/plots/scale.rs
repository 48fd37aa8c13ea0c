//! Maps values to places on an axis, with round ticks.

use crate::output::text::{grouped, measured};

/// An axis. Places are from 0 at its beginning to 1 at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scale {
    Linear {
        from: f64,
        to: f64,
        step: f64,
    },
    /// Whole powers of ten.
    Decades {
        from: i32,
        to: i32,
    },
}

impl Scale {
    /// A linear axis that contains 0 and all finite values.
    pub(super) fn linear(values: impl Iterator<Item = f64>) -> Self {
        let within = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
        let (low, high) = values.filter(|value| value.is_finite()).fold((0.0, 0.0), within);
        let step = round_step((high - low) / 5.0);
        let to = if high > low { (high / step).ceil() * step } else { step };
        Self::Linear { from: (low / step).floor() * step, to, step }
    }

    /// A linear axis, or decades if all values are over 0 and far apart.
    pub(super) fn fitting(values: impl Iterator<Item = f64> + Clone) -> Self {
        let finite = values.clone().filter(|value| value.is_finite());
        let least = finite.clone().fold(f64::INFINITY, f64::min);
        let most = finite.fold(0.0, f64::max);
        if least <= 0.0 || most / least < FAR_APART || !least.is_finite() {
            return Self::linear(values);
        }
        Self::Decades { from: least.log10().floor() as i32, to: most.log10().ceil() as i32 }
    }

    pub(super) fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear { from, to, .. } => (value - from) / (to - from),
            Self::Decades { from, to } => (value.log10() - f64::from(from)) / f64::from(to - from),
        }
    }

    /// The values of ticks, with their labels.
    pub(super) fn ticks(self) -> Vec<(f64, String)> {
        match self {
            Self::Linear { from, to, step } => {
                let count = ((to - from) / step).round() as i32;
                let values = (0..=count).map(|tick| from + f64::from(tick) * step);
                values.map(|value| (value, label(value, step))).collect()
            }
            Self::Decades { from, to } => {
                let values = (from..=to).map(|power| 10_f64.powi(power));
                values.map(|value| (value, label(value, value))).collect()
            }
        }
    }
}

/// The least of 1, 2 and 5 times a power of ten that is not below `rough`.
fn round_step(rough: f64) -> f64 {
    if rough <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0].map(|round| round * power).into_iter().find(|step| *step >= rough).unwrap_or(10.0 * power)
}

/// A tick with as many decimals as its step has.
fn label(value: f64, step: f64) -> String {
    if value.abs() >= 1e12 {
        return measured(Some(value));
    }
    let decimals = (-(step * 1.001).log10().floor()).clamp(0.0, 9.0) as usize;
    let text = grouped(&format!("{value:.decimals$}"));
    if text.trim_start_matches('-').chars().all(|c| matches!(c, '0' | '.')) { "0".to_owned() } else { text }
}

/// The quotient of values that a linear axis cannot show together.
const FAR_APART: f64 = 100.0;

#[cfg(test)]
mod tests {
    #![allow(clippy::float_cmp, reason = "the numbers are as written")]

    use super::*;

    fn labels(scale: Scale) -> Vec<String> {
        scale.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn linear_axes_have_round_ticks_and_a_zero() {
        assert_eq!(labels(Scale::linear([638.3, 319.1].into_iter())), ["0", "200", "400", "600", "800"]);
        assert_eq!(labels(Scale::linear([0.3].into_iter())), ["0", "0.1", "0.2", "0.3"]);
        assert_eq!(labels(Scale::linear([-3.0, 8.0].into_iter())), ["-5", "0", "5", "10"]);
        assert_eq!(labels(Scale::linear([36_926.0].into_iter())), ["0", "10,000", "20,000", "30,000", "40,000"]);
    }

    #[test]
    fn an_axis_without_values_is_an_axis() {
        assert_eq!(labels(Scale::linear([f64::NAN, f64::INFINITY].into_iter())), ["0", "1"]);
        assert_eq!(Scale::fitting([].into_iter()), Scale::linear([].into_iter()));
        assert_eq!(Scale::linear([0.0].into_iter()).place(0.0), 0.0);
    }

    #[test]
    fn values_far_apart_have_decades() {
        assert_eq!(labels(Scale::fitting([2.0, 10_000.0].into_iter())), ["1", "10", "100", "1,000", "10,000"]);
        assert!(matches!(Scale::fitting([0.0, 10_000.0].into_iter()), Scale::Linear { .. }));
        assert!(matches!(Scale::fitting([1.0, 32.0].into_iter()), Scale::Linear { .. }));
        let scale = Scale::Decades { from: 0, to: 2 };
        assert_eq!([1.0, 10.0, 100.0].map(|value| scale.place(value)), [0.0, 0.5, 1.0]);
    }
}
