//! `watari bench worker`: makes load for a controller.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use tokio::runtime::Builder;
use tracing_subscriber::filter::Targets;
use watari_bench_engine::source::Sources;
use watari_bench_fleet::worker::{Listening, serve_parent};
use watari_pki::Identity;
use watari_values::NodeName;

use crate::commands::print::print;
use crate::config::{Log, LogFormat};
use crate::failure::Failure;
use crate::process::EndSignals;
use crate::{logging, process};

/// Generate load for a controller on another machine
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Worker {
    /// The address to listen on for controllers
    #[arg(long, value_name = "ADDRESS:PORT", required_unless_present = "with_parent", requires = "node")]
    listen: Option<SocketAddr>,
    /// The directory of keys and certificates
    #[arg(long, value_name = "DIR", default_value = "pki")]
    pki: PathBuf,
    /// This worker's name in its certificate: a node with the role bench
    #[arg(long, value_name = "NAME", value_parser = NodeName::new)]
    node: Option<NodeName>,
    /// Addresses of this machine to connect from, instead of those that the controller sets
    #[arg(long, value_name = "ADDRESSES")]
    source: Option<Sources>,
    /// Serve the process that started this one, over the standard input and output
    #[arg(long, hide = true, conflicts_with_all = ["listen", "node", "source"])]
    with_parent: bool,
}

const EXAMPLES: &str = "\
Examples:
  watari pki issue w1 --role bench
  watari bench worker --listen 10.0.0.7:7000 --pki pki --node w1

A worker needs ca.pem, NODE.pem and NODE.key. It serves one controller at a time, which needs a certificate of the same
authority with the role bench. The controller sets the requests, and the source addresses unless --source sets them.";

impl Worker {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Start)?;
        if self.with_parent {
            return runtime.block_on(serve_parent()).map_err(Failure::Start);
        }
        // Before any key is read.
        process::forbid_core_dumps().map_err(Failure::Start)?;
        let level = Targets::new().with_default(tracing::Level::INFO);
        logging::start(&Log { format: LogFormat::Text, level, repeats_max: logging::ALL_LINES });
        runtime.block_on(self.listen())
    }

    async fn listen(self) -> Result<(), Failure> {
        let (Some(address), Some(node)) = (self.listen, &self.node) else {
            return Err(Failure::Usage("a worker needs --listen and --node".to_owned()));
        };
        let identity = Identity::load(&self.pki, node)?;
        let mut signals = EndSignals::listen().map_err(Failure::Start)?;
        let listening = Listening::on(address, identity, self.source).await?;
        print(format_args!("listening on {}\n", listening.address().map_err(Failure::Start)?))?;
        tokio::select! {
            () = listening.run() => {}
            _ = signals.next() => {}
        }
        Ok(())
    }
}
