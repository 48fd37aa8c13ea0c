//! Tables in a document that tests compare with reality, and write anew.

use std::fs;
use std::path::PathBuf;

/// A table in `docs/origins.md`, between two lines that mark its place.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// The line before it.
    pub begin: &'static str,
    /// The line after it.
    pub end: &'static str,
    /// Its head, which the document explains.
    pub columns: &'static [&'static str],
}

impl Table {
    /// The cells of each line.
    pub fn read(&self) -> Vec<Vec<String>> {
        let (_, table, _) = self.parts();
        let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        table.lines().skip(2).map(cells).collect()
    }

    /// Puts these lines there.
    pub fn write(&self, rows: impl IntoIterator<Item = impl AsRef<[String]>>) {
        let (before, _, after) = self.parts();
        let lines = rows.into_iter().map(|cells| format!("| {} |\n", cells.as_ref().join(" | ")));
        let head = format!("| {} |\n|{}\n", self.columns.join(" | "), " --- |".repeat(self.columns.len()));
        fs::write(path(), [before, head, lines.collect::<Vec<_>>().concat(), after].concat())
            .expect("the document can be written");
    }

    /// What stands before the table, the table, and what stands after it.
    fn parts(&self) -> (String, String, String) {
        let text = fs::read_to_string(path()).expect("the document is there");
        let (before, rest) = text.split_once(self.begin).expect("the place of the table is marked");
        let (table, after) = rest.split_once(self.end).expect("the place of the table is marked");
        (format!("{before}{}", self.begin), table.to_owned(), format!("{}{after}", self.end))
    }
}

fn path() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "docs", "origins.md"].iter().collect()
}
