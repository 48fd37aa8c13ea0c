//! `watari watch`: the state monitor.

mod judge;
mod live;
mod options;
mod outlets;
mod output;
mod pcap;
mod printer;
mod show;

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// Report from packets alone whether web servers are normal, saturated or stopped
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Watch {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  watari watch live -i eth0               the state of a running server
  watari watch pcap capture.pcap          the states of servers in a capture
  watari watch pcap --help                all options of a command";

#[derive(Subcommand)]
enum Command {
    Live(Box<live::LiveCommand>),
    Judge(Box<judge::JudgeCommand>),
    Pcap(Box<pcap::Pcap>),
}

impl Watch {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        match self.command {
            Command::Live(live) => live.execute(),
            Command::Judge(judge) => judge.execute(),
            Command::Pcap(pcap) => pcap.execute(),
        }
    }
}
