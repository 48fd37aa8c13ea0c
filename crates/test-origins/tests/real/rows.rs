//! Collects the facts of all servers.

use std::thread;

use watari_test_origins::real::Setup;

use crate::facts::{self, Facts};
use crate::table::Row;

/// Asks a few servers at a time.
pub(crate) fn ask_all() -> Vec<Row> {
    let rows = Setup::ALL.chunks(4).map(|setups| {
        thread::scope(|scope| {
            let threads: Vec<_> = setups.iter().map(|setup| scope.spawn(|| row(setup))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        })
    });
    rows.flatten().collect()
}

fn row(setup: &Setup) -> Row {
    let roots = [facts::originals(), facts::copies()];
    let servers = roots.each_ref().map(|root| setup.start(root).unwrap_or_else(|error| panic!("{error}")));
    let facts = Facts::find(servers[0].address(), servers[1].address());
    let mut cells = vec![setup.server.name().to_owned(), setup.configuration.to_owned()];
    cells.extend(facts.cells());
    Row(cells)
}
