//! `watari bench http --make-list`: an access list on the standard output.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use watari_bench_analysis::access_log::LogCount;
use watari_bench_analysis::make_list::from_log::{Clients, FromLog};
use watari_bench_analysis::make_list::{Recipe, TlsShare, WeightedRange, parse_ask, write};
use watari_bench_engine::list::Ask;

use crate::failure::Failure;
use crate::output::print_line;

/// The options of `--make-list`. Commands have them as `Option<MakeList>`, which is `None` if none of them is given.
#[derive(Args)]
#[command(next_help_heading = "Making an access list")]
pub(crate) struct MakeList {
    /// Print an access list, and send nothing
    #[arg(id = "make_list", long = "make-list", requires = "what")]
    wanted: bool,
    /// A path of the list, with options as in a list; weight= is its share; repeatable
    #[arg(long = "uri", group = "what", value_name = "URI [KEY=VALUE ...]", value_parser = parse_ask)]
    #[arg(requires = "make_list")]
    asks: Vec<Ask>,
    /// Make the list from a server's access log, in the common or the combined format
    #[arg(long, group = "what", value_name = "FILE", requires = "make_list")]
    from_log: Option<PathBuf>,
    /// A range of source addresses, with a share: 10.0.0.0/24=8; repeatable [default: any]
    #[arg(long, value_name = "ADDRESSES=SHARE", requires = "asks", conflicts_with = "from_log")]
    from: Vec<WeightedRange>,
    /// The number of lines
    #[arg(long, value_name = "N", requires = "asks", conflicts_with = "from_log", default_value_t = 1000)]
    lines: u32,
    /// The seed of the random source addresses
    #[arg(long, value_name = "N", requires = "asks", conflicts_with = "from_log", default_value_t = 1)]
    from_seed: u64,
    /// Use any source address, not the addresses in the log
    #[arg(long, requires = "from_log", conflicts_with = "asks")]
    from_anywhere: bool,
    /// The share of requests over TLS: 0.3, or 30%
    #[arg(long, value_name = "SHARE", requires = "make_list", default_value = "0")]
    tls_share: TlsShare,
}

impl MakeList {
    /// Prints the list.
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let mut out = BufWriter::new(io::stdout().lock());
        match &self.from_log {
            Some(path) => self.of_log(path, &mut out)?,
            None => write(self.recipe().lines()?, &mut out).map_err(Failure::Output)?,
        }
        out.flush().map_err(Failure::Output)
    }

    fn of_log(&self, path: &Path, out: &mut impl Write) -> Result<(), Failure> {
        let clients = if self.from_anywhere { Clients::Any } else { Clients::AsLogged };
        let count = FromLog { clients, tls: self.tls_share }.write_of_file(path, out)?;
        print_skipped(path, &count);
        Ok(())
    }

    fn recipe(self) -> Recipe {
        Recipe { from: self.from, asks: self.asks, tls: self.tls_share, lines: self.lines, seed: self.from_seed }
    }
}

/// Reports the lines of the log that were skipped.
fn print_skipped(path: &Path, count: &LogCount) {
    for bad in &count.first_bad {
        print_line(format_args!("watari: skipped {bad}"));
    }
    if count.bad > count.first_bad.len() as u64 {
        let all = count.good + count.bad;
        print_line(format_args!("watari: skipped {} of {all} lines of {}", count.bad, path.display()));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        make_list: Option<MakeList>,
    }

    fn parse(words: &[&str]) -> Result<Option<MakeList>, ErrorKind> {
        let command = Command::try_parse_from([&["command"], words].concat());
        command.map(|command| command.make_list).map_err(|error| error.kind())
    }

    #[test]
    fn there_is_nothing_to_make_unless_asked_for() {
        assert!(matches!(parse(&[]), Ok(None)));
        assert!(matches!(parse(&["--make-list", "--uri", "/"]), Ok(Some(_))));
        assert!(matches!(parse(&["--make-list", "--from-log", "a.log", "--from-anywhere"]), Ok(Some(_))));
    }

    #[test]
    fn options_that_do_not_fit_are_refused() {
        for words in [&["--make-list"][..], &["--uri", "/"], &["--make-list", "--from-anywhere"]] {
            assert_eq!(parse(words).err(), Some(ErrorKind::MissingRequiredArgument), "{words:?}");
        }
        // An option that conflicts with another is no longer required. So each case here fails because of the conflict.
        assert_eq!(parse(&["--make-list", "--uri=/", "--from-anywhere"]).err(), Some(ErrorKind::ArgumentConflict));
        for option in ["--uri=/", "--from=::1", "--lines=1", "--from-seed=1"] {
            let words = ["--make-list", "--from-log", "a.log", option];
            assert_eq!(parse(&words).err(), Some(ErrorKind::ArgumentConflict), "{option}");
        }
    }
}
