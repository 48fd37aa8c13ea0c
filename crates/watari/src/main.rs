//! The `watari` command: a TLS cluster whose live connections change hands.
//!
//! One file per subcommand in `commands`; what they share lies beside it:
//!
//! * `config`: the configuration file of a node;
//! * `admin`: questions to a running node;
//! * `demo`: a whole cluster on loopback;
//! * `node`: a running node, put together from the crates of its roles;
//! * `output`: what is printed.

// Output goes through `output`: these macros panic where the reader has gone.
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

use clap::{Parser, Subcommand};

/// A TLS cluster whose live connections change hands.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  watari demo                             a whole cluster on loopback, to try
  watari pki init --dir pki               a certificate authority for a cluster
  watari run --config node.toml           a node
  watari ctl connections                  what it is doing
  watari ctl drain a1                     empty an agent, without cutting anything

Exit status: 0 done, 1 failed, 2 wrong usage or configuration.";

#[derive(Subcommand)]
enum Command {
    Run(commands::run::Run),
    Ctl(commands::ctl::Ctl),
    Pki(commands::pki::Pki),
    Demo(commands::demo::Demo),
    Bench(commands::bench::Bench),
    Watch(commands::watch::Watch),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run(run) => run.execute(),
        Command::Ctl(ctl) => ctl.execute(),
        Command::Pki(pki) => pki.execute(),
        Command::Demo(demo) => demo.execute(),
        Command::Bench(bench) => bench.execute(),
        Command::Watch(watch) => watch.execute(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
