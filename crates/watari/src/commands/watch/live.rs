//! `watari watch live`: captures at interfaces.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use clap::Args;
use tokio::runtime::Builder;
use watari_packets::GENEVE_PORT;
use watari_pki::Identity;
use watari_values::NodeName;
use watari_watch::board::Board;
use watari_watch::link::{self, Reporter};
use watari_watch::listener::Listener;
use watari_watch::live::Live;

use super::options::Options;
use super::outlets::Outlets;
use super::output::Format;
use super::printer::Style;
use super::show::{Elsewhere, Show, Shown, logs_for};
use crate::failure::Failure;

/// Capture on interfaces, and report the states of servers
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each flag of the command line is a field")]
pub(crate) struct LiveCommand {
    /// An interface; `any` is all of them
    #[arg(short, long = "interface", value_name = "NAME", required = true)]
    interfaces: Vec<String>,
    /// The filter of captured packets, in the syntax of tcpdump (pcap-filter(7)). It does not match packets within
    /// tunnels [default: TCP and tunnels]
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Octets of each packet to capture. Endings need 96, or 160 within tunnels; values of TLS and HTTP need more
    #[arg(long, value_name = "OCTETS", default_value_t = watari_capture::SNAP_LEN, value_parser = clap::value_parser!(u32).range(64..=262_144))]
    snap_len: u32,
    /// Threads for each interface, which share its connections. With more than 1, VXLAN and Geneve are left out:
    /// different threads would get their two directions
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: u8,
    /// Memory of the capture ring of each thread, in MiB
    #[arg(long, value_name = "MIB", default_value_t = watari_capture::RING_BYTES >> 20, value_parser = clap::value_parser!(u32).range(1..=1024))]
    ring: u32,
    /// Also capture packets to other machines, as on a mirror port
    #[arg(long)]
    promiscuous: bool,
    /// Print an object of JSON for each connection that ends
    #[arg(long)]
    json: bool,
    /// Print a line of CSV for each connection that ends
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// With --json, print changes of states instead of connections
    #[arg(long, requires = "json")]
    states: bool,
    /// Report to a judge on another machine: see `watari watch judge`
    #[arg(long, value_name = "HOST:PORT", requires = "node")]
    report_to: Option<String>,
    /// The directory of keys and certificates
    #[arg(long, value_name = "DIR", default_value = "pki", requires = "report_to")]
    pki: PathBuf,
    /// This sensor's name in its certificate, which it shows to the judge
    #[arg(long, value_name = "NAME", value_parser = NodeName::new, requires = "report_to")]
    node: Option<NodeName>,
    #[command(flatten)]
    outlets: Outlets,
    #[command(flatten)]
    options: Options,
}

const EXAMPLES: &str = "\
Examples:
  watari watch live -i eth0
  watari watch live -i eth0 --filter 'tcp port 443' --threads 2
  watari watch live -i lo --port 8080 --json --duration 60s > connections.jsonl
  watari watch live -i eth1 --promiscuous --profile monday.toml --metrics 127.0.0.1:9464
  watari watch live -i eth0 --page 127.0.0.1:8484 --config alerts.toml --plain
  watari watch live -i eth0 --report-to judge.example:7400 --node s1 --plain

Opening an interface needs the capability net_raw; the command then drops all privileges. A terminal shows a view;
otherwise there is a line for each change of a server's state.";

impl LiveCommand {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let profile = self.options.profile()?;
        let shown = self.shown();
        logs_for(&shown);
        let identity = self.node.as_ref().map(|node| Identity::load(&self.pki, node)).transpose()?;
        let opened = self.outlets.open()?;
        let mut rings = Vec::new();
        for interface in &self.interfaces {
            rings.extend(watari_capture::open(&self.capture(interface))?);
        }
        let analysis = self.options.analysis()?;
        let listener = || Listener::new(analysis.clone());
        let rings: Vec<_> = rings.into_iter().map(|ring| (ring, listener())).collect();
        self.outlets.drop_privileges(&opened, identity.is_some())?;
        let wants_events = (self.json || self.csv) && !self.states;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Start)?;
        let board = Arc::new(Mutex::new(Board::new(profile)));
        runtime.block_on(async {
            let elsewhere = match (&self.report_to, identity) {
                (Some(judge), Some(identity)) => {
                    Elsewhere::Judge(Reporter::start(judge.clone(), identity, link::Options::default())?)
                }
                _ => Elsewhere::None,
            };
            let show = Show::new(shown, &board, opened, elsewhere)?;
            let live = Live::start(rings, wants_events).map_err(Failure::Start)?;
            show.run(Some(live), &self.outlets).await
        })
    }

    fn capture(&self, interface: &str) -> watari_capture::Options {
        watari_capture::Options {
            filter: Some(self.filter.clone().unwrap_or_else(|| self.usual_filter())),
            snap_len: self.snap_len,
            ring_bytes: self.ring << 20,
            threads: self.threads.into(),
            promiscuous: self.promiscuous,
            ..watari_capture::Options::new(interface)
        }
    }

    fn usual_filter(&self) -> String {
        // MPLS, PPPoE, IP in IP (RFC 2003, RFC 4213) and GRE (RFC 2784), by their numbers: names are looked up in a
        // file.
        let ether_types = ["0x8847", "0x8848", "0x8864"].map(|number| format!("ether proto {number}"));
        let protocols = ["tcp", "proto 4", "proto 41", "proto 47"].map(str::to_owned);
        let vxlan_ports = self.options.decoder().vxlan_ports.into_iter();
        let udp = vxlan_ports.chain([GENEVE_PORT]).filter(|_| self.threads == 1).map(|port| format!("udp port {port}"));
        protocols.into_iter().chain(ether_types).chain(udp).collect::<Vec<_>>().join(" or ")
    }

    fn shown(&self) -> Shown {
        match (self.json, self.csv, self.states) {
            (true, _, true) => Shown::Printed(Style::Objects),
            (true, ..) => Shown::Printed(Style::Rows(Format::Json)),
            (_, true, _) => Shown::Printed(Style::Rows(Format::Csv)),
            _ if self.outlets.plain => Shown::Printed(Style::Lines),
            _ => Shown::View(format!("watari watch live -i {}", self.interfaces.join(" -i "))),
        }
    }
}
