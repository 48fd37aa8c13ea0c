//! Clusters of Watari.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use watari_pki::Authority;
use watari_wire::{NodeName, Role};

use super::Server;
use crate::client::Client;
use crate::failure::{Failure, doing, tls};
use crate::process::Process;
use crate::site::{Key, Site};

const DISPATCHER: &str = "d1";
/// The agent that does all handshakes of [`Watari::moving`].
pub(crate) const MOVED_FROM: &str = "a1";
/// The agent that has no private key, and takes connections over.
pub(crate) const MOVED_TO: &str = "a2";

const COMMITTED: &str = "watari_dispatcher_moves_committed_total ";

/// A dispatcher and its agents. In [`Server::processes`] they are in that order.
pub(crate) struct Watari {
    pub(crate) server: Server,
    metrics: SocketAddr,
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
    pub(crate) fn single(site: &Site, client: &Client) -> Result<Self, Failure> {
        Self::start(site, client, "single", &[MOVED_FROM])
    }

    /// A dispatcher and two agents: one does all handshakes, and keeps the clients whose addresses select it; the others'
    /// connections are moved.
    pub(crate) fn moving(site: &Site, client: &Client) -> Result<Self, Failure> {
        Self::start(site, client, "moving", &[MOVED_FROM, MOVED_TO])
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

    fn start(site: &Site, client: &Client, name: &str, agents: &[&'static str]) -> Result<Self, Failure> {
        let node = |name| -> Result<Node, Failure> {
            Ok(Node { name, mesh: site.address()?, metrics: site.address()?, legs: site.address()? })
        };
        let nodes: Vec<Node> = [DISPATCHER].iter().chain(agents).map(|name| node(name)).collect::<Result<_, _>>()?;
        let service = site.address()?;
        let cluster = Cluster { site, name, nodes, service };
        cluster.issue()?;
        let program = program()?;
        let processes = cluster.nodes.iter().map(|node| cluster.run(&program, node)).collect::<Result<_, _>>()?;
        let mut server = Server { service, processes };
        for (node, process) in cluster.nodes.iter().zip(&mut server.processes) {
            process.wait_until(|| cluster.linked(&program, node))?;
        }
        Ok(Self { metrics: cluster.nodes[0].metrics, server: server.ready(client)? })
    }
}

/// A cluster that is being started.
struct Cluster<'a> {
    site: &'a Site,
    name: &'a str,
    /// The dispatcher first.
    nodes: Vec<Node>,
    service: SocketAddr,
}

impl Cluster<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.site.path(&format!("{}-{name}", self.name))
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
             [log]\nlevel = \"warn\"\n",
            name = node.name,
            pki = self.path("pki").display(),
            mesh = node.mesh,
            admin = self.path(&format!("{}.sock", node.name)).display(),
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
        text + "]\n"
    }

    fn agent(&self, node: &Node) -> String {
        let mut text =
            format!("[agent]\nlegs = \"{}\"\n[agent.files]\nroot = \"{}\"\n", node.legs, self.site.root().display());
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
        let admin = self.path(&format!("{}.sock", node.name));
        let answer = Command::new(program).args(["ctl", "--json", "nodes", "--admin"]).arg(admin).output();
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
