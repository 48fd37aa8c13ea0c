//! A comparison as text for the terminal.

use std::fmt;

use watari_bench_report::grid::Column::{Left, Right};
use watari_bench_report::grid::Grid;

use super::{Compared, Comparison, Drawn, Verdict};

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut grid = Grid::new(vec![
            Left("figure"),
            Right("A"),
            Right("B"),
            Right("B - A"),
            Right("change"),
            Right("from"),
            Right("to"),
            Left("B is"),
        ]);
        for compared in &self.figures {
            grid.row(row(compared));
        }
        write!(f, "{grid}\n{}", self.method())?;
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

impl Comparison {
    fn method(&self) -> String {
        let drawn = match self.drawn {
            Drawn::Runs => "runs",
            Drawn::Seconds => "blocks of seconds",
        };
        format!(
            "medians of runs (A: {}, B: {}); `from` and `to`: the change, with {}% confidence for all figures together\n\
             ({} replicates of {drawn}, seed {}); changes under {}% count as none\n",
            self.runs_a,
            self.runs_b,
            rounded(self.confidence * 100.0),
            self.replicates,
            self.seed,
            rounded(self.min_effect * 100.0)
        )
    }
}

fn row(compared: &Compared) -> [String; 8] {
    let change = |difference: f64| {
        if compared.a == 0.0 { "-".to_owned() } else { format!("{:+.2}%", difference / compared.a * 100.0) }
    };
    let (low, high) =
        compared.interval.map_or(("-".to_owned(), "-".to_owned()), |at| (change(at.low), change(at.high)));
    let verdict = match compared.verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::None => "not significantly different",
        Verdict::Unknown => "?",
    };
    [
        compared.figure.to_owned(),
        number(compared.a),
        number(compared.b),
        number(compared.difference),
        change(compared.difference),
        low,
        high,
        verdict.to_owned(),
    ]
}

/// Four significant digits or more.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1_000.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.3}"),
        _ => format!("{value:.5}"),
    }
}

/// Removes the tail of digits that binary fractions leave.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
