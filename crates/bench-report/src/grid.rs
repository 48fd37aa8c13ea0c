//! Tables with aligned columns for the terminal.

use std::fmt;

/// A table. It replaces control characters in cells, because some cells contain text of a server, and control
/// characters could command the terminal.
pub struct Grid {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// A column's heading and alignment.
pub enum Column {
    /// For words.
    Left(&'static str),
    /// For numbers.
    Right(&'static str),
}

impl Grid {
    pub fn new(columns: Vec<Column>) -> Self {
        let heads = columns.iter().map(|column| column.head().to_owned()).collect();
        Self { columns, rows: vec![heads] }
    }

    /// Adds a row with one cell for each column, or fewer.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| shown(&cell)).collect());
    }

    fn width(&self, column: usize) -> usize {
        self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<_> = (0..self.columns.len()).map(|at| self.width(at)).collect();
        for row in &self.rows {
            let cells = row.iter().zip(&self.columns).zip(&widths).map(|((cell, column), width)| match column {
                Column::Left(_) => format!("{cell:<width$}"),
                Column::Right(_) => format!("{cell:>width$}"),
            });
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

impl Column {
    fn head(&self) -> &'static str {
        match self {
            Self::Left(head) | Self::Right(head) => head,
        }
    }
}

/// The text without control characters.
pub fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_left_and_numbers_right() {
        let mut grid = Grid::new(vec![Column::Left("ending"), Column::Right("n"), Column::Left("where")]);
        grid.row(["NORMAL".into(), "1200".into()]);
        grid.row(["RESET".into(), "7".into(), "wa\x1bit".into()]);
        assert_eq!(grid.to_string(), "ending     n  where\nNORMAL  1200\nRESET      7  wa\u{fffd}it\n");
    }
}
