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

/// Say of web servers, from packets alone, whether they are normal, saturated or stopped
#[derive(Args)]
pub(crate) struct Watch {
    #[command(subcommand)]
    command: Command,
}

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
