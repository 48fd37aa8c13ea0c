//! Tables for people.

use std::collections::BTreeSet;
use std::env;
use std::fmt;
use std::io::{self, IsTerminal};

use rustix::termios::tcgetwinsize;

/// Rows of cells in aligned columns. Columns of numbers are aligned to the right.
///
/// On a terminal, the table fits its width, in this order:
///
/// 1. The table leaves out dispensable columns without values.
/// 2. It leaves out other dispensable columns, the least important first.
/// 3. It wraps the last column at words.
///
/// No cell is cut, so that no number reads as another one. A line below the table names the columns that were left out.
/// In other outputs, such as a pipe, all columns are shown.
pub(crate) struct Table {
    heads: &'static [&'static str],
    /// Columns that may be left out, the least important first.
    dispensable: &'static [&'static str],
    rows: Vec<Vec<String>>,
    width: Option<usize>,
}

impl Table {
    pub(crate) fn new(heads: &'static [&'static str]) -> Self {
        Self { heads, dispensable: &[], rows: Vec::new(), width: output_width() }
    }

    /// Allows the table to leave out `columns` if there is no room, the first of them first.
    pub(crate) fn leaving_out(mut self, columns: &'static [&'static str]) -> Self {
        debug_assert!(columns.iter().all(|column| self.heads.contains(column)), "{columns:?}");
        self.dispensable = columns;
        self
    }

    /// The table for a terminal of this width, in characters.
    #[cfg(test)]
    pub(crate) fn for_width(self, width: usize) -> Self {
        Self { width: Some(width), ..self }
    }

    /// Adds a row with a cell for each column. Replaces control characters, which could send commands to the terminal.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        let shown = |cell: String| cell.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        self.rows.push(cells.into_iter().map(shown).collect());
    }

    /// The columns that are shown, and those with values that are left out.
    fn columns(&self) -> (Vec<usize>, BTreeSet<usize>) {
        let mut shown: Vec<_> = (0..self.heads.len()).collect();
        let mut left_out = BTreeSet::new();
        let Some(width) = self.width else { return (shown, left_out) };
        let places = self.dispensable.iter().filter_map(|name| self.heads.iter().position(|head| head == name));
        let (silent, speaking): (Vec<_>, Vec<_>) = places.partition(|column| self.is_silent(*column));
        for column in silent.into_iter().chain(speaking) {
            if self.width_of(&shown) <= width {
                break;
            }
            shown.retain(|other| *other != column);
            if !self.is_silent(column) {
                left_out.insert(column);
            }
        }
        (shown, left_out)
    }

    /// Whether a column has no value in any row.
    fn is_silent(&self, column: usize) -> bool {
        self.cells(column).all(|cell| cell == "-" || cell.is_empty())
    }

    fn cells(&self, column: usize) -> impl Iterator<Item = &String> {
        self.rows.iter().filter_map(move |row| row.get(column))
    }

    fn width(&self, column: usize) -> usize {
        let widest = self.cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(self.heads[column].len())
    }

    fn width_of(&self, columns: &[usize]) -> usize {
        let cells: usize = columns.iter().map(|column| self.width(*column)).sum();
        cells + GAP.len() * columns.len().saturating_sub(1)
    }

    fn is_number(&self, column: usize) -> bool {
        let mut cells = self.cells(column).filter(|cell| *cell != "-").peekable();
        cells.peek().is_some() && cells.all(|cell| is_number(cell))
    }

    /// The width for lines of the last column, in characters. `None`: it is not wrapped.
    fn room_for_last(&self, columns: &[usize]) -> Option<usize> {
        let (last, others) = columns.split_last()?;
        let width = self.width.filter(|width| self.width_of(columns) > *width)?;
        let room = width.saturating_sub(self.width_of(others) + GAP.len()).max(ROOM_MIN);
        (!self.is_number(*last)).then_some(room)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (columns, left_out) = self.columns();
        let room = self.room_for_last(&columns);
        let shape: Vec<_> =
            columns.iter().map(|column| (*column, self.width(*column), self.is_number(*column))).collect();
        let heads = self.heads.iter().map(|head| (*head).to_owned()).collect();
        for row in std::iter::once(&heads).chain(&self.rows) {
            let (mut line, mut rest) = (String::new(), Vec::new());
            for (at, (column, width, is_number)) in shape.iter().enumerate() {
                let cell = &row[*column];
                let indent = line.chars().count() + if at == 0 { 0 } else { GAP.len() };
                line += if at == 0 { "" } else { GAP };
                if let Some(room) = room.filter(|_| at + 1 == shape.len()) {
                    let mut lines = wrapped(cell, room).into_iter();
                    line += &lines.next().unwrap_or_default();
                    rest = lines.map(|words| " ".repeat(indent) + &words).collect();
                } else {
                    let room = " ".repeat(width.saturating_sub(cell.chars().count()));
                    line.extend(if *is_number { [&room, cell] } else { [cell, &room] }.map(String::as_str));
                }
            }
            writeln!(f, "{}", line.trim_end())?;
            rest.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        }
        if !left_out.is_empty() {
            let names: Vec<_> = left_out.iter().map(|column| self.heads[*column]).collect();
            let missing = format!("(no room for {})", names.join(", "));
            wrapped(&missing, self.width.unwrap_or(usize::MAX)).iter().try_for_each(|line| writeln!(f, "{line}"))?;
        }
        Ok(())
    }
}

const GAP: &str = "  ";
/// The least width of a wrapped column, in characters.
const ROOM_MIN: usize = 16;

/// Splits the text into lines of at most `room` characters. A longer word gets a line of its own.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The width of the output, in characters: `COLUMNS`, or that of the terminal. `None`: the output is not a terminal.
fn output_width() -> Option<usize> {
    let set = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let out = io::stdout();
    let of_terminal = || tcgetwinsize(&out).ok().map(|size| usize::from(size.ws_col));
    out.is_terminal().then(|| set.or_else(of_terminal)).flatten().filter(|width| *width > 0)
}

/// Whether the cell is a number, with or without a decimal point.
fn is_number(cell: &str) -> bool {
    cell.starts_with(|first: char| first.is_ascii_digit()) && cell.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(width: Option<usize>) -> Table {
        let mut table = Table { width, ..Table::new(&["name", "moves", "alpn", "why"]) };
        table.row(["a".into(), "7".into(), "-".into(), String::new()]);
        table.row(["longer".into(), "12345678".into(), "-".into(), "b\x1b[2J and more words".into()]);
        table.row(["c".into(), "-".into(), "-".into(), "d".into()]);
        table.leaving_out(&["moves", "alpn"])
    }

    #[test]
    fn columns_are_aligned() {
        let expected = "\
name       moves  alpn  why
a              7  -
longer  12345678  -     b\u{fffd}[2J and more words
c              -  -     d
";
        assert_eq!(table(None).to_string(), expected);
    }

    #[test]
    fn a_narrow_terminal_has_fewer_columns_and_whole_numbers() {
        let without_alpn = "\
name       moves  why
a              7
longer  12345678  b\u{fffd}[2J and more words
c              -  d
";
        assert_eq!(table(Some(40)).to_string(), without_alpn, "what says nothing goes first, and is not missed");
        let without_moves = "\
name    why
a
longer  b\u{fffd}[2J and more words
c       d
(no room for moves)
";
        assert_eq!(table(Some(32)).to_string(), without_moves);
        let wrapped = "\
name    why
a
longer  b\u{fffd}[2J and more
        words
c       d
(no room for moves)
";
        assert_eq!(table(Some(24)).to_string(), wrapped);
    }

    #[test]
    fn an_empty_table_has_its_heads() {
        assert_eq!(Table { width: None, ..Table::new(&["a", "b"]) }.to_string(), "a  b\n");
    }
}
