//! Axes of charts: they map figures to round tick marks and to positions.

/// A linear axis from 0 to a round number. Its steps are 1, 2 or 5 times a power of ten.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    step: f64,
    pub end: f64,
}

impl Linear {
    /// An axis that ends at the first tick that is not below `highest`. `highest` is over 0.
    pub fn up_to(highest: f64) -> Self {
        let rough = highest / 5.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|round| round * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        Self { step, end: (highest / step).ceil() * step }
    }

    /// An axis with the steps of [`Linear::up_to`] that ends exactly at `end`.
    pub(crate) fn exactly_to(end: f64) -> Self {
        Self { end, ..Self::up_to(end) }
    }

    pub fn ticks(self) -> impl Iterator<Item = f64> {
        (0..=TICKS_MAX).map(move |tick| f64::from(tick) * self.step).take_while(move |tick| *tick <= self.end * 1.001)
    }

    /// The position of `value`: from 0 at the beginning to 1 at the end. Values outside are clamped.
    pub fn share(self, value: f64) -> f64 {
        (value / self.end).clamp(0.0, 1.0)
    }
}

/// A logarithmic axis from one power of ten to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decades {
    pub from: i32,
    pub to: i32,
}

impl Decades {
    /// The smallest axis that contains all `values` over 0.
    pub fn around(values: impl Iterator<Item = f64>) -> Self {
        let range = values.filter(|value| *value > 0.0).map(f64::log10);
        let (from, to) =
            range.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), log| (low.min(log), high.max(log)));
        if from > to {
            return Self { from: 0, to: 1 };
        }
        let from = (from.floor() as i32).clamp(-POWER_MAX, POWER_MAX - 1);
        Self { from, to: (to.ceil() as i32).clamp(from + 1, POWER_MAX) }
    }

    pub fn ticks(self) -> impl Iterator<Item = f64> {
        (self.from..=self.to).map(|power| 10_f64.powi(power))
    }

    /// The position of `value`: from 0 at the beginning to 1 at the end. Values outside are clamped.
    pub fn share(self, value: f64) -> f64 {
        ((value.log10() - f64::from(self.from)) / f64::from(self.to - self.from)).clamp(0.0, 1.0)
    }
}

/// Close to the largest exponent of an `f64`.
const POWER_MAX: i32 = 307;
const TICKS_MAX: u32 = 10;

#[cfg(test)]
mod tests {
    #![allow(clippy::float_cmp, reason = "the numbers are as written")]

    use super::*;

    fn linear(highest: f64) -> (f64, f64) {
        let Linear { step, end } = Linear::up_to(highest);
        (step, end)
    }

    #[test]
    fn axes_are_round() {
        assert_eq!(linear(1.0), (0.2, 1.0));
        assert_eq!(linear(100.0), (20.0, 100.0));
        assert_eq!(linear(101.0), (50.0, 150.0));
        assert_eq!(Linear::up_to(800.0).ticks().collect::<Vec<_>>(), [0.0, 200.0, 400.0, 600.0, 800.0]);
        assert_eq!(Linear::exactly_to(20.5).ticks().collect::<Vec<_>>(), [0.0, 5.0, 10.0, 15.0, 20.0]);
        let decades = |values: &[f64]| Decades::around(values.iter().copied());
        assert_eq!(decades(&[0.5, 900.0, 0.0]), Decades { from: -1, to: 3 });
        assert_eq!(decades(&[10.0]), Decades { from: 1, to: 2 });
        assert_eq!(decades(&[]), Decades { from: 0, to: 1 });
    }

    #[test]
    fn what_is_off_an_axis_stands_at_its_end() {
        assert_eq!(
            [-1.0, 0.0, 5.0, 10.0, 11.0].map(|value| Linear::up_to(10.0).share(value)),
            [0.0, 0.0, 0.5, 1.0, 1.0]
        );
        let decades = Decades { from: 0, to: 2 };
        assert_eq!([0.0, 1.0, 10.0, 100.0, 1e3].map(|value| decades.share(value)), [0.0, 0.0, 0.5, 1.0, 1.0]);
    }
}
