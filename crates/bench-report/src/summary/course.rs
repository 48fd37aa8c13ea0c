//! The course of a run as text.

use std::fmt;

use watari_bench_engine::ending::EndingKind;

use super::{PointSummary, SeriesSummary};
use crate::grid::Column::Right;
use crate::grid::Grid;

/// Writes a row for each interval.
impl fmt::Display for SeriesSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ["second", "begun", "NORMAL", "failed", "full", "resumed", "p50 ms", "p99 ms", "max ms"];
        let mut grid = Grid::new(heads.map(Right).into());
        for (second, point) in (0_u64..).step_by(self.interval_s.max(1) as usize).zip(&self.points) {
            grid.row(row(second, point));
        }
        grid.fmt(f)
    }
}

fn row(second: u64, point: &PointSummary) -> [String; 9] {
    let of_kinds = |wanted: fn(&EndingKind) -> bool| -> u64 {
        EndingKind::ALL.into_iter().filter(wanted).map(|kind| point.endings.of(kind)).sum()
    };
    let ended = of_kinds(|kind| *kind == EndingKind::Normal);
    let failed = of_kinds(|kind| *kind != EndingKind::Normal) + point.error_statuses;
    let counts = [second, point.started, ended, failed, point.full, point.resumed].map(|count| count.to_string());
    // 0 means that no request ended: every request takes some time.
    let time = |ms: f64| if ms > 0.0 { format!("{ms:.3}") } else { "-".to_owned() };
    let [second, started, ended, failed, full, resumed] = counts;
    [second, started, ended, failed, full, resumed, time(point.p50_ms), time(point.p99_ms), time(point.max_ms)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::EndingCounts;

    #[test]
    fn every_interval_has_a_row() {
        let endings = EndingCounts { normal: 7, reset: 1, timeout: 2, ..EndingCounts::default() };
        let busy = PointSummary {
            started: 12,
            endings,
            full: 4,
            resumed: 8,
            p50_ms: 1.5,
            p99_ms: 20.0,
            max_ms: 20.25,
            ..PointSummary::default()
        };
        let series = SeriesSummary { interval_s: 2, points: vec![busy, PointSummary::default()] };
        let expected = "\
second  begun  NORMAL  failed  full  resumed  p50 ms  p99 ms  max ms
     0     12       7       3     4        8   1.500  20.000  20.250
     2      0       0       0     0        0       -       -       -
";
        assert_eq!(series.to_string(), expected);
    }
}
