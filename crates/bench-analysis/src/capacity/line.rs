//! One measurement as text.

use std::fmt;

use super::curve::{Point, Unit};
use super::search::Outcome;

/// A measurement, in a line.
pub struct Line<'a> {
    pub run: u32,
    pub unit: Unit,
    pub point: &'a Point,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { level, throughput_per_s, p99_ms, failures, outcome, idle, missed, .. } = self.point;
        let p99 = p99_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2} ms"));
        let outcome = match outcome {
            Outcome::Met => "met",
            Outcome::Missed => "missed",
            Outcome::Void => "void",
        };
        let (unit, failed) = (self.unit.name(), 100.0 * failures);
        write!(
            f,
            "{:>3}. {level} {unit}: {throughput_per_s:.1} answered/s, p99 {p99}, {failed:.2} % failed",
            self.run
        )?;
        writeln!(f, ": {outcome}")?;
        if !idle {
            writeln!(f, "     the server was not idle before")?;
        }
        missed.iter().try_for_each(|missed| writeln!(f, "     {missed}"))
    }
}
