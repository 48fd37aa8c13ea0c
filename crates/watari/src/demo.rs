//! A whole cluster on loopback: one dispatcher, three agents and two origins, each in a process of its own.
//!
//! * `layout` makes their environment: a directory with certificates, content and configurations, and free addresses.
//! * `cluster` starts the processes, waits until they are ready, and ends them.
//! * `origin` is the program of the origins.
//! * `scenario` runs many `visitor`s, and `report` summarizes their results.

mod client_tls;
mod cluster;
mod content;
mod error;
mod layout;
pub(crate) mod origin;
mod process;
mod random;
mod report;
mod scenario;
mod site;
mod visitor;

use std::io;

use crate::output::write;
use crate::process::EndSignals;
use cluster::Cluster;
pub(crate) use error::DemoError;
use error::doing;

/// Starts the cluster, and runs it until Ctrl-C.
pub(crate) async fn stay_up() -> Result<(), DemoError> {
    let mut end = EndSignals::listen().map_err(doing("handling signals"))?;
    let mut cluster = tokio::select! {
        cluster = Cluster::start() => cluster?,
        _ = end.next() => return Ok(()),
    };
    let _ = write(format_args!("{}\n", cluster.layout.guide()));
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
        let _ = write(&report);
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
