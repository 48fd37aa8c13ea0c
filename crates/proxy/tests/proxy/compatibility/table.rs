//! The table of handovers in `docs/origins.md`.

use watari_test_origins::Table;

/// A row: server, configuration, and the two results of transfers.
pub(crate) type Row = [String; 4];

/// Reads the rows of the table.
pub(crate) fn read() -> Vec<Row> {
    TABLE.read().into_iter().map(|cells| cells.try_into().expect("four columns")).collect()
}

/// Writes these rows to the table.
pub(crate) fn write(rows: &[Row]) {
    TABLE.write(rows);
}

const TABLE: Table = Table {
    begin: "<!-- outcomes of transfers: written by `make origins` -->\n",
    end: "<!-- the end of outcomes of transfers -->\n",
    columns: &["server", "configuration", "ordered away", "server killed"],
};
