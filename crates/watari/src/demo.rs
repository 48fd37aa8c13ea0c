//! A whole cluster on loopback: one dispatcher, three agents and two origins, each in a process of its own.
//!
//! * `layout` makes their environment: a directory with certificates, content and configurations, and free addresses.
//! * `cluster` starts the processes, waits until they are ready, and ends them.
//! * `origin` is the program of the origins.
//! * `scenario` runs many `visitor`s, and `report` summarizes their results.

mod client_tls;
mod cluster;
mod content;
mod layout;
pub(crate) mod origin;
mod process;
mod random;
mod report;
mod scenario;
mod site;
mod visitor;

use std::io;
use std::path::PathBuf;

use watari_pki::PkiError;

use crate::output::print;
use crate::process::EndSignals;
use cluster::Cluster;

/// The name in the demo's certificates. `.test` is reserved (RFC 6761).
const HOST: &str = "demo.watari.test";

/// The demo did not start, did not keep running, or failed a check.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    #[error("{doing}: {cause}")]
    System { doing: String, cause: io::Error },
    #[error("cannot make the cluster's certificates: {0}")]
    Pki(#[from] PkiError),
    #[error("cannot make the site's certificates: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot set up the clients' TLS: {0}")]
    ClientTls(String),
    #[error("the process {name} ended ({status}); its last output: {last_words}")]
    Ended { name: String, status: String, last_words: String },
    #[error("the cluster was not ready within {seconds} s: {waiting_for}")]
    NotReady { seconds: u64, waiting_for: String },
    #[error("{failed} of the demo's checks failed; the nodes' logs are in {}", logs.display())]
    Failed { failed: usize, logs: PathBuf },
}

/// Starts the cluster, and runs it until Ctrl-C.
pub(crate) async fn stay_up() -> Result<(), DemoError> {
    let mut end = EndSignals::listen().map_err(doing("handling signals"))?;
    let mut cluster = tokio::select! {
        cluster = Cluster::start() => cluster?,
        _ = end.next() => return Ok(()),
    };
    let _ = print(format_args!("{}\n", cluster.layout.guide()));
    let ended = tokio::select! {
        ended = cluster.ended() => Err(ended),
        _ = end.next() => Ok(()),
    };
    cluster.stop().await;
    ended
}

/// Starts the cluster, runs the scenario, and prints the results.
pub(crate) async fn once() -> Result<(), DemoError> {
    let mut end = EndSignals::listen().map_err(doing("handling signals"))?;
    let interrupted = || DemoError::System { doing: "the demo".into(), cause: io::ErrorKind::Interrupted.into() };
    let demo = async {
        let mut cluster = Cluster::start().await?;
        let report = scenario::run(&mut cluster).await;
        cluster.stop().await;
        let report = report?;
        let _ = print(&report);
        match report.failed() {
            0 => Ok(()),
            failed => Err(DemoError::Failed { failed, logs: cluster.layout.keep() }),
        }
    };
    tokio::select! {
        result = demo => result,
        _ = end.next() => Err(interrupted()),
    }
}

fn doing(what: impl Into<String>) -> impl FnOnce(io::Error) -> DemoError {
    let doing = what.into();
    move |cause| DemoError::System { doing, cause }
}
