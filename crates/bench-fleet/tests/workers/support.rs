//! Workers, controllers and plans.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinHandle;
use watari_bench_engine::connection_log::ConnectionLog;
use watari_bench_engine::list::AccessList;
use watari_bench_engine::plan::{Pace, Plan, Protocol, Stop, Timeouts};
use watari_bench_engine::requests::{Requests, Sites};
use watari_bench_engine::site::Site;
use watari_bench_engine::tls::TlsOptions;
use watari_bench_fleet::fleet::{Finished, Fleet, Running, StartError};
use watari_bench_fleet::worker::Listening;
use watari_pki::{Authority, Identity};
use watari_values::{NodeName, Role};

use crate::server::Server;

/// A cluster with a controller `lead`, workers `w1` to `w3`, and an agent `a1`.
pub(crate) fn cluster() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path(), "c").unwrap();
    for (name, role) in
        [("lead", Role::Bench), ("w1", Role::Bench), ("w2", Role::Bench), ("w3", Role::Bench), ("a1", Role::Agent)]
    {
        authority.issue(&NodeName::new(name).unwrap(), &[role], 1).unwrap();
    }
    dir
}

pub(crate) fn identity(dir: &Path, name: &str) -> Identity {
    Identity::load(dir, &NodeName::new(name).unwrap()).unwrap()
}

/// A listening worker. It ends with the test.
pub(crate) struct Worker {
    pub(crate) address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Worker {
    pub(crate) async fn start(dir: &Path, name: &str) -> Self {
        let listening = Listening::on("127.0.0.1:0".parse().unwrap(), identity(dir, name), None).await.unwrap();
        let address = listening.address().unwrap();
        Self { address, serving: tokio::spawn(listening.run()) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

pub(crate) async fn workers(dir: &Path, count: usize) -> Vec<Worker> {
    let mut workers = Vec::new();
    for number in 1..=count {
        workers.push(Worker::start(dir, &format!("w{number}")).await);
    }
    workers
}

/// The workers, controlled by the node of this name.
pub(crate) fn fleet(dir: &Path, node: &str, workers: &[Worker]) -> Fleet {
    Fleet::Workers {
        addresses: workers.iter().map(|worker| worker.address.to_string()).collect(),
        identity: Box::new(identity(dir, node)),
        stagger: Duration::ZERO,
    }
}

/// Requests the lines of a list over persistent connections.
pub(crate) fn plan(server: &Server, list: &str, connections: usize, stop: Stop) -> Plan {
    let list = AccessList::parse("list", list, |_| unreachable!("no line names a file")).unwrap();
    let site = Site::resolve(&format!("http://{}/", server.address)).unwrap().0;
    let sites = Sites { plain: Some(Arc::new(site)), tls: None };
    Plan {
        work: Requests::prepare(&list, &sites).unwrap().into(),
        sources: None,
        pace: Pace::Closed { connections },
        stop,
        protocol: Protocol::Http1 { requests_per_connection: None, pipeline: 1 },
        tls: TlsOptions::default(),
        timeouts: Timeouts::default(),
        threads: 1,
    }
}

pub(crate) fn requests(count: u64) -> Stop {
    Stop { requests: Some(count), after: None }
}

/// Starts a run. Blocks, like the command.
pub(crate) async fn start(fleet: &Fleet, plan: Plan) -> Result<Running, StartError> {
    start_logged(fleet, plan, None).await
}

pub(crate) async fn start_logged(
    fleet: &Fleet,
    plan: Plan,
    log: Option<Arc<dyn ConnectionLog>>,
) -> Result<Running, StartError> {
    let fleet = fleet.clone();
    tokio::task::spawn_blocking(move || fleet.start(plan, log)).await.unwrap()
}

pub(crate) async fn finish(running: Running) -> Finished {
    tokio::task::spawn_blocking(|| running.finish()).await.unwrap()
}

pub(crate) async fn run(fleet: &Fleet, plan: Plan) -> Finished {
    finish(start(fleet, plan).await.unwrap()).await
}

/// The error of a run that could not begin.
pub(crate) async fn refused(fleet: &Fleet, plan: Plan) -> String {
    start(fleet, plan).await.unwrap_err().to_string()
}

/// Waits for a state. The timeout is far longer than it takes.
pub(crate) async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
