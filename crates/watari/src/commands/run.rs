//! `watari run`: a node.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use prometheus_client::registry::Registry;
use serde::Serialize;

use super::print::{print, print_json};
use crate::config::{Config, Loaded, SiteMetrics};
use crate::failure::Failure;
use crate::node::expiry::{self, Expiry};
use crate::node::{NodeError, Outside};
use crate::process::capabilities::{self, Needs};
use crate::{logging, node, process};

/// Run a node
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch on the command line")]
pub(crate) struct Run {
    /// The node's configuration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Only check the configuration and the files it names
    #[arg(long)]
    check: bool,
    /// Only check the configuration and this machine, and print what the node would do to its interfaces
    ///
    /// That is for service addresses ([dispatcher.takeover], [dispatcher.multipath]). Nothing is changed.
    #[arg(long = "dry-run", conflicts_with = "check")]
    dry: bool,
    /// With --check: print JSON
    #[arg(long, requires = "check")]
    json: bool,
    /// End when the process that started this one ends
    #[arg(long, conflicts_with_all = ["check", "dry"])]
    with_parent: bool,
    /// Take over from the process at the standard input: `watari ctl upgrade` starts a node so
    #[arg(long, hide = true, conflicts_with = "check")]
    successor: bool,
}

const EXAMPLES: &str = "\
Examples:
  watari run --config d1.toml
  watari run --config d1.toml --check
  watari run --config d1.toml --dry-run

On SIGTERM an agent moves its connections to others, for at most [node] drain_timeout, and the node ends; SIGINT, or a
second signal, ends it at once. On SIGHUP the node reads its configuration again, like `watari ctl reload`. On SIGUSR1
it opens its access log again, after logrotate has renamed it. SIGUSR2, SIGALRM and other signals without a meaning
are ignored. When the node is ready, it prints a line on the standard error, and sends READY=1 to $NOTIFY_SOCKET
(sd_notify(3)).";

/// The output of `--check --json`.
#[derive(Serialize)]
struct Checked<'a> {
    config: &'a Path,
    node: &'a str,
    roles: Vec<&'a str>,
    peers: usize,
    certificates: usize,
}

impl Run {
    /// Prints a summary of the valid configuration. With mistakes, the command has ended before.
    fn checked(&self, config: &Config, loaded: &Loaded) -> Result<(), Failure> {
        let tls = config.agent.as_ref().and_then(|agent| agent.tls.as_ref());
        let checked = Checked {
            config: &self.config,
            node: config.node.name.value.as_str(),
            roles: loaded.roles.iter().map(|role| role.as_str()).collect(),
            peers: config.peers.len(),
            certificates: tls.map_or(0, |tls| tls.certificates.len()),
        };
        if self.json {
            return print_json(&checked);
        }
        let Checked { config, node, roles, peers, certificates } = checked;
        let (config, roles) = (config.display(), roles.join(", "));
        print(format_args!("{config} is valid: node {node}, {roles}; peers {peers}, certificates {certificates}\n"))
    }

    pub(crate) fn execute(self) -> Result<(), Failure> {
        if self.with_parent {
            process::end_with_parent().map_err(Failure::Start)?;
        }
        process::outlive_request_signals().map_err(Failure::Start)?;
        // Before any key is read.
        process::forbid_core_dumps().map_err(Failure::Start)?;
        let config = Config::read(&self.config)?;
        // Before threads start, and before it reads files that it has to be able to read again.
        drop_capabilities(&config).map_err(Failure::Start)?;
        let mut registry = Registry::default();
        // A dispatcher has no site.
        let site = config.agent.as_ref().map(|_| SiteMetrics::register(&mut registry)).unwrap_or_default();
        let expiry = Expiry::register(&mut registry);
        let loaded = config.load(&site)?;
        if self.check {
            for warning in expiry::check(&config, SystemTime::now()) {
                writeln!(io::stderr(), "watari: warning: {warning}").map_err(Failure::Output)?;
            }
            return self.checked(&config, &loaded);
        }
        if self.dry {
            return dry_run(&config);
        }
        let level = logging::start(&config.log);
        // Dispatcher and agent start further threads for connections. The messages between nodes are little work, and
        // several threads that wake each other would only add to it.
        let runtime = watari_sys::build_runtime().map_err(Failure::Start)?;
        Ok(runtime.block_on(node::run(config, loaded, Outside { registry, site, level, expiry }, self.successor))?)
    }
}

fn drop_capabilities(config: &Config) -> io::Result<()> {
    let (takeover, multipath) = (config.takeover().is_some(), config.multipath().is_some());
    let needs = Needs { dispatcher: config.dispatcher.is_some(), addresses: takeover || multipath, multipath };
    capabilities::drop_others(needs)
}

/// Prints what the node would do to the interfaces of this machine.
fn dry_run(config: &Config) -> Result<(), Failure> {
    let runtime = watari_sys::build_runtime().map_err(Failure::Start)?;
    let takeover = config.takeover().cloned().map(|settings| runtime.block_on(watari_addresses::dry_run(settings)));
    let shared =
        config.multipath().cloned().map(|settings| runtime.block_on(watari_addresses::dry_run_shared(settings)));
    let text = match (takeover, shared) {
        (Some(described), _) => described.map_err(|error| NodeError::Takeover(config.takeover_error(&error)))?,
        (None, Some(described)) => described.map_err(|error| NodeError::Takeover(config.multipath_error(&error)))?,
        (None, None) => {
            "the configuration has neither [dispatcher.takeover] nor [dispatcher.multipath]: the node changes no \
             interface\n"
                .to_owned()
        }
    };
    print(format_args!("{text}"))
}
