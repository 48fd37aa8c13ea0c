//! `watari demo`: a whole cluster on loopback.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::demo::{self, origin};
use crate::failure::Failure;
use crate::process;

/// Run a whole cluster on loopback: a dispatcher, three agents, two origins
#[derive(Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Demo {
    /// Run the scenario, print the results, and end: status 0 only if all bytes arrived as expected
    #[arg(long)]
    once: bool,
    #[command(subcommand)]
    part: Option<Part>,
}

const EXAMPLES: &str = "\
Examples:
  watari demo           runs until Ctrl-C, and prints how to reach it
  watari demo --once    400 connections, both TLS versions, both kinds of key";

#[derive(Subcommand)]
enum Part {
    /// Run only one of the demo's origins, until the process that started it ends
    ///
    /// It serves a directory over plain HTTP, and answers PUT and POST with the SHA-256 of the body. Its first line of
    /// output is the address that it listens on.
    #[command(after_help = "Example:\n  watari demo origin --root . --listen 127.0.0.1:8080")]
    Origin {
        /// The directory to serve
        #[arg(long)]
        root: PathBuf,
        /// The address to listen on; port 0 selects a free port
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
}

impl Demo {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Runtime::new().map_err(Failure::Start)?;
        match self.part {
            Some(Part::Origin { root, listen }) => {
                process::end_with_parent().map_err(Failure::Start)?;
                runtime.block_on(origin::run(&root, listen)).map_err(Failure::Start)
            }
            None if self.once => Ok(runtime.block_on(demo::once())?),
            None => Ok(runtime.block_on(demo::stay_up())?),
        }
    }
}
