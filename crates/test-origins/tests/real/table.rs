//! The table in `docs/origins.md`.

use watari_test_origins::Table;

/// One line of the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row(pub(crate) Vec<String>);

impl Row {
    /// Whether transfers move, as in the last column.
    pub(crate) fn moves(&self) -> bool {
        self.0.last().is_some_and(|cell| cell == "yes")
    }
}

/// Reads the table.
pub(crate) fn read() -> Vec<Row> {
    TABLE.read().into_iter().map(Row).collect()
}

/// Replaces the rows.
pub(crate) fn write(rows: &[Row]) {
    TABLE.write(rows.iter().map(|Row(cells)| cells));
}

const TABLE: Table = Table {
    begin: "<!-- what the servers did: written by `make origins` -->\n",
    end: "<!-- the end of it -->\n",
    columns: &[
        "server",
        "configuration",
        "ranges",
        "tag",
        "fresh tag",
        "date",
        "HEAD",
        "closed range",
        "`If-Range` tag",
        "`If-Range` date",
        "`If-Match`",
        "compresses",
        "exact copies",
        "whole seconds",
        "other times",
        "moves",
    ],
};
