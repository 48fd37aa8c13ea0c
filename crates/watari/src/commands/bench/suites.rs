//! `watari bench suites`: the costs of cipher suites, and the savings of resumed sessions.

mod text;

use std::io::{self, IsTerminal};

use clap::Args;
use watari_bench_suites::engine_name::EngineName;
use watari_bench_suites::measure::{Plan, Report, measure};
use watari_bench_suites::row::Row;
use watari_bench_suites::work::Work;
use watari_values::size::Size;

use crate::commands::print::{print, print_json};
use crate::failure::Failure;
use crate::output::print_line;

/// Measure the cost of cipher suites, and the savings of session resumption
///
/// For each suite, over loopback: one connection with much data, new connections with a full handshake and one byte of
/// data each, and as many that resume a session. The CPU times of client and server are separate. Suites of "Maniac
/// Java Programming 10" (2009) have that paper's times beside them.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Suites {
    /// Only this engine: rustls, openssl or jsse (a JDK); repeatable [default: all that are installed]
    #[arg(long = "engine", value_name = "ENGINE", value_delimiter = ',')]
    engines: Vec<EngineName>,
    /// Only suites whose name contains this; repeatable
    #[arg(long = "suite", value_name = "PART", value_delimiter = ',')]
    only: Vec<String>,
    /// The length of the bulk transfer
    #[arg(long, value_name = "SIZE", default_value = "100MB")]
    bulk: Size,
    /// The number of new connections, and of connections that resume a session
    #[arg(long, value_name = "N", default_value_t = Work::PAPER.connections, value_parser = clap::value_parser!(u32).range(1..=CONNECTIONS_MAX))]
    connections: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  watari bench suites                                        every suite of every engine; takes some minutes
  watari bench suites --suite SSL_RSA_WITH_RC4_128_MD5       one, by the paper's name or IANA's
  watari bench suites --engine rustls --engine openssl --bulk 1GB --connections 5000 --json";

/// More connections do not improve a result.
const CONNECTIONS_MAX: i64 = 1_000_000;

impl Suites {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let work = Work { bulk_bytes: self.bulk.0, connections: self.connections };
        let plan = Plan { engines: self.engines, only: self.only, work };
        let report = measure(&plan, &mut progress)?;
        if self.json {
            tell_absent(&report);
            return print_json(&report.rows);
        }
        print(text::Text { plan: &plan, report: &report })
    }
}

/// Shows the progress, because a run takes minutes.
fn progress(row: &Row) {
    if io::stderr().is_terminal() {
        let failed = if row.measured.is_ok() { "" } else { ": failed" };
        print_line(format_args!("{} {}{failed}", row.engine, row.suite));
    }
}

fn tell_absent(report: &Report) {
    for (engine, why) in &report.absent {
        print_line(format_args!("watari: without {engine}: {why}"));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        suites: Suites,
    }

    #[test]
    fn the_work_is_the_papers_unless_something_is_said() {
        let Suites { bulk, connections, .. } = Command::parse_from(["command"]).suites;
        assert_eq!((bulk.0, connections), (Work::PAPER.bulk_bytes, Work::PAPER.connections));
    }

    #[test]
    fn sizes_that_are_none_are_refused_with_what_is_one() {
        for text in ["", "much", "99999999999999999999999GB"] {
            let refused = Command::try_parse_from(["command", "--bulk", text]);
            assert!(refused.is_err_and(|why| why.to_string().contains("100MB")), "{text}");
        }
    }
}
