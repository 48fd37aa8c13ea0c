//! The results of the visits.

use std::collections::BTreeMap;
use std::fmt;

use super::client_tls::Class;
use super::visitor::{Visit, VisitError};
use crate::table::Table;

/// Errors that are shown one by one.
const ERRORS_SHOWN: usize = 10;

/// A table of results, and the checks that passed or failed.
pub(super) struct Report {
    rows: BTreeMap<Class, Row>,
    errors: Vec<String>,
    checks: Vec<Check>,
}

#[derive(Default)]
struct Row {
    connections: usize,
    requests: usize,
    bytes: usize,
    /// Served by another agent than the one that did the handshake.
    moved: usize,
    stayed: usize,
    errors: usize,
}

struct Check {
    passed: bool,
    what: String,
}

/// Counters of the dispatcher.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Counters {
    handshakes: u64,
    moves_committed: u64,
    moves_aborted: u64,
}

impl Counters {
    /// Reads a page of metrics. A counter that is not on it is 0.
    pub(super) fn read(page: &str) -> Self {
        Self {
            handshakes: sum(page, "watari_dispatcher_handshakes_total"),
            moves_committed: sum(page, "watari_dispatcher_moves_committed_total"),
            moves_aborted: sum(page, "watari_dispatcher_moves_aborted_total"),
        }
    }
}

/// The sum over all labels of a counter.
fn sum(page: &str, name: &str) -> u64 {
    let of_counter = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let value = rest.starts_with([' ', '{']).then(|| rest.rsplit(' ').next())??;
        value.parse::<u64>().ok()
    };
    page.lines().filter_map(of_counter).sum()
}

impl Report {
    /// * `left_behind`: connections that the dispatcher holds although all visitors have left.
    /// * `ended`: the error of a process that ended, if one did.
    pub(super) fn new(
        visits: Vec<(Class, Result<Visit, VisitError>)>,
        counters: &Counters,
        left_behind: usize,
        ended: Option<String>,
    ) -> Self {
        let mut report = Self { rows: BTreeMap::new(), errors: Vec::new(), checks: Vec::new() };
        let (total, mut moves) = (visits.len(), 0);
        for (class, visit) in visits {
            moves += visit.as_ref().map_or(0, |visit| u64::from(visit.connection.moves));
            report.enter(class, visit);
        }
        let errors = report.errors.len();
        report.check(errors == 0, format!("{} of {total} connections had the expected bytes", total - errors));
        for class in Class::ALL {
            let row = report.rows.entry(class).or_default();
            let what = format!(
                "{}, {}: {} of {} connections served by another agent than did the handshake",
                class.version, class.key, row.moved, row.connections
            );
            let some = row.moved > 0;
            report.check(some, what);
        }
        let Counters { handshakes, moves_committed, moves_aborted } = counters;
        report.check(*handshakes == total as u64, format!("the dispatcher counts {handshakes} handshakes"));
        let what = format!(
            "the dispatcher counts {moves_committed} moves, the visitors {moves} ({moves_aborted} were aborted without harm)"
        );
        report.check(*moves_committed == moves, what);
        report.check(left_behind == 0, format!("{left_behind} connections left behind"));
        report.check(ended.is_none(), ended.unwrap_or_else(|| "all processes are running".into()));
        report
    }

    /// The number of failed checks.
    pub(super) fn failed(&self) -> usize {
        self.checks.iter().filter(|check| !check.passed).count()
    }

    fn enter(&mut self, class: Class, visit: Result<Visit, VisitError>) {
        let row = self.rows.entry(class).or_default();
        row.connections += 1;
        match visit {
            Ok(visit) => {
                row.requests += visit.requests;
                row.bytes += visit.bytes;
                let moved = visit.connection.node != visit.connection.handshake_node;
                row.moved += usize::from(moved);
                row.stayed += usize::from(!moved);
            }
            Err(error) => {
                row.errors += 1;
                self.errors.push(format!("{}, {}: {error}", class.version, class.key));
            }
        }
    }

    fn check(&mut self, passed: bool, what: String) {
        self.checks.push(Check { passed, what });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table =
            Table::new(&["version", "key", "connections", "requests", "bytes", "moved", "stayed", "errors"]);
        for (class, row) in &self.rows {
            let numbers = [row.connections, row.requests, row.bytes, row.moved, row.stayed, row.errors];
            let [connections, requests, bytes, moved, stayed, errors] = numbers.map(|number| number.to_string());
            let (version, key) = (class.version.to_string(), class.key.to_string());
            table.row([version, key, connections, requests, bytes, moved, stayed, errors]);
        }
        writeln!(f, "{table}")?;
        for error in self.errors.iter().take(ERRORS_SHOWN) {
            writeln!(f, "error: {error}")?;
        }
        if let Some(more) = self.errors.len().checked_sub(ERRORS_SHOWN + 1) {
            writeln!(f, "error: and {} more", more + 1)?;
        }
        for check in &self.checks {
            writeln!(f, "{}: {}", if check.passed { "passed" } else { "FAILED" }, check.what)?;
        }
        let failed = self.failed();
        writeln!(f, "{} passed, {failed} failed", self.checks.len() - failed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::admin::Connection;

    const PAGE: &str = "\
# HELP watari_dispatcher_handshakes Handshakes.
# TYPE watari_dispatcher_handshakes counter
watari_dispatcher_handshakes_total{version=\"1.2\",resumed=\"false\"} 3
watari_dispatcher_handshakes_total{version=\"1.3\",resumed=\"false\"} 4
watari_dispatcher_moves_committed_total 4
watari_dispatcher_moves_aborted_total{reason=\"x y\"} 1
# EOF
";

    fn visit(node: &str) -> Visit {
        let connection = Connection {
            id: "1".into(),
            client: "127.0.0.1:1".parse().unwrap(),
            version: None,
            suite: None,
            alpn: None,
            handshake_node: "a1".into(),
            node: node.into(),
            moves: u32::from(node != "a1"),
            resumed: None,
            stays: None,
        };
        Visit { requests: 2, bytes: 100, connection }
    }

    fn visits() -> Vec<(Class, Result<Visit, VisitError>)> {
        let moved = Class::ALL.map(|class| (class, Ok(visit("a2"))));
        moved.into_iter().chain(Class::ALL[..3].iter().map(|class| (*class, Ok(visit("a1"))))).collect()
    }

    #[test]
    fn counters_are_read() {
        let counters = Counters { handshakes: 7, moves_committed: 4, moves_aborted: 1 };
        assert_eq!(Counters::read(PAGE), counters);
    }

    #[test]
    fn a_good_run_passes() {
        let report = Report::new(visits(), &Counters::read(PAGE), 0, None);
        let text = report.to_string();
        assert_eq!(report.failed(), 0, "{text}");
        assert!(text.contains("TLS 1.2  RSA-2048            2         4    200      1       1       0\n"), "{text}");
        assert!(text.ends_with("\n9 passed, 0 failed\n"), "{text}");
    }

    #[test]
    fn each_fault_fails_a_check() {
        let counters = Counters::read(PAGE);
        let failed = |visits, left, ended| Report::new(visits, &counters, left, ended).failed();
        assert_eq!(failed(visits(), 1, None), 1);
        assert_eq!(failed(visits(), 0, Some("a1 ended".into())), 1);
        // One visit fails: its class, the whole, and the count of moves.
        let mut broken = visits();
        broken[3].1 = Err(VisitError::Timeout);
        assert_eq!(failed(broken, 0, None), 3);
        assert_eq!(Report::new(visits(), &Counters::read(""), 0, None).failed(), 2);
    }

    #[test]
    fn many_errors_are_cut() {
        let visits = (0..13).map(|_| (Class::ALL[0], Err(VisitError::Timeout))).collect();
        let text = Report::new(visits, &Counters::read(PAGE), 0, None).to_string();
        assert_eq!(text.matches("error: TLS 1.2, RSA-2048: the visit was not complete in time").count(), 10);
        assert!(text.contains("error: and 3 more\n"), "{text}");
    }
}
