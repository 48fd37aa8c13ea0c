//! Clusters of Watari.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use watari_pki::Authority;
use watari_values::{NodeName, Role};

use super::{Replaced, Server};
use crate::clients::Clients;
use crate::failure::{Failure, doing, tls};
use crate::process::Process;
use crate::site::{Key, Site};

const DISPATCHER: &str = "d1";
/// A further dispatcher of [`Watari::emptying_two_ways`].
const SECOND_DISPATCHER: &str = "d2";
/// The agent that does all handshakes of [`Watari::moving`].
pub(crate) const MOVED_FROM: &str = "a1";
/// The agent that has no private key, and takes over connections.
pub(crate) const MOVED_TO: &str = "a2";
/// The agent of [`Watari::emptying`] that gets all connections, and moves them to others.
const EMPTIED: &str = "a1";

const COMMITTED: &str = "watari_dispatcher_moves_committed_total ";

/// A dispatcher and its agents, in this order in [`Server::processes`]. A second dispatcher is the last.
pub(crate) struct Watari {
    pub(crate) server: Server,
    /// The second dispatcher.
    second: Option<Dispatcher>,
    metrics: SocketAddr,
    /// The dispatcher's administration socket.
    admin: PathBuf,
    /// The first agent's administration socket.
    agent_admin: PathBuf,
    /// The process that has replaced a node.
    successor: OnceLock<Successor>,
}

/// Where a dispatcher accepts clients, and its administration socket.
struct Dispatcher {
    service: SocketAddr,
    admin: PathBuf,
}

/// A process that is no child of this one. It gets SIGTERM when this value is dropped.
struct Successor(Pid);

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::TERM);
    }
}

/// The node that is upgraded: the dispatcher, or the first agent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum UpgradedNode {
    Dispatcher,
    Agent,
}

struct Node {
    name: &'static str,
    mesh: SocketAddr,
    metrics: SocketAddr,
    /// The address at which an agent accepts legs.
    legs: SocketAddr,
    /// The address at which a dispatcher accepts clients.
    service: Option<SocketAddr>,
}

impl Watari {
    /// A dispatcher and one agent, which does handshakes and serves the files.
    pub(crate) fn single(site: &Site, clients: &Clients) -> Result<Self, Failure> {
        Self::start(site, clients, "single", &[MOVED_FROM])
    }

    /// A dispatcher and one agent, which forwards requests. `proxy` is the text of `[agent.proxy]` and its tables.
    pub(crate) fn forwarding(site: &Site, clients: &Clients, proxy: String) -> Result<Self, Failure> {
        let shape = Shape { proxy: Some(proxy), ..Shape::default() };
        Self::start_as(site, clients, "forwarding", &[MOVED_FROM], shape)
    }

    /// Like [`Watari::forwarding`], with `agents` agents, which get connections in turn, and keep them.
    pub(crate) fn forwarding_in_turn(
        site: &Site,
        clients: &Clients,
        proxy: String,
        agents: usize,
    ) -> Result<Self, Failure> {
        let shape = Shape { bulk: "stay", all_have_keys: true, proxy: Some(proxy), ..Shape::default() };
        Self::start_as(site, clients, "in-turn", &["a1", "a2", "a3"][..agents], shape)
    }

    /// A dispatcher and `agents` agents. They get connections in turn, keep them, and share sessions by `mode`.
    pub(crate) fn resuming(site: &Site, clients: &Clients, mode: &str, agents: usize) -> Result<Self, Failure> {
        let sessions = format!("[agent.sessions]\nmode = \"{mode}\"\ntickets = 1\n");
        let shape = Shape { bulk: "stay", all_have_keys: true, sessions, ..Shape::default() };
        Self::start_as(site, clients, mode, &["a1", "a2", "a3"][..agents], shape)
    }

    /// A dispatcher and two agents. One agent does all handshakes, keeps the clients whose addresses select it, and
    /// moves the connections of the others.
    pub(crate) fn moving(site: &Site, clients: &Clients) -> Result<Self, Failure> {
        Self::start(site, clients, "moving", &[MOVED_FROM, MOVED_TO])
    }

    /// A dispatcher and three agents. The first agent gets all connections until [`Self::open_others`].
    pub(crate) fn emptying(site: &Site, clients: &Clients) -> Result<Self, Failure> {
        Self::emptying_by(site, clients, None)
    }

    /// The same with two dispatchers. Each connection takes two of a dispatcher's files, and a process may have 20,000.
    pub(crate) fn emptying_two_ways(site: &Site, clients: &Clients) -> Result<Self, Failure> {
        Self::emptying_by(site, clients, Some(SECOND_DISPATCHER))
    }

    fn emptying_by(site: &Site, clients: &Clients, second: Option<&'static str>) -> Result<Self, Failure> {
        let shape = Shape { second, ..Shape::default() };
        let watari = Self::start_as(site, clients, "emptying", &[EMPTIED, "a2", "a3"], shape)?;
        watari.order_others("drain")?;
        Ok(watari)
    }

    /// Where the second dispatcher of [`Watari::emptying_two_ways`] accepts clients.
    pub(crate) fn second_service(&self) -> SocketAddr {
        self.second.as_ref().expect("this cluster has two dispatchers").service
    }

    /// Makes the other agents of [`Watari::emptying`] available for connections.
    pub(crate) fn open_others(&self) -> Result<(), Failure> {
        self.order_others("undrain")
    }

    /// Sends SIGTERM to the first agent, as a service manager does.
    pub(crate) fn end_first_agent(&self) -> Result<Replaced, Failure> {
        let agent = &self.server.processes[1];
        let since = Instant::now();
        agent.signal(Signal::TERM)?;
        Ok(Replaced { pids: vec![agent.id()], since })
    }

    /// Replaces a node by a new process, which ends with this value.
    pub(crate) fn upgrade(&self, node: UpgradedNode) -> Result<Replaced, Failure> {
        let (process, admin) = match node {
            UpgradedNode::Dispatcher => (&self.server.processes[0], &self.admin),
            UpgradedNode::Agent => (&self.server.processes[1], &self.agent_admin),
        };
        let (old, since) = (process.id(), Instant::now());
        ctl(admin, &["upgrade"])?;
        let status = ctl(admin, &["--json", "status"])?;
        let status: serde_json::Value =
            serde_json::from_slice(&status).map_err(|error| doing("reading the status of a node")(error.into()))?;
        let pid = status["pid"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let pid = pid.ok_or_else(|| doing("finding a node's successor")(std::io::ErrorKind::NotFound.into()))?;
        self.successor.get_or_init(|| Successor(pid));
        Ok(Replaced { pids: vec![old], since })
    }

    fn order_others(&self, order: &str) -> Result<(), Failure> {
        for admin in [&self.admin].into_iter().chain(self.second.as_ref().map(|second| &second.admin)) {
            for agent in ["a2", "a3"] {
                ctl(admin, &[order, agent])?;
            }
        }
        Ok(())
    }

    /// Orders the first agent to continue its only download from another origin.
    pub(crate) fn move_download(&self) -> Result<(), Failure> {
        let pools = ctl(&self.agent_admin, &["--json", "origins"])?;
        let pools: Vec<serde_json::Value> = serde_json::from_slice(&pools)
            .map_err(|error| doing("reading what an agent says of origins")(error.into()))?;
        let transfer = pools.iter().find_map(|pool| pool["transfers"][0]["id"].as_u64());
        let transfer = transfer.ok_or_else(|| doing("moving a download")(std::io::ErrorKind::NotFound.into()))?;
        ctl(&self.agent_admin, &["origins", "move", &transfer.to_string()]).map(drop)
    }

    /// The dispatcher's connections, as `watari ctl` shows them.
    pub(crate) fn connections(&self) -> Result<Vec<serde_json::Value>, Failure> {
        let answer = ctl(&self.admin, &["--json", "connections"])?;
        serde_json::from_slice(&answer).map_err(|error| doing("reading the list of connections")(error.into()))
    }

    /// Orders a connection to move. Asks the administration socket itself, which is faster than the command. It may
    /// refuse, because the agent has the connection already.
    pub(crate) fn order_move(&self, connection: &str, agent: &str) -> std::io::Result<()> {
        let mut stream = UnixStream::connect(&self.admin)?;
        let topic = serde_json::json!({"move": {"connection": connection, "node": agent}});
        stream.write_all(format!("{}\n", serde_json::json!({"version": 1, "topic": topic})).as_bytes())?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    }

    /// Number of connections that have moved since the dispatcher started.
    pub(crate) fn moves(&self) -> Result<u64, Failure> {
        let mut text = String::new();
        let mut ask = || -> std::io::Result<()> {
            let mut stream = TcpStream::connect(self.metrics)?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: metrics\r\nConnection: close\r\n\r\n")?;
            stream.read_to_string(&mut text).map(drop)
        };
        ask().map_err(doing("asking the dispatcher for its metrics"))?;
        let count = text.lines().find_map(|line| line.strip_prefix(COMMITTED)).and_then(|count| count.parse().ok());
        count.ok_or_else(|| doing("reading the dispatcher's metrics")(std::io::ErrorKind::InvalidData.into()))
    }

    fn start(site: &Site, clients: &Clients, name: &str, agents: &[&'static str]) -> Result<Self, Failure> {
        Self::start_as(site, clients, name, agents, Shape::default())
    }

    fn start_as(
        site: &Site,
        clients: &Clients,
        name: &str,
        agents: &[&'static str],
        shape: Shape,
    ) -> Result<Self, Failure> {
        let dispatchers = [Some(DISPATCHER), shape.second];
        let node = |name| -> Result<Node, Failure> {
            let service = dispatchers.contains(&Some(name)).then(|| site.address()).transpose()?;
            Ok(Node { name, mesh: site.address()?, metrics: site.address()?, legs: site.address()?, service })
        };
        let names = [DISPATCHER].iter().chain(agents).chain(&shape.second);
        let nodes: Vec<Node> = names.map(|name| node(name)).collect::<Result<_, _>>()?;
        let service = nodes[0].service.expect("the first node is a dispatcher");
        // Some benchmarks start the same kind of cluster several times.
        let name = format!("{name}-{}", service.ip());
        let cluster = Cluster { site, name, nodes, shape };
        cluster.issue()?;
        let program = program()?;
        let processes = cluster.nodes.iter().map(|node| cluster.run(&program, node)).collect::<Result<_, _>>()?;
        let mut server = Server { service, processes };
        for (node, process) in cluster.nodes.iter().zip(&mut server.processes) {
            process.wait_until(|| cluster.linked(node))?;
        }
        let [admin, agent_admin] = [0, 1].map(|node: usize| cluster.admin(&cluster.nodes[node]));
        let (server, metrics) = (server.ready(clients)?, cluster.nodes[0].metrics);
        let as_dispatcher = |node: &Node| Some(Dispatcher { service: node.service?, admin: cluster.admin(node) });
        let second = cluster.nodes[1..].iter().find_map(as_dispatcher);
        Ok(Self { server, second, metrics, admin, agent_admin, successor: OnceLock::new() })
    }
}

/// A cluster that is being started.
struct Cluster<'a> {
    site: &'a Site,
    name: String,
    /// The dispatcher first.
    nodes: Vec<Node>,
    shape: Shape,
}

/// The settings in which clusters differ.
struct Shape {
    /// The value of `bulk`, which selects the agent for a client's data.
    bulk: &'static str,
    /// Whether all agents do handshakes, or only the first.
    all_have_keys: bool,
    /// The text of `[agent.sessions]`, if it is not the default.
    sessions: String,
    /// The text of `[agent.proxy]`, if agents do not serve the files themselves.
    proxy: Option<String>,
    /// The name of a second dispatcher.
    second: Option<&'static str>,
}

impl Default for Shape {
    fn default() -> Self {
        Self { bulk: "client_address", all_have_keys: false, sessions: String::new(), proxy: None, second: None }
    }
}

impl Cluster<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.site.path(&format!("{}-{name}", self.name))
    }

    fn admin(&self, node: &Node) -> PathBuf {
        self.path(&format!("{}.sock", node.name))
    }

    fn issue(&self) -> Result<(), Failure> {
        let authority = Authority::create(&self.path("pki"), "benchmarks")?;
        for node in &self.nodes {
            let role = if node.service.is_some() { Role::Dispatcher } else { Role::Agent };
            authority.issue(&NodeName::new(node.name).map_err(tls("naming a node"))?, &[role], 1)?;
        }
        Ok(())
    }

    fn run(&self, program: &str, node: &Node) -> Result<Process, Failure> {
        let text = self.common(node) + &node.service.map_or_else(|| self.agent(node), |at| self.dispatcher(at));
        let name = format!("{}-{}", self.name, node.name);
        let config = self.site.write(&format!("{name}.toml"), &text)?;
        Process::start(&name, program, &["run", "--config", &config], self.path(&format!("{}.log", node.name)))
    }

    fn common(&self, node: &Node) -> String {
        let mut text = format!(
            "[node]\nname = \"{name}\"\npki = \"{pki}\"\nmesh = \"{mesh}\"\nadmin = \"{admin}\"\nmetrics = \"{metrics}\"\n\
             drain_timeout = \"5m\"\n\
             [log]\nlevel = \"info\"\n",
            name = node.name,
            pki = self.path("pki").display(),
            mesh = node.mesh,
            admin = self.admin(node).display(),
            metrics = node.metrics,
        );
        for peer in &self.nodes {
            let _ = writeln!(text, "[[peer]]\nname = \"{}\"\nmesh = \"{}\"", peer.name, peer.mesh);
        }
        text
    }

    fn dispatcher(&self, service: SocketAddr) -> String {
        let mut text = format!("[dispatcher]\nlisten = [\"{service}\"]\nbulk = \"{}\"\nagents = [\n", self.shape.bulk);
        for agent in self.nodes.iter().filter(|node| node.service.is_none()) {
            let _ = writeln!(text, "  {{ name = \"{}\", legs = \"{}\" }},", agent.name, agent.legs);
        }
        text + "]\n[dispatcher.limits]\nconnections_max = 9000\nidle_timeout = \"10m\"\n"
    }

    fn agent(&self, node: &Node) -> String {
        let mut text = format!("[agent]\nlegs = \"{}\"\n", node.legs);
        match &self.shape.proxy {
            Some(proxy) => text += proxy,
            None => {
                let _ = writeln!(text, "[agent.files]\nroot = \"{}\"", self.site.root().display());
            }
        }
        // As many as fit into 20,000 files.
        text += "[agent.limits]\nconnections_max = 8550\nrequests_max = 1100\nkeep_alive_timeout = \"10m\"\n";
        text += &self.shape.sessions;
        if node.name == MOVED_FROM || self.shape.all_have_keys {
            for (chain, key) in Key::ALL.map(|key| self.site.certificate(key)) {
                let _ = writeln!(
                    text,
                    "[[agent.certificate]]\nchain = \"{}\"\nkey = \"{}\"",
                    chain.display(),
                    key.display()
                );
            }
        }
        text
    }

    /// Checks that `node` has all its links. Of a dispatcher, also checks that it can use its agents.
    fn linked(&self, node: &Node) -> Result<(), String> {
        let answer = ctl(self.admin(node).as_ref(), &["--json", "nodes"]).map_err(|error| error.to_string())?;
        let nodes: Vec<serde_json::Value> = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
        match nodes.iter().find(|other| other["up"] != true || other["available"] == false) {
            None => Ok(()),
            Some(other) => Err(format!("it has no use of {} yet", other["name"])),
        }
    }
}

/// Runs `watari ctl` at the node with this socket, and returns its output.
pub(crate) fn ctl(admin: &Path, order: &[&str]) -> Result<Vec<u8>, Failure> {
    let answer = Command::new(program()?).arg("ctl").args(order).arg("--admin").arg(admin).output();
    let answer = answer.map_err(doing(format!("running watari ctl {}", order.join(" "))))?;
    if answer.status.success() {
        return Ok(answer.stdout);
    }
    let why = String::from_utf8_lossy(&answer.stderr).into_owned();
    Err(doing(order.join(" "))(std::io::Error::other(why)))
}

/// The path of `watari`, which was built together with this program and is in the same directory.
pub(crate) fn program() -> Result<String, Failure> {
    let beside = std::env::current_exe().map(|program| program.with_file_name("watari"));
    let program = beside.and_then(std::fs::canonicalize).map_err(doing("finding watari beside this program"))?;
    Ok(program.display().to_string())
}
