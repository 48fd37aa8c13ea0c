//! Options about packets and their analysis, for captures of any source.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use watari_bench_engine::duration::{NoSpan, Span};
use watari_endings::{Profile, Servers, Settings};
use watari_packets::Decoder;
use watari_watch::pseudonyms::{Pseudonyms, Whose};
use watari_watch::{analysis, profile};

use crate::failure::Failure;

#[derive(Args)]
pub(super) struct Options {
    /// The profile that servers are judged by: `lab` (saturated past 25 % of aborts and timeouts together), `site`
    /// (normal up to 40 % of aborts and 10 % of timeouts), or a file (see --learn)
    #[arg(long, default_value = "site", value_name = "NAME")]
    profile: String,
    /// A server to report; repeatable [default: all]
    #[arg(long = "server", value_name = "ADDRESS:PORT")]
    servers: Vec<SocketAddr>,
    /// A port of servers to report; repeatable [default: all]
    #[arg(long = "port", value_name = "PORT")]
    ports: Vec<u16>,
    /// The time after its last request when a connection counts as timed out
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = some_time)]
    timeout: Span,
    /// The maximum number of connections to follow at a time
    #[arg(long, default_value_t = 1 << 20, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=1 << 26))]
    connections_max: u32,
    /// A UDP port of VXLAN, instead of 4789
    #[arg(long = "vxlan-port", value_name = "PORT")]
    vxlan_ports: Vec<u16>,
    /// Leave out packets with wrong checksums. This machine's own packets have them if its network card computes them
    #[arg(long)]
    verify_checksums: bool,
    /// Replace the addresses of `clients`, or of `all`, by others. Addresses of one network keep a common prefix
    #[arg(long, value_name = "WHOSE")]
    anonymize: Option<Anonymize>,
    /// A file of 64 hexadecimal digits (openssl rand -hex 32). With it, an address gets the same replacement in every
    /// run; without it, another one in each run
    #[arg(long, value_name = "FILE", requires = "anonymize")]
    anonymize_key: Option<PathBuf>,
}

/// A time longer than one capture takes.
fn some_time(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error: NoSpan| error.to_string())?;
    if span.get() >= TIMEOUT_MIN { Ok(span) } else { Err(format!("{text} is less than 1s")) }
}

const TIMEOUT_MIN: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Anonymize {
    Clients,
    All,
}

impl From<Anonymize> for Whose {
    fn from(whose: Anonymize) -> Self {
        match whose {
            Anonymize::Clients => Self::Clients,
            Anonymize::All => Self::All,
        }
    }
}

impl Options {
    pub(super) fn profile(&self) -> Result<Profile, Failure> {
        Ok(profile::named(&self.profile)?)
    }

    pub(super) fn analysis(&self) -> Result<analysis::Options, Failure> {
        let pseudonyms = match (self.anonymize, &self.anonymize_key) {
            (None, _) => None,
            (Some(whose), None) => Some(Pseudonyms::drawn(whose.into())),
            (Some(whose), Some(path)) => Some(Pseudonyms::load(whose.into(), path)?),
        };
        let (decoder, settings) = (self.decoder(), self.settings());
        Ok(analysis::Options { decoder, settings, pseudonyms: pseudonyms.map(Arc::new) })
    }

    pub(super) fn decoder(&self) -> Decoder {
        let mut decoder = Decoder { verify_checksums: self.verify_checksums, ..Decoder::default() };
        if !self.vxlan_ports.is_empty() {
            decoder.vxlan_ports.clone_from(&self.vxlan_ports);
        }
        decoder
    }

    fn settings(&self) -> Settings {
        let default = Settings::default();
        Settings {
            timeout: self.timeout.get(),
            connections_max: self.connections_max,
            half_open_max: default.half_open_max.min(self.connections_max / 2),
            over_max: default.over_max.min(self.connections_max / 4),
            servers: Servers { ports: self.ports.clone(), addresses: self.servers.clone() },
            // Senders of packets must not be able to predict collisions in hash tables.
            seed: RandomState::new().build_hasher().finish(),
            ..default
        }
    }
}
