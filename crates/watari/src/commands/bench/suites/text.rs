//! The tables for people.

use std::fmt;
use std::time::Duration;

use watari_bench_suites::measure::{Plan, Report};
use watari_bench_suites::paper::{PaperRow, REFERENCE, ROWS, Ratios};
use watari_bench_suites::row::{Cost, Measured, Row};
use watari_values::size::Size;

use crate::table::Table;

/// The measurements: first beside the paper's, then all.
pub(super) struct Text<'a> {
    pub(super) plan: &'a Plan,
    pub(super) report: &'a Report,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let papers: Vec<_> = ROWS.iter().filter(|row| self.plan.selects(&row.suite())).collect();
        if !papers.is_empty() {
            writeln!(
                f,
                "The paper's suites, then (2009: JDK 1.6, Core 2 Duo 2.4 GHz; 100 MB, 1000 connections) and now: times in ms, and"
            )?;
            writeln!(f, "as x, the factor relative to {REFERENCE} of the same engine:\n\n{}", self.beside(&papers))?;
        }
        let work = self.plan.work;
        let bulk = Size(work.bulk_bytes);
        writeln!(
            f,
            "All measurements ({bulk}, {} connections): times in ms, and the CPU times of client and server in ms:\n",
            work.connections
        )?;
        writeln!(f, "{}", self.everything())?;
        for (engine, version) in &self.report.present {
            writeln!(f, "{engine}: {version}")?;
        }
        for (engine, why) in &self.report.absent {
            writeln!(f, "without {engine}: {why}")?;
        }
        Ok(())
    }
}

impl Text<'_> {
    fn beside(&self, papers: &[&PaperRow]) -> Table {
        let mut table = Table::new(&[
            "suite",
            "engine",
            "bulk_then",
            "x",
            "bulk",
            "x",
            "new_then",
            "x",
            "new",
            "x",
            "reuse_then",
            "x",
            "reuse",
            "x",
            "reused",
        ]);
        for paper in papers {
            let mut rows = self.report.rows.iter().filter(|row| row.suite == paper.suite()).peekable();
            if rows.peek().is_none() {
                table.row(self.beside_row(paper, None));
            }
            for row in rows {
                table.row(self.beside_row(paper, Some(row)));
            }
        }
        table
    }

    fn beside_row(&self, paper: &PaperRow, row: Option<&Row>) -> [String; 15] {
        let measured = row.and_then(|row| row.measured.as_ref().ok());
        let now = row.and_then(|row| Ratios::of_row(row, &self.report.rows));
        let then = Ratios::of_paper(paper);
        let ms = |cost: fn(&Measured) -> Cost| shown(measured.map(|m| millis(cost(m).wall)));
        let x =
            |ratios: Option<Ratios>, of: fn(Ratios) -> f64| shown(ratios.map(|ratios| format!("{:.2}", of(ratios))));
        [
            paper.suite(),
            row.map_or_else(|| self.missing().to_owned(), |row| row.engine.to_string()),
            paper.bulk_ms.to_string(),
            x(then, |ratios| ratios.bulk),
            ms(|measured| measured.bulk),
            x(now, |ratios| ratios.bulk),
            paper.new_ms.to_string(),
            x(then, |ratios| ratios.new),
            ms(|measured| measured.new),
            x(now, |ratios| ratios.new),
            paper.reuse_ms.to_string(),
            x(then, |ratios| ratios.reuse),
            ms(|measured| measured.reuse),
            x(now, |ratios| ratios.reuse),
            shown(measured.map(|measured| measured.reused.to_string())),
        ]
    }

    /// The cell of a suite that was not measured. Engines that were not asked for may have it.
    fn missing(&self) -> &'static str {
        if self.plan.engines.is_empty() { "no installed engine has it" } else { "no selected engine has it" }
    }

    fn everything(&self) -> Table {
        let mut table = Table::new(&[
            "engine", "suite", "version", "key", "bulk", "client", "server", "new", "client", "server", "reuse",
            "client", "server", "reused", "",
        ]);
        for row in &self.report.rows {
            table.row(everything_row(row));
        }
        table
    }
}

fn everything_row(row: &Row) -> [String; 15] {
    let measured = row.measured.as_ref().ok();
    let costs = [measured.map(|m| m.bulk), measured.map(|m| m.new), measured.map(|m| m.reuse)];
    let [bulk, new, reuse] = costs.map(|cost| {
        let part = |of: fn(Cost) -> Duration| shown(cost.map(|cost| millis(of(cost))));
        [part(|cost| cost.wall), part(|cost| cost.client_cpu), part(|cost| cost.server_cpu)]
    });
    let ([b, bc, bs], [n, nc, ns], [r, rc, rs]) = (bulk, new, reuse);
    let reused = shown(measured.map(|measured| measured.reused.to_string()));
    let failed = row.measured.as_ref().err().map_or_else(String::new, |why| format!("failed: {why}"));
    let version = shown(measured.map(|measured| measured.version.clone()));
    let key = shown(row.key.name().map(str::to_owned));
    [row.engine.to_string(), row.suite.clone(), version, key, b, bc, bs, n, nc, ns, r, rc, rs, reused, failed]
}

fn shown(cell: Option<String>) -> String {
    cell.unwrap_or_else(|| "-".to_owned())
}

/// Whole milliseconds from 10 ms on.
fn millis(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    if ms < 10.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

#[cfg(test)]
mod tests {
    use watari_bench_suites::engine_name::EngineName;
    use watari_bench_suites::key::Key;
    use watari_bench_suites::work::Work;

    use super::*;

    fn row(suite: &str, bulk_ms: u64) -> Row {
        let cost = |ms| Cost {
            wall: Duration::from_millis(ms),
            client_cpu: Duration::from_micros(2500),
            server_cpu: Duration::from_millis(70),
        };
        let measured = Measured {
            version: "TLSv1.2".to_owned(),
            bulk: cost(bulk_ms),
            new: cost(80),
            reuse: cost(9),
            reused: 1000,
        };
        Row {
            engine: EngineName::Jsse,
            suite: suite.to_owned(),
            key: Key::Rsa,
            work: Work::PAPER,
            measured: Ok(measured),
        }
    }

    fn lines(only: &str, rows: Vec<Row>) -> Vec<String> {
        let plan = Plan { engines: Vec::new(), only: vec![only.to_owned()], work: Work::PAPER };
        let report = Report {
            present: vec![(EngineName::Jsse, "JDK 17".to_owned())],
            absent: vec![(EngineName::OpenSsl, "left out".to_owned())],
            rows,
        };
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        Text { plan: &plan, report: &report }.to_string().lines().map(words).collect()
    }

    #[test]
    fn rows_stand_beside_the_papers_with_ratios_of_their_own_column() {
        let lines = lines("TLS_RSA_WITH_AES", vec![row(REFERENCE, 100), row("TLS_RSA_WITH_AES_256_CBC_SHA", 150)]);
        let beside = "TLS_RSA_WITH_AES_256_CBC_SHA jsse 7938 1.17 150 1.50 8562 1.00 80 1.00 1312 0.87 9.0 1.00 1000";
        assert!(lines.iter().any(|line| line == beside), "{lines:#?}");
        let all = "jsse TLS_RSA_WITH_AES_256_CBC_SHA TLSv1.2 RSA-2048 150 2.5 70 80 2.5 70 9.0 2.5 70 1000";
        assert!(lines.iter().any(|line| line == all), "{lines:#?}");
        assert!(lines.ends_with(&["jsse: JDK 17".to_owned(), "without openssl: left out".to_owned()]), "{lines:#?}");
    }

    #[test]
    fn what_no_engine_has_and_what_failed_is_marked() {
        let failed = Row { measured: Err("client: refused".to_owned()), ..row("TLS_RSA_WITH_NULL_MD5", 1) };
        let lines = lines("NULL", vec![failed]);
        let missing = "TLS_RSA_WITH_NULL_SHA no installed engine has it 3421 0.50 - - 8438 0.98 - - 1015 0.67 - - -";
        assert!(lines.iter().any(|line| line == missing), "{lines:#?}");
        let failed = "jsse TLS_RSA_WITH_NULL_MD5 - RSA-2048 - - - - - - - - - - failed: client: refused";
        assert!(lines.iter().any(|line| line == failed), "{lines:#?}");
    }

    #[test]
    fn engines_that_were_not_asked_for_may_have_what_is_missing() {
        let plan = Plan { engines: vec![EngineName::Rustls], only: vec!["NULL_SHA".to_owned()], work: Work::PAPER };
        let report = Report { present: Vec::new(), absent: Vec::new(), rows: Vec::new() };
        let text = Text { plan: &plan, report: &report }.to_string();
        assert!(text.contains("no selected engine has it") && !text.contains("no installed engine"), "{text}");
    }

    #[test]
    fn suites_that_were_not_asked_for_are_not_marked() {
        let lines = lines("TLS_AES_128_GCM", vec![row("TLS_AES_128_GCM_SHA256", 1)]);
        assert!(lines[0].starts_with("All measurements (100.0 MB, 1000 connections)"), "{lines:#?}");
    }
}
