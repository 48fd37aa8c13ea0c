//! Tables for people.

use std::fmt;

/// Rows of cells in aligned columns; numbers stand to the right.
pub(crate) struct Table {
    heads: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heads: &'static [&'static str]) -> Self {
        Self { heads, rows: Vec::new() }
    }

    /// Adds a row with a cell for each column. Control characters, which could command the terminal, are replaced.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        let shown = |cell: String| cell.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        self.rows.push(cells.into_iter().map(shown).collect());
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(self.heads[column].len())
    }

    fn is_number(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.get(column)).filter(|cell| *cell != "-").peekable();
        cells.peek().is_some() && cells.all(|cell| is_number(cell))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<_> = (0..self.heads.len()).map(|at| (self.width(at), self.is_number(at))).collect();
        let heads = self.heads.iter().map(|head| (*head).to_owned()).collect();
        for row in std::iter::once(&heads).chain(&self.rows) {
            let cells = row.iter().zip(&columns).map(|(cell, (width, is_number))| {
                if *is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// With a point, or without.
fn is_number(cell: &str) -> bool {
    cell.starts_with(|first: char| first.is_ascii_digit()) && cell.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["name", "moves", "why"]);
        table.row(["a".into(), "7".into(), String::new()]);
        table.row(["longer".into(), "12345678".into(), "b\x1b[2J".into()]);
        table.row(["c".into(), "-".into(), "d".into()]);
        let expected = "\
name       moves  why
a              7
longer  12345678  b\u{fffd}[2J
c              -  d
";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn an_empty_table_has_its_heads() {
        assert_eq!(Table::new(&["a", "b"]).to_string(), "a  b\n");
    }
}
