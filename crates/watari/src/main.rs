//! The `watari` command: a TLS-terminating load-balancing cluster that moves live connections between its agents.
//!
//! Each subcommand has a file in `commands`. The subcommands share these modules:
//!
//! * `config`: the configuration file of a node;
//! * `admin`: questions and orders to a running node;
//! * `demo`: a whole cluster on loopback;
//! * `node`: a running node, composed of the crates of its roles;
//! * `output`: printing.

// Commands print through `output`: these macros panic if the reader has closed the output.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod admin;
mod commands;
mod config;
mod demo;
mod failure;
mod logging;
mod metrics_server;
mod node;
mod output;
mod process;
mod redirect;
mod table;

use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{CommandFactory, Parser, Subcommand};
use mimalloc::MiMalloc;

/// mimalloc 2 returns the memory of a burst to the system at no cost in CPU time, if each thread asks for it
/// ([`watari_sys::build_runtime`]). The table shows the share of the memory of 4,000 connections that an
/// agent kept 15 s after they had ended, and the CPU time of the agent relative to glibc's allocator:
///
/// | allocator | kept | request | connection | GiB of files | GiB forwarded |
/// | --- | --- | --- | --- | --- | --- |
/// | glibc | 0.74 (1.00 after one request each) | 1 | 1 | 1 | 1 |
/// | mimalloc 2.3.2, without that call | 0.16 (8,000: 0.29 to 0.85) | 0.94 to 1.07 | 0.85 | 1.00 | 1.10 |
/// | mimalloc 2.3.2 | 8,000: 0.09 (0.27 without `force`) | - | - | - | - |
/// | mimalloc 3.3.2 | 0.69 | 0.93 | 0.93 | 1.03 | - |
/// | jemalloc 5.3.0, `background_thread` | 0.09 | 0.95 | 1.07 | 2.77 | - |
/// | jemalloc 5.3.0, and `tcache_max:262144`, `dirty_decay_ms:3000` | 0.05 | 1.09 | 1.13 | 0.96 | - |
///
/// Huge pages of mimalloc cost 7 KiB more for each idle connection.
/// With glibc, `malloc_trim` leaves a share of 0.05. jemalloc starts threads, but `watari watch` must drop its
/// privileges before any thread runs.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// A TLS cluster that moves live connections between its servers.
#[derive(Parser)]
#[command(version = VERSION.as_str(), after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// With the commit, in builds of `make install` and `make lab`.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let version = env!("CARGO_PKG_VERSION");
    let commit = option_env!("WATARI_COMMIT").filter(|commit| !commit.is_empty());
    commit.map_or_else(|| version.to_owned(), |commit| format!("{version} ({commit})"))
});

const EXAMPLES: &str = "\
Examples:
  watari demo                             a whole cluster on loopback, to try
  watari pki init --dir pki               a certificate authority for a cluster
  watari run --config node.toml           a node
  watari ctl connections                  its connections
  watari ctl drain a1                     move all connections away from an agent

Exit status: 0 done, 1 failed, 2 wrong usage or configuration.";

#[derive(Subcommand)]
enum Command {
    Run(commands::run::Run),
    Ctl(commands::ctl::Ctl),
    Pki(commands::pki::Pki),
    Demo(commands::demo::Demo),
    Bench(commands::bench::Bench),
    Watch(commands::watch::Watch),
    Lab(commands::lab::Lab),
    Schema(commands::schema::Schema),
    Completions(commands::completions::Completions),
    Man(commands::man::Man),
}

/// The description of the command line, from which completions and manual pages are generated.
fn command_line() -> clap::Command {
    Arguments::command()
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run(run) => run.execute(),
        Command::Ctl(ctl) => ctl.execute(),
        Command::Pki(pki) => pki.execute(),
        Command::Demo(demo) => demo.execute(),
        Command::Bench(bench) => bench.execute(),
        Command::Watch(watch) => watch.execute(),
        Command::Lab(lab) => lab.execute(),
        Command::Schema(_) => commands::schema::Schema::execute(),
        Command::Completions(completions) => completions.execute(),
        Command::Man(man) => man.execute(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
