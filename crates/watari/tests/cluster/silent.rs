//! Silent connections to the ports between nodes, many at a time, repeatedly, from an address that is not a node's.
//! They do not keep out requests, checks or nodes, and do not fill a log.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::clients::http::Http;
use crate::clients::tls::{Taste, Tls};
use crate::harness::node::Node;
use crate::harness::wait::until;
use crate::harness::{Cluster, Plan};

/// The number of connections to each port, more than any limit here.
const CROWD: usize = 300;

/// Their source address, which no node has.
const OUTSIDER: ([u8; 4], u16) = ([127, 9, 9, 9], 0);

/// The interval of checks of all connections of a crowd.
const PAUSE: Duration = Duration::from_millis(20);

/// Silent connections to one port. Those that the other side closes are opened again.
struct Crowd {
    /// The number of connections that were opened again.
    again: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    holder: Option<JoinHandle<()>>,
}

impl Crowd {
    fn at(address: SocketAddr) -> Self {
        let (again, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let mut held: Vec<_> = (0..CROWD).filter_map(|_| connect(address)).collect();
        let (count, over) = (again.clone(), is_over.clone());
        let holder = thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                held.retain_mut(is_open);
                let missing = CROWD - held.len();
                // A refused connection is tried again: the port may not be bound at the moment.
                held.extend((0..missing).filter_map(|_| connect(address)));
                count.fetch_add(missing, Ordering::Relaxed);
                thread::sleep(PAUSE);
            }
        });
        Self { again, is_over, holder: Some(holder) }
    }

    fn wait_until_refused(&self, times: usize) {
        until("connections of the crowd are closed", || self.again.load(Ordering::Relaxed) >= times);
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.holder.take().map(JoinHandle::join);
    }
}

fn connect(address: SocketAddr) -> Option<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
    socket.bind(&SocketAddr::from(OUTSIDER).into()).ok()?;
    socket.connect(&address.into()).ok()?;
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

fn is_open(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

fn check_log_is_short(node: &Node) {
    let log = node.log();
    let refused =
        log.lines().filter(|line| line.contains("leg refused") || line.contains("connection refused")).count();
    assert!(refused < 1_000 && log.len() < 1 << 20, "{} logged {refused} refusals, {} bytes", node.name, log.len());
}

const FEW_PLACES: &str = "connections_max = 100\nunidentified_max = 100\nunidentified_per_address_max = 50";

#[test]
fn silent_legs_keep_out_neither_requests_nor_checks() {
    let checks = Some("interval = \"100ms\"\ntimeout = \"2s\"");
    let cluster = Cluster::start(&Plan { agent_limits: FEW_PLACES, checks, ..Plan::default() });
    let crowds: Vec<_> = cluster.agents().map(|agent| Crowd::at(agent.legs)).collect();
    for crowd in &crowds {
        crowd.wait_until_refused(CROWD);
    }
    for seed in 0..60 {
        let client = Tls::to_site(cluster.clients.any(), cluster.service, &Taste::default());
        Http::new(client.unwrap()).download(1_000, seed).unwrap();
    }
    for crowd in &crowds {
        crowd.wait_until_refused(2 * CROWD);
    }
    let dispatcher = cluster.dispatcher();
    assert!(!dispatcher.log().contains("unhealthy"), "{}", dispatcher.log());
    assert_eq!(dispatcher.count("watari_dispatcher_connections_refused_total", ""), 0);
    for agent in cluster.agents() {
        assert!(agent.count("watari_agent_legs_refused_total", "crowded_out") > 0);
        until("a summary is logged", || agent.log().contains("leg refused: "));
        check_log_is_short(agent);
    }
}

#[test]
fn silent_connections_to_the_mesh_keep_no_node_out() {
    let cluster = Cluster::start(&Plan::default());
    let crowds: Vec<_> = cluster.agents().chain([cluster.dispatcher()]).map(|node| Crowd::at(node.mesh)).collect();
    for crowd in &crowds {
        crowd.wait_until_refused(CROWD);
    }
    for agent in ["a1", "a3"] {
        cluster.begin_anew(&[agent], Node::kill);
        let client = Tls::to_site(cluster.clients.any(), cluster.service, &Taste::default());
        Http::new(client.unwrap()).download(1_000, 1).unwrap();
    }
    for node in cluster.agents().chain([cluster.dispatcher()]) {
        assert!(node.count("watari_mesh_connections_refused_total", "crowded_out") > 0);
        check_log_is_short(node);
    }
}
