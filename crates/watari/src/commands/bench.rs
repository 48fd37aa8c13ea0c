//! `watari bench`: the load generator.

mod capacity;
mod compare;
mod http;
mod make_list;
mod options;
mod suites;
mod users;
mod worker;

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// Measure HTTP servers from the side of their clients
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Bench {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  watari bench http http://127.0.0.1:8080/ -n 10000 -c 100
  watari bench users https://www.example/ -r 50 -d 30s
  watari bench capacity https://www.example/ --expect 'p99<50ms'
  watari bench compare before.json after.json
  watari bench http --help                all options of a command, and more examples";

#[derive(Subcommand)]
enum Command {
    Http(Box<http::Http>),
    Capacity(Box<capacity::Capacity>),
    Compare(compare::Compare),
    Suites(suites::Suites),
    Users(Box<users::Users>),
    Worker(worker::Worker),
}

impl Bench {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        match self.command {
            Command::Http(http) => http.execute(),
            Command::Capacity(capacity) => capacity.execute(),
            Command::Compare(compare) => compare.execute(),
            Command::Suites(suites) => suites.execute(),
            Command::Users(users) => users.execute(),
            Command::Worker(worker) => worker.execute(),
        }
    }
}
