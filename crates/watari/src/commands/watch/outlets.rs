//! Outputs of server states: terminal, page, metrics and receivers of alerts.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use clap::Args;
use watari_bench_engine::duration::Span;
use watari_capture::privileges::{self, Keep, PrivilegesError};
use watari_watch::{alerting, web};

use crate::failure::Failure;

const NO_PAGE: &str =
    "this build has no page: build it with `--features page`, which needs Node.js and npm, or use `make install`";

#[derive(Args)]
pub(super) struct Outlets {
    /// Print changes of states as lines, even in a terminal
    #[arg(long)]
    pub(super) plain: bool,
    /// Serve a page with all states on this address
    #[arg(long, value_name = "ADDRESS:PORT")]
    page: Option<SocketAddr>,
    /// A host name that the page accepts, besides localhost and addresses; repeatable
    #[arg(long = "page-host", value_name = "NAME", requires = "page")]
    page_hosts: Vec<String>,
    /// Serve metrics for Prometheus on this address
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Notify the receivers in this file when a server is saturated or stopped, and when it no longer is
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// End after this time
    #[arg(short, long, value_name = "TIME")]
    pub(super) duration: Option<Span>,
    /// The user to run as after the start, if started by root
    #[arg(long, value_name = "NAME", default_value = privileges::DEFAULT_USER)]
    user: String,
}

/// Resources that must be open before privileges are dropped.
pub(super) struct Opened {
    pub(super) page: Option<Page>,
    pub(super) metrics: Option<TcpListener>,
    pub(super) alerting: alerting::Config,
}

/// A page with a listener, before its server starts.
pub(super) struct Page {
    pub(super) listener: TcpListener,
    pub(super) hosts: Vec<String>,
}

impl Outlets {
    pub(super) fn open(&self) -> Result<Opened, Failure> {
        let alerting = self.config.as_deref().map(alerting::Config::load).transpose()?.unwrap_or_default();
        if self.page.is_some() && !web::HAS_PAGE {
            return Err(Failure::Usage(NO_PAGE.into()));
        }
        let page = self.page.map(listen).transpose()?;
        let page = page.map(|listener| Page { listener, hosts: self.page_hosts.clone() });
        Ok(Opened { page, metrics: self.metrics.map(listen).transpose()?, alerting })
    }

    /// Drops all privileges except those that alerts need. Call it before any thread starts, and before any untrusted
    /// input is read. `names`: keeps the privileges that look up names of other machines.
    pub(super) fn drop_privileges(&self, opened: &Opened, names: bool) -> Result<(), Failure> {
        let mut keep = Keep { user: privileges::user().map(|_| self.user.clone()), names, ..Keep::default() };
        opened.alerting.keep(&mut keep);
        let dropped = privileges::drop_all(&keep).map_err(|error| match error {
            PrivilegesError::User { .. } => Failure::User(error),
            other => other.into(),
        })?;
        tracing::info!(%dropped, "privileges dropped");
        Ok(())
    }

    pub(super) async fn time_over(&self) {
        match self.duration {
            Some(duration) => tokio::time::sleep(duration.get()).await,
            None => std::future::pending().await,
        }
    }
}

pub(super) fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|error| Failure::Bind(address, error))
}
