//! The table of handovers in `docs/origins.md`.

use watari_test_origins::Table;

/// One line of it: server, configuration, and the outcome of transfers.
pub(crate) type Row = [String; 4];

/// What stands there.
pub(crate) fn read() -> Vec<Row> {
    TABLE.read().into_iter().map(|cells| cells.try_into().expect("four columns")).collect()
}

/// Puts these rows there.
pub(crate) fn write(rows: &[Row]) {
    TABLE.write(rows);
}

const TABLE: Table = Table {
    begin: "<!-- outcomes of transfers: written by `make origins` -->\n",
    end: "<!-- the end of outcomes of transfers -->\n",
    columns: &["server", "configuration", "ordered away", "server killed"],
};
