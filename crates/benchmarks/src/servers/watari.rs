//! Clusters of Watari.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use watari_pki::Authority;
use watari_wire::{NodeName, Role};

use super::{Replaced, Server};
use crate::clients::Clients;
use crate::failure::{Failure, doing, tls};
use crate::process::Process;
use crate::site::{Key, Site};

const DISPATCHER: &str = "d1";
/// The agent that does all handshakes of [`Watari::moving`].
pub(crate) const MOVED_FROM: &str = "a1";
/// The agent that has no private key, and takes connections over.
pub(crate) const MOVED_TO: &str = "a2";
/// The agent of [`Watari::emptying`] that gets all connections, and gives them away.
const EMPTIED: &str = "a1";

const COMMITTED: &str = "watari_dispatcher_moves_committed_total ";

/// A dispatcher and its agents. In [`Server::processes`] they are in that order.
pub(crate) struct Watari {
    pub(crate) server: Server,
    metrics: SocketAddr,
    program: String,
    /// The dispatcher's administration socket.
    admin: PathBuf,
}

struct Node {
    name: &'static str,
    mesh: SocketAddr,
    metrics: SocketAddr,
    /// Where an agent takes legs.
    legs: SocketAddr,
}

impl Watari {
    /// A dispatcher and an agent, which does everything.
    pub(crate) fn single(site: &Site, clients: &Clients) -> Result<Self, Failure> {
        Self::start(site, clients, "single", &[MOVED_FROM])
    }

    /// A dispatcher and two agents: one does all handshakes, and keeps the clients whose addresses select it; the others'
    /// connections are moved.
    pub(crate) fn moving(site: &Site, clients: &Clients) -> Result<Self, Failure> {
        Self::start(site, clients, "moving", &[MOVED_FROM, MOVED_TO])
    }

    /// A dispatcher and three agents, of which the first gets all connections until the others are opened.
    pub(crate) fn emptying(site: &Site, clients: &Clients) -> Result<Self, Failure> {
        let watari = Self::start(site, clients, "emptying", &[EMPTIED, "a2", "a3"])?;
        watari.order_others("drain")?;
        Ok(watari)
    }

    /// The other agents of [`Watari::emptying`] may have connections, too.
    pub(crate) fn open_others(&self) -> Result<(), Failure> {
        self.order_others("undrain")
    }

    /// Tells the first agent to end, as a service manager does.
    pub(crate) fn end_first_agent(&self) -> Result<Replaced, Failure> {
        let agent = &self.server.processes[1];
        agent.signal(Signal::TERM)?;
        Ok(Replaced { pids: vec![agent.id()] })
    }

    fn order_others(&self, order: &str) -> Result<(), Failure> {
        for agent in ["a2", "a3"] {
            let ordered = Command::new(&self.program).args(["ctl", order, agent, "--admin"]).arg(&self.admin).output();
            let ordered = ordered.map_err(doing(format!("asking for {order} {agent}")))?;
            if !ordered.status.success() {
                let why = String::from_utf8_lossy(&ordered.stderr).into_owned();
                return Err(doing(format!("{order} {agent}"))(std::io::Error::other(why)));
            }
        }
        Ok(())
    }

    /// How many connections have been moved since the dispatcher began.
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
        let node = |name| -> Result<Node, Failure> {
            Ok(Node { name, mesh: site.address()?, metrics: site.address()?, legs: site.address()? })
        };
        let nodes: Vec<Node> = [DISPATCHER].iter().chain(agents).map(|name| node(name)).collect::<Result<_, _>>()?;
        let service = site.address()?;
        // Some are started several times.
        let name = format!("{name}-{}", service.ip());
        let cluster = Cluster { site, name, nodes, service };
        cluster.issue()?;
        let program = program()?;
        let processes = cluster.nodes.iter().map(|node| cluster.run(&program, node)).collect::<Result<_, _>>()?;
        let mut server = Server { service, processes };
        for (node, process) in cluster.nodes.iter().zip(&mut server.processes) {
            process.wait_until(|| cluster.linked(&program, node))?;
        }
        let (metrics, admin) = (cluster.nodes[0].metrics, cluster.admin(&cluster.nodes[0]));
        Ok(Self { server: server.ready(clients)?, metrics, program, admin })
    }
}

/// A cluster that is being started.
struct Cluster<'a> {
    site: &'a Site,
    name: String,
    /// The dispatcher first.
    nodes: Vec<Node>,
    service: SocketAddr,
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
            let role = if node.name == DISPATCHER { Role::Dispatcher } else { Role::Agent };
            authority.issue(&NodeName::new(node.name).map_err(tls("naming a node"))?, &[role], 1)?;
        }
        Ok(())
    }

    fn run(&self, program: &str, node: &Node) -> Result<Process, Failure> {
        let text = self.common(node) + &if node.name == DISPATCHER { self.dispatcher() } else { self.agent(node) };
        let name = format!("{}-{}", self.name, node.name);
        let config = self.site.write(&format!("{name}.toml"), &text)?;
        Process::start(&name, program, &["run", "--config", &config], self.path(&format!("{}.log", node.name)))
    }

    fn common(&self, node: &Node) -> String {
        let mut text = format!(
            "[node]\nname = \"{name}\"\npki = \"{pki}\"\nmesh = \"{mesh}\"\nadmin = \"{admin}\"\nmetrics = \"{metrics}\"\n\
             drain_timeout = \"5m\"\n\
             [log]\nlevel = \"warn\"\n",
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

    fn dispatcher(&self) -> String {
        let mut text =
            format!("[dispatcher]\nlisten = [\"{}\"]\nbulk = \"client_address\"\nagents = [\n", self.service);
        for agent in &self.nodes[1..] {
            let _ = writeln!(text, "  {{ name = \"{}\", legs = \"{}\" }},", agent.name, agent.legs);
        }
        text + "]\n[dispatcher.limits]\nconnections_max = 9000\nidle_timeout = \"10m\"\n"
    }

    fn agent(&self, node: &Node) -> String {
        let mut text =
            format!("[agent]\nlegs = \"{}\"\n[agent.files]\nroot = \"{}\"\n", node.legs, self.site.root().display());
        text += "[agent.limits]\nconnections_max = 9000\nkeep_alive_timeout = \"10m\"\n";
        if node.name == MOVED_FROM {
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

    /// Whether `node` has all its links, and, a dispatcher, can use its agents.
    fn linked(&self, program: &str, node: &Node) -> Result<(), String> {
        let answer = Command::new(program).args(["ctl", "--json", "nodes", "--admin"]).arg(self.admin(node)).output();
        let answer = answer.map_err(|error| error.to_string())?;
        let nodes: Vec<serde_json::Value> =
            serde_json::from_slice(&answer.stdout).map_err(|error| error.to_string())?;
        match nodes.iter().find(|other| other["up"] != true || other["available"] == false) {
            None => Ok(()),
            Some(other) => Err(format!("it has no use of {} yet", other["name"])),
        }
    }
}

/// The `watari` that was built beside this program.
fn program() -> Result<String, Failure> {
    let beside = std::env::current_exe().map(|program| program.with_file_name("watari"));
    let program = beside.and_then(std::fs::canonicalize).map_err(doing("finding watari beside this program"))?;
    Ok(program.display().to_string())
}
