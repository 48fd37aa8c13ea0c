//! A cluster of processes on loopback: one dispatcher, some agents (three by default), two origins.
//!
//! Each cluster has a directory and an address of its own, and ends when it is dropped. The harness never sleeps for a
//! fixed time: it polls states until they are reached (`wait`).

pub(crate) mod addresses;
pub(crate) mod ctl;
pub(crate) mod metrics;
pub(crate) mod node;
pub(crate) mod nursery;
pub(crate) mod origin;
pub(crate) mod pattern;
mod plan;
pub(crate) mod recorder;
pub(crate) mod site;
pub(crate) mod tap;
pub(crate) mod wait;

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, Weak};
use std::thread::panicking;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use watari_test_origins::LoopbackAddresses;

use addresses::{ClientAddresses, take_v6};
use ctl::{Connection, NodeLine};
use node::{Node, WATARI};
use origin::Origin;
use pattern::pattern;
pub(crate) use plan::{Content, Plan, Services};
use tap::Tap;
use wait::{until, until_some};

pub(crate) const DISPATCHER: &str = "d1";
pub(crate) const AGENTS: [&str; 3] = ["a1", "a2", "a3"];
/// An agent outside every plan. A test starts it.
pub(crate) const NEWCOMER: &str = "a9";
pub(crate) const NODES: [&str; 4] = [DISPATCHER, "a1", "a2", "a3"];

/// As many agents as the paper's largest cluster, and more. A plan may take the first few of them.
pub(crate) const FIVE_AGENTS: [&str; 5] = ["a1", "a2", "a3", "a4", "a5"];

/// Peers that every node has in its configuration, without processes. Tests connect in their names. The names sort
/// first, so that these peers dial.
pub(crate) const GUEST_AGENT: &str = "0-agent";
/// See [`GUEST_AGENT`].
pub(crate) const GUEST_DISPATCHER: &str = "0-dispatcher";

/// A running cluster.
pub(crate) struct Cluster {
    /// The address that clients connect to.
    pub(crate) service: SocketAddr,
    pub(crate) service_v6: SocketAddr,
    /// The addresses that relays connect to, if the plan allows any: over IPv4 and IPv6.
    pub(crate) for_relays: [SocketAddr; 2],
    pub(crate) clients: ClientAddresses,
    nodes: Vec<Node>,
    newcomer: Node,
    has_both_roles: bool,
    taps: Vec<(String, Tap)>,
    _origins: Vec<Origin>,
    dir: TempDir,
}

impl Cluster {
    /// Starts a cluster, and waits until all nodes are linked and accept connections.
    pub(crate) fn start(plan: &Plan) -> Self {
        let dir = tempfile::Builder::new().prefix("watari-cluster-").tempdir().unwrap();
        let addresses = LoopbackAddresses::draw();
        let take = || addresses.take();
        make_pki(&dir.path().join("pki"), plan);
        site::write(&dir.path().join("site"));
        write_content(&dir.path().join("www"), &plan.content);
        let names = [DISPATCHER].into_iter().chain(plan.agents().iter().copied());
        let node = |name| Node::new(name, dir.path(), plan.files_max, take).with_clock(plan.clock_of(name));
        let nodes: Vec<_> = names.map(node).collect();
        let newcomer = Node::new(NEWCOMER, dir.path(), plan.files_max, take);
        let taps = plan.taps(&nodes, take);
        let origins: Vec<_> = [take(), take()].into_iter().map(Origin::start).collect();
        let services = Services { clients: [take(), take_v6()], relays: [take(), take_v6()] };
        for node in nodes.iter().chain([&newcomer]) {
            let text = plan.config(node, &nodes, &taps, &services, &origins);
            fs::write(node.config(), text).unwrap();
        }
        nodes.iter().for_each(Node::start);
        let clients = ClientAddresses::default();
        let Services { clients: [service, service_v6], relays: for_relays } = services;
        let has_both_roles = plan.has_both_roles;
        let cluster = Self {
            service,
            service_v6,
            for_relays,
            clients,
            nodes,
            newcomer,
            has_both_roles,
            taps,
            _origins: origins,
            dir,
        };
        cluster.wait_until_whole();
        cluster
    }

    /// Waits until every node is linked with all others and every agent accepts connections.
    pub(crate) fn wait_until_whole(&self) {
        until("all nodes are linked and available", || {
            for node in &self.nodes {
                assert!(node.is_running(), "{} has ended:\n{}", node.name, node.log());
            }
            let links_up = |node: &Node| node.metrics().map_or(0, |metrics| metrics.sum("watari_mesh_links_up", ""));
            let peers = i64::try_from(self.nodes.len() - 1).unwrap();
            let agents =
                self.nodes.iter().filter(|node| node.is_agent() || self.has_both_roles).map(|agent| agent.name);
            self.nodes.iter().all(|node| links_up(node) == peers) && agents.eq(self.available_agents())
        });
    }

    /// Ends nodes by `end`, and starts them again. Returns when the cluster is complete again. Before the start, it
    /// waits until the other nodes have noticed the end. So later answers of those are about the new processes.
    pub(crate) fn begin_anew(&self, names: &[&str], end: impl Fn(&Node)) {
        let is_meant = |name: &str| names.contains(&name);
        let (meant, others): (Vec<_>, Vec<_>) = self.nodes.iter().partition(|node| is_meant(node.name));
        for node in &meant {
            end(node);
        }
        until("their end is noticed", || {
            let is_there = |line: NodeLine| line.up == Some(true) || line.available == Some(true);
            others.iter().all(|other| {
                ctl::nodes(&other.admin())
                    .is_some_and(|lines| !lines.into_iter().any(|line| is_meant(&line.name) && is_there(line)))
            })
        });
        for node in &meant {
            node.start();
        }
        self.wait_until_whole();
    }

    pub(crate) fn node(&self, name: &str) -> &Node {
        self.nodes.iter().find(|node| node.name == name).unwrap()
    }

    /// See [`NEWCOMER`].
    pub(crate) fn newcomer(&self) -> &Node {
        &self.newcomer
    }

    pub(crate) fn dispatcher(&self) -> &Node {
        self.node(DISPATCHER)
    }

    pub(crate) fn agents(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.is_agent())
    }

    /// The tap before a leg port (`a1`) or in a link (`a1-a2`).
    pub(crate) fn tap(&self, name: &str) -> &Tap {
        &self.taps.iter().find(|(tap, _)| tap == name).unwrap().1
    }

    /// A sum over all agents; see [`Node::count`].
    pub(crate) fn count_on_agents(&self, name: &str, label: &str) -> i64 {
        self.agents().map(|agent| agent.count(name, label)).sum()
    }

    /// The logs of all agents.
    pub(crate) fn agent_logs(&self) -> String {
        self.agents().map(Node::log).collect()
    }

    /// The dispatcher's list of connections.
    pub(crate) fn connections(&self) -> Vec<Connection> {
        until_some("the dispatcher answers", || ctl::connections(&self.dispatcher().admin()))
    }

    /// The only connection of the client at `ip`, once its handshake is complete. After its first response, it has
    /// reached its agent.
    pub(crate) fn connection_of(&self, ip: IpAddr) -> Connection {
        until_some("the dispatcher knows the connection", || {
            let known = self.connections().into_iter().find(|connection| connection.client.ip() == ip);
            known.filter(|connection| connection.version.is_some())
        })
    }

    /// Waits until no client is connected and no node has any state of a connection.
    pub(crate) fn wait_until_idle(&self) {
        until("nothing is left of any connection", || {
            let left_here = |agent: &Node| {
                let gauges = ["watari_agent_connections", "watari_agent_held", "watari_agent_fenced"];
                gauges.iter().map(|gauge| agent.count(gauge, "")).sum::<i64>()
            };
            self.dispatcher().count("watari_dispatcher_connections", "") == 0
                && self.agents().map(left_here).sum::<i64>() == 0
        });
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn pki_dir(&self) -> PathBuf {
        self.dir().join("pki")
    }

    pub(crate) fn site_ca(&self) -> PathBuf {
        site::ca_file(&self.dir().join("site"))
    }

    fn available_agents(&self) -> Vec<String> {
        let nodes = ctl::nodes(&self.dispatcher().admin()).unwrap_or_default();
        nodes.into_iter().filter(|node| node.available == Some(true)).map(|node| node.name).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if panicking() {
            self.nodes.iter().chain([&self.newcomer]).for_each(Node::print_last_words);
            self.dir.disable_cleanup(true);
            eprintln!("configurations and logs are in {}", self.dir().display());
        }
    }
}

/// A cluster for several tests that do not disturb it. It runs as long as one of them does.
pub(crate) struct SharedCluster(Mutex<Weak<Cluster>>);

impl SharedCluster {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    pub(crate) fn get(&self, plan: &Plan) -> Arc<Cluster> {
        let mut shared = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let cluster = Arc::new(Cluster::start(plan));
            *shared = Arc::downgrade(&cluster);
            cluster
        })
    }
}

/// Makes the authority and all certificates as an administrator would.
fn make_pki(dir: &Path, plan: &Plan) {
    let run = |arguments: &[&str]| {
        let output = Command::new(WATARI).arg("pki").args(arguments).arg("--dir").arg(dir).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["init"]);
    let both: &[&str] = if plan.has_both_roles { &["--role", "agent"] } else { &[] };
    run(&[&["issue", DISPATCHER, "--role", "dispatcher"], both].concat());
    run(&["issue", GUEST_DISPATCHER, "--role", "dispatcher"]);
    for node in plan.agents().iter().copied().chain([NEWCOMER, GUEST_AGENT]) {
        run(&["issue", node, "--role", "agent"]);
    }
}

fn write_content(dir: &Path, content: &Content) {
    fs::create_dir_all(dir).unwrap();
    if let Content::Files(lens) = content {
        for len in *lens {
            write_settled(&dir.join(format!("{len}.bin")), &pattern(*len, 0..*len), Duration::from_hours(498_198));
        }
    }
}

/// Writes a file that was modified at this time since 1970. Its validator is strong, because the time is not recent.
pub(crate) fn write_settled(path: &Path, content: &[u8], modified: Duration) {
    fs::write(path, content).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + modified).unwrap();
}
