//! The log of the connections of workers.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::sleep;
use watari_bench_engine::connection_log::ConnectionLog;
use watari_bench_engine::plan::{Plan, Protocol, Stop};
use watari_bench_engine::sample::ConnectionSample;

use crate::server::Server;
use crate::support::{cluster, finish, fleet, plan, requests, start, start_logged, wait_until, workers};

/// Stores samples. While it is held, it blocks.
#[derive(Debug, Default)]
struct Log {
    samples: Mutex<Vec<ConnectionSample>>,
    held: AtomicBool,
}

impl ConnectionLog for Log {
    fn ended(&self, sample: &ConnectionSample) {
        while self.held.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        self.samples.lock().unwrap().push(sample.clone());
    }
}

impl Log {
    fn len(&self) -> usize {
        self.samples.lock().unwrap().len()
    }

    /// The addresses of the connections, sorted. The system reuses a port once it is free.
    fn clients(&self) -> Vec<SocketAddr> {
        let mut clients: Vec<_> = self.samples.lock().unwrap().iter().map(|sample| sample.local.unwrap()).collect();
        clients.sort_unstable();
        clients
    }
}

/// How many of `seen` are not in `told`. Both are sorted. Asserts that everything in `told` is also in `seen`, as
/// often.
fn untold(told: &[SocketAddr], seen: &[SocketAddr]) -> usize {
    let mut told = told.iter().peekable();
    let untold = seen.iter().filter(|client| told.next_if_eq(client).is_none()).count();
    assert_eq!(told.next(), None, "logged, but not seen by the server");
    untold
}

/// One connection for each request.
fn connections(server: &Server, list: &str, stop: Stop) -> Plan {
    let protocol = Protocol::Http1 { requests_per_connection: Some(1), pipeline: 1 };
    Plan { protocol, ..plan(server, list, 9, stop) }
}

const ENDLESS: Stop = Stop { requests: None, after: Some(Duration::from_hours(1)) };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_connection_of_every_worker_is_told_once() {
    let (dir, server, log) = (cluster(), Server::start(), Arc::new(Log::default()));
    let workers = workers(dir.path(), 3).await;
    let plan = connections(&server, "- /a 0 class=x\n- /b 0 class=y weight=2\n", requests(1201));
    let running = start_logged(&fleet(dir.path(), "lead", &workers), plan, Some(log.clone())).await.unwrap();
    let finished = finish(running).await;
    assert_eq!((server.total(), finished.load.tally.total().connections.opened), (1201, 1201));
    assert_eq!(log.clients(), server.clients());
    let samples = log.samples.lock().unwrap();
    for class in 0..2 {
        let told = samples.iter().filter(|sample| sample.class == class).count() as u64;
        assert_eq!(told, finished.load.tally.by_class(class).requests);
    }
    let whole = |sample: &ConnectionSample| {
        sample.remote == server.address && sample.requests == 1 && sample.ending.is_normal() && sample.tr().is_some()
    };
    assert!(samples.iter().all(whole));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_run_that_is_cut_every_connection_that_counts_is_told() {
    let (dir, server, log) = (cluster(), Server::start(), Arc::new(Log::default()));
    let workers = workers(dir.path(), 2).await;
    let plan = connections(&server, "- /a 0\n", ENDLESS);
    let running = start_logged(&fleet(dir.path(), "lead", &workers), plan, Some(log.clone())).await.unwrap();
    wait_until("nothing is logged", || log.len() > 300).await;
    running.cut();
    let finished = finish(running).await;
    assert!(finished.workers.iter().all(|worker| worker.lost.is_none()), "{:?}", finished.workers);
    assert_eq!(log.len() as u64, finished.load.tally.total().connections.opened);
    // Connections in progress are in no count and have no sample.
    assert!(untold(&log.clients(), &server.clients()) <= 9);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_does_not_keep_up_delays_the_load_and_loses_nothing() {
    let (dir, server, log) = (cluster(), Server::start(), Arc::new(Log::default()));
    let workers = workers(dir.path(), 1).await;
    log.held.store(true, Ordering::Relaxed);
    let plan = connections(&server, "- /a 0\n", ENDLESS);
    let running = start_logged(&fleet(dir.path(), "lead", &workers), plan, Some(log.clone())).await.unwrap();
    // Meanwhile the link delivers tallies: the log is behind, and no worker is lost.
    wait_until("the worker reports", || running.tally().total().requests > 1000).await;
    assert_eq!(log.len(), 0);
    running.cut();
    assert!(!running.is_finished());
    log.held.store(false, Ordering::Relaxed);
    let finished = finish(running).await;
    assert_eq!(finished.workers[0].lost, None);
    assert_eq!(log.len() as u64, finished.load.tally.total().connections.opened);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_worker_that_is_lost_what_it_had_told_remains() {
    let (dir, server, log) = (cluster(), Server::start(), Arc::new(Log::default()));
    let mut workers = workers(dir.path(), 1).await;
    let plan = connections(&server, "- /a 0\n", ENDLESS);
    let running = start_logged(&fleet(dir.path(), "lead", &workers), plan, Some(log.clone())).await.unwrap();
    wait_until("nothing is logged", || log.len() > 100 && running.tally().total().requests > 0).await;
    let (logged, counted) = (log.clients(), running.tally().total().connections.opened);
    drop(workers.pop());
    let finished = finish(running).await;
    assert!(finished.workers[0].lost.is_some(), "{:?}", finished.workers);
    untold(&logged, &log.clients());
    untold(&log.clients(), &server.clients());
    assert!(finished.load.tally.total().connections.opened >= counted);
}

/// The controller reads nothing while its worker ends, and its orders still arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_reads_late_gets_everything() {
    let (dir, server) = (cluster(), Server::start());
    let mut workers = workers(dir.path(), 1).await;
    let direct = fleet(dir.path(), "lead", &workers);
    let relay = Arc::new(Relay::default());
    workers[0].address = relay.start(workers[0].address).await;
    let running = start(&fleet(dir.path(), "lead", &workers), connections(&server, "- /a 0\n", ENDLESS)).await.unwrap();
    wait_until("the worker reports", || running.tally().total().requests > 0).await;
    relay.held.store(true, Ordering::Relaxed);
    running.cut();
    // The worker is free before it sends its last report.
    while start(&direct, connections(&server, "- /a 0\n", requests(9))).await.is_err() {
        sleep(Duration::from_millis(10)).await;
    }
    let orders = relay.to_worker.load(Ordering::Relaxed);
    wait_until("orders follow", || relay.to_worker.load(Ordering::Relaxed) > orders).await;
    relay.held.store(false, Ordering::Relaxed);
    assert_eq!(finish(running).await.workers[0].lost, None);
}

/// Relays one controller to its worker. While it is held, it reads nothing from the worker.
#[derive(Default)]
struct Relay {
    held: AtomicBool,
    /// The number of bytes to the worker.
    to_worker: AtomicU64,
}

impl Relay {
    /// Returns the address for the controller.
    async fn start(self: &Arc<Self>, worker: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let relay = Arc::clone(self);
        tokio::spawn(async move {
            let (mut from_controller, mut to_controller) = listener.accept().await.unwrap().0.into_split();
            let socket = TcpSocket::new_v4().unwrap();
            // The least: the worker's reports wait in its own send buffer.
            socket.set_recv_buffer_size(1).unwrap();
            let (mut from_worker, mut to_worker) = socket.connect(worker).await.unwrap().into_split();
            let reports = async {
                let mut buffer = [0; 1024];
                while let Ok(count @ 1..) = from_worker.read(&mut buffer).await {
                    to_controller.write_all(&buffer[..count]).await.unwrap();
                    while relay.held.load(Ordering::Relaxed) {
                        sleep(Duration::from_millis(1)).await;
                    }
                }
                drop(to_controller);
            };
            let orders = async {
                let mut buffer = [0; 1024];
                while let Ok(count @ 1..) = from_controller.read(&mut buffer).await {
                    relay.to_worker.fetch_add(count as u64, Ordering::Relaxed);
                    if to_worker.write_all(&buffer[..count]).await.is_err() {
                        break;
                    }
                }
                drop(to_worker);
            };
            tokio::join!(reports, orders);
        });
        address
    }
}
