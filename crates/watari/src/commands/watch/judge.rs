//! `watari watch judge`: judges servers by the reports of sensors on other machines.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use clap::Args;
use tokio::runtime::Builder;
use watari_pki::Identity;
use watari_values::NodeName;
use watari_watch::board::Board;
use watari_watch::link::{Clock, Judge, Listening};
use watari_watch::profile;

use super::outlets::{Outlets, listen};
use super::printer::Style;
use super::show::{Elsewhere, Show, Shown, logs_for};
use crate::failure::Failure;

/// Judge servers from the reports of sensors on other machines: see `watari watch live --report-to`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct JudgeCommand {
    /// The address to listen on for sensors
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// The directory of keys and certificates
    #[arg(long, default_value = "pki", value_name = "DIR")]
    pki: PathBuf,
    /// This judge's name in its certificate
    #[arg(long, value_name = "NAME", value_parser = NodeName::new)]
    node: NodeName,
    /// The profile that servers are judged by: `lab`, `site`, or a file (see `watari watch pcap --learn`)
    #[arg(long, default_value = "site", value_name = "NAME")]
    profile: String,
    /// Print an object of JSON for each change of a server's state
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    outlets: Outlets,
}

const EXAMPLES: &str = "\
Examples:
  watari pki init --cluster north
  watari pki issue s1 --role sensor; watari pki issue j1 --role judge
  watari watch judge --listen 192.0.2.9:7400 --node j1 --page 127.0.0.1:8484
  watari watch live -i eth0 --report-to 192.0.2.9:7400 --node s1          on each machine that listens

Sensors and the judge authenticate each other by certificates of one authority.";

impl JudgeCommand {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let profile = profile::named(&self.profile)?;
        let shown = match self.json {
            true => Shown::Printed(Style::Objects),
            false if self.outlets.plain => Shown::Printed(Style::Lines),
            false => Shown::View(format!("watari watch judge --listen {}", self.listen)),
        };
        logs_for(&shown);
        let identity = Identity::load(&self.pki, &self.node)?;
        let listener = listen(self.listen)?;
        let opened = self.outlets.open()?;
        self.outlets.drop_privileges(&opened, false)?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Start)?;
        let board = Arc::new(Mutex::new(Board::new(profile)));
        runtime.block_on(async {
            let judge = Judge::new(Arc::clone(&board), Clock::system());
            let listening = Listening::on(listener, identity, judge.clone())?;
            let show = Show::new(shown, &board, opened, Elsewhere::Sensors(judge))?;
            let _serving = tokio::spawn(listening.run());
            show.run(None, &self.outlets).await
        })
    }
}
