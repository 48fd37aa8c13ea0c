//! Tables in a document that tests compare with results, and rewrite.

use std::fs;
use std::path::PathBuf;

/// A table in `docs/origins.md`, between two marker lines.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// The marker line before it.
    pub begin: &'static str,
    /// The marker line after it.
    pub end: &'static str,
    /// Its columns, which the document explains.
    pub columns: &'static [&'static str],
}

impl Table {
    /// The cells of each line.
    pub fn read(&self) -> Vec<Vec<String>> {
        let (_, table, _) = self.parts();
        let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        table.lines().skip(2).map(cells).collect()
    }

    /// Replaces the lines.
    pub fn write(&self, rows: impl IntoIterator<Item = impl AsRef<[String]>>) {
        let (before, _, after) = self.parts();
        let lines = rows.into_iter().map(|cells| format!("| {} |\n", cells.as_ref().join(" | ")));
        let head = format!("| {} |\n|{}\n", self.columns.join(" | "), " --- |".repeat(self.columns.len()));
        fs::write(path(), [before, head, lines.collect::<Vec<_>>().concat(), after].concat())
            .expect("the document can be written");
    }

    /// The document before the table, the table, and the document after it.
    fn parts(&self) -> (String, String, String) {
        let text = fs::read_to_string(path()).expect("the document is there");
        let (before, rest) = text.split_once(self.begin).expect("the document has the markers of the table");
        let (table, after) = rest.split_once(self.end).expect("the document has the markers of the table");
        (format!("{before}{}", self.begin), table.to_owned(), format!("{}{after}", self.end))
    }
}

fn path() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "docs", "origins.md"].iter().collect()
}
