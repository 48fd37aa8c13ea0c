//! The curve as a chart in a terminal.
//!
//! ```text
//!    requests/s   success/s                         p99 ms  0 to 24.50 ms          p50 ms   failed  met
//! >         400       400.0  ██████████▋             12.60  █████████▎               6.30    0.0 %  2 of 3
//! ```
//!
//! Bars begin at 0 and are linear: a bar that is twice as long is twice as much.

use std::fmt;

use super::curve::{Curve, Level};

/// Shows a curve with one line for each level. `>` marks the level that was found.
pub(super) struct Chart<'a> {
    pub(super) curve: &'a Curve,
    /// The result of the search.
    pub(super) found: Option<u64>,
}

impl fmt::Display for Chart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels = self.curve.levels();
        let scale = Scale::new(&levels);
        let (unit, answered) = (self.curve.unit.name(), "success/s");
        let latency = format!("0 to {:.2} ms", scale.latency_max_ms);
        writeln!(
            f,
            "  {unit:>11}  {answered:>10}  {:<BAR_WIDTH$}  {:>9}  {:<BAR_WIDTH$}  {:>9}  {:>7}  met",
            "", "p99 ms", latency, "p50 ms", "failed"
        )?;
        levels.iter().try_for_each(|level| self.write_level(f, level, &scale))
    }
}

impl Chart<'_> {
    fn write_level(&self, f: &mut fmt::Formatter<'_>, level: &Level, scale: &Scale) -> fmt::Result {
        let mark = if self.found == Some(level.level) { '>' } else { ' ' };
        let ms = |latency: Option<f64>| latency.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}"));
        writeln!(
            f,
            "{mark} {:>11}  {:>10.1}  {:<BAR_WIDTH$}  {:>9}  {:<BAR_WIDTH$}  {:>9}  {:>5.1} %  {} of {}",
            level.level,
            level.throughput_per_s,
            bar(level.throughput_per_s / scale.throughput_max),
            ms(level.p99_ms),
            bar(level.p99_ms.map_or(0.0, |ms| ms / scale.latency_max_ms)),
            ms(level.p50_ms),
            100.0 * level.failures,
            level.met,
            level.runs,
        )
    }
}

/// The values of a bar of full width.
struct Scale {
    throughput_max: f64,
    latency_max_ms: f64,
}

impl Scale {
    fn new(levels: &[Level]) -> Self {
        let latencies = levels.iter().filter_map(|level| level.p99_ms);
        Self {
            throughput_max: levels.iter().map(|level| level.throughput_per_s).fold(f64::MIN_POSITIVE, f64::max),
            latency_max_ms: latencies.fold(f64::MIN_POSITIVE, f64::max),
        }
    }
}

/// A bar of `share` of the width, to an eighth of a column.
#[allow(clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "small, and not under 0")]
fn bar(share: f64) -> String {
    let eighths = (share.clamp(0.0, 1.0) * 8.0 * BAR_WIDTH as f64).round() as usize;
    let whole = "█".repeat(eighths / 8);
    whole + ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8]
}

const BAR_WIDTH: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::curve::Unit;
    use crate::capacity::curve::tests::point;
    use crate::capacity::search::Outcome::{Met, Missed};

    #[test]
    fn levels_are_shown_from_the_lowest() {
        let points = vec![
            point(100, 100.0, Some(1.0), Met),
            point(400, 200.0, Some(1000.0), Missed),
            point(200, 200.0, Some(31.7), Met),
            point(800, 0.0, None, Missed),
        ];
        let curve = Curve { unit: Unit::RequestsPerSecond, points };
        let expected =
            "   requests/s   success/s                         p99 ms  0 to 1000.00 ms        p50 ms   failed  met
          100       100.0  █████████                1.00                           0.50    0.0 %  1 of 1
>         200       200.0  ██████████████████      31.70  ▋                       15.85    0.0 %  1 of 1
          400       200.0  ██████████████████    1000.00  ██████████████████     500.00    0.0 %  0 of 1
          800         0.0                              -                              -    0.0 %  0 of 1
";
        assert_eq!(Chart { curve: &curve, found: Some(200) }.to_string(), expected);
    }

    #[test]
    fn bars_have_eighths() {
        assert_eq!([bar(0.0), bar(1.0 / 144.0), bar(1.0 / 18.0), bar(0.5)], ["", "▏", "█", "█████████"]);
        assert_eq!(bar(7.0), "█".repeat(18));
        assert_eq!(bar(f64::NAN), "");
    }

    #[test]
    fn what_is_all_the_same_or_nothing_is_shown_too() {
        let same = Curve { unit: Unit::Connections, points: vec![point(1, 0.0, Some(0.0), Met)] };
        assert!(Chart { curve: &same, found: None }.to_string().contains("1 of 1"));
        let none = Curve::new(Unit::Connections);
        assert_eq!(Chart { curve: &none, found: None }.to_string().lines().count(), 1);
    }
}
