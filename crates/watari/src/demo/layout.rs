//! The directory and addresses of the demo's processes.

use std::fmt::Write;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use watari_pki::Authority;
use watari_values::{NodeName, Role};

use super::content::{self, SiteFile};
use super::error::{DemoError, doing};
use super::site::{HOST, Site};

/// The cluster's nodes: the dispatcher, then the agents.
pub(super) const DISPATCHER: &str = "d1";
pub(super) const AGENTS: [&str; 3] = ["a1", "a2", "a3"];
pub(super) const ORIGINS: [&str; 2] = ["o1", "o2"];

/// A directory with all files of the cluster, and the addresses of its nodes.
pub(super) struct Layout {
    dir: TempDir,
    pub(super) site: Site,
    pub(super) files: Vec<SiteFile>,
    /// The address that clients connect to.
    pub(super) service: SocketAddr,
    /// Such an address for IPv6, if the system supports it.
    pub(super) service_v6: Option<SocketAddr>,
    /// The dispatcher, then the agents.
    nodes: Vec<NodeAddresses>,
}

struct NodeAddresses {
    name: &'static str,
    mesh: SocketAddr,
    /// Used by agents only.
    legs: SocketAddr,
    metrics: SocketAddr,
}

impl Layout {
    /// Makes the directory, with certificates and content.
    pub(super) fn create() -> Result<Self, DemoError> {
        let dir = tempfile::Builder::new().prefix("watari-demo-").tempdir();
        let dir = dir.map_err(doing("making a temporary directory"))?;
        issue(&dir.path().join("pki"))?;
        let site = Site::create(&dir.path().join("site"))?;
        let files = content::write(&dir.path().join("www")).map_err(doing("writing the content"))?;
        let mut free = FreeAddresses::new().map_err(doing("drawing an address"))?;
        let mut take = || free.take().map_err(doing("looking for free ports"));
        let service = take()?;
        let mut node = |name| Ok(NodeAddresses { name, mesh: take()?, legs: take()?, metrics: take()? });
        let nodes = [DISPATCHER].into_iter().chain(AGENTS).map(&mut node).collect::<Result<_, DemoError>>()?;
        Ok(Self { dir, site, files, service, service_v6: FreeAddresses::take_v6(), nodes })
    }

    /// Writes each node's configuration. The agents forward to `origins`.
    pub(super) fn configure(&self, origins: &[SocketAddr]) -> Result<(), DemoError> {
        for node in &self.nodes {
            let role = if node.name == DISPATCHER { self.dispatcher() } else { agent(node.legs, origins) };
            let path = self.config(node.name);
            let text = self.common(node) + &role;
            fs::write(&path, text).map_err(doing(format!("writing {}", path.display())))?;
        }
        Ok(())
    }

    pub(super) fn config(&self, node: &str) -> PathBuf {
        self.dir.path().join(format!("{node}.toml"))
    }

    pub(super) fn admin(&self, node: &str) -> PathBuf {
        self.dir.path().join(format!("{node}.sock"))
    }

    pub(super) fn log(&self, process: &str) -> PathBuf {
        self.dir.path().join(format!("{process}.log"))
    }

    /// The address of the dispatcher's metrics server.
    pub(super) fn metrics(&self) -> SocketAddr {
        self.nodes[0].metrics
    }

    pub(super) fn content(&self) -> PathBuf {
        self.dir.path().join("www")
    }

    /// Keeps the directory, so that users can look for the cause of a failure.
    pub(super) fn keep(self) -> PathBuf {
        self.dir.keep()
    }

    /// Paths and addresses of the demo, and commands to try.
    pub(super) fn guide(&self) -> String {
        let (dir, service) = (self.dir.path().display(), self.service);
        let (ip, port) = (service.ip(), service.port());
        let also = self.service_v6.map(|service| format!(" and {service}")).unwrap_or_default();
        let curl = format!("curl --cacert {dir}/site/ca.pem --resolve {HOST}:{port}:{ip}");
        format!(
            "\
Watari is up: a dispatcher (d1), three agents (a1, a2, a3), two origins.

  service   https://{HOST}:{port}/ at {service}{also}
  metrics   http://{metrics}/metrics
  files     {dir} (configurations, certificates, logs, admin sockets)

Try:
  {curl} https://{HOST}:{port}/
  {curl} -o /dev/null https://{HOST}:{port}/3000000.bin
  {curl} -T FILE https://{HOST}:{port}/upload
  watari ctl --admin {dir}/d1.sock nodes
  watari ctl --admin {dir}/d1.sock connections

Ctrl-C ends it and removes {dir}.",
            metrics = self.metrics()
        )
    }

    fn common(&self, node: &NodeAddresses) -> String {
        let NodeAddresses { name, mesh, metrics, .. } = node;
        let mut text = format!(
            "[node]\nname = \"{name}\"\npki = \"pki\"\nmesh = \"{mesh}\"\nadmin = \"{name}.sock\"\nmetrics = \"{metrics}\"\n"
        );
        for peer in &self.nodes {
            let _ = writeln!(text, "\n[[peer]]\nname = \"{}\"\nmesh = \"{}\"", peer.name, peer.mesh);
        }
        text
    }

    fn dispatcher(&self) -> String {
        let listen: Vec<_> =
            [self.service].iter().chain(&self.service_v6).map(|address| format!("\"{address}\"")).collect();
        let mut text = format!(
            "\n[dispatcher]\nlisten = [{}]\nhandshake = \"round_robin\"\nbulk = \"client_address\"\nagents = [\n",
            listen.join(", ")
        );
        for agent in self.nodes.iter().filter(|node| node.name != DISPATCHER) {
            let _ = writeln!(text, "  {{ name = \"{}\", legs = \"{}\" }},", agent.name, agent.legs);
        }
        text + "]\n"
    }
}

fn agent(legs: SocketAddr, origins: &[SocketAddr]) -> String {
    let origins: Vec<_> = origins.iter().map(|origin| format!("\"http://{origin}\"")).collect();
    format!(
        "\n[agent]\nlegs = \"{legs}\"\n\
         \n[[agent.certificate]]\nchain = \"site/rsa.pem\"\nkey = \"site/rsa.key\"\n\
         \n[[agent.certificate]]\nchain = \"site/p256.pem\"\nkey = \"site/p256.key\"\n\
         \n[agent.proxy]\norigins = [{}]\n",
        origins.join(", ")
    )
}

/// Makes the cluster's authority, and a certificate for each node.
fn issue(dir: &Path) -> Result<(), DemoError> {
    let authority = Authority::create(dir, "demo")?;
    for (name, role) in [(DISPATCHER, Role::Dispatcher)].into_iter().chain(AGENTS.map(|agent| (agent, Role::Agent))) {
        let name = NodeName::new(name).expect("the demo's node names are node names");
        authority.issue(&name, &[role], 1)?;
    }
    Ok(())
}

/// Unused ports on a loopback address drawn at random. Outgoing connections use 127.0.0.1. So they cannot take a port
/// between the moment it is found and the moment its process binds it.
struct FreeAddresses {
    ip: IpAddr,
    /// Held, so that no port is given out twice.
    taken: Vec<TcpListener>,
}

impl FreeAddresses {
    fn new() -> io::Result<Self> {
        let mut bytes = [0; 3];
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| io::Error::other("the system gives no random bytes"))?;
        // 127.128.0.0/9. The scenario's clients come from the lower half.
        let [a, b, c] = bytes;
        let ip = Ipv4Addr::new(127, a | 0x80, b, c.clamp(1, 254)).into();
        Ok(Self { ip, taken: Vec::new() })
    }

    fn take(&mut self) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind((self.ip, 0))?;
        let address = listener.local_addr()?;
        self.taken.push(listener);
        Ok(address)
    }

    /// A port of the IPv6 loopback address, if the system has that.
    fn take_v6() -> Option<SocketAddr> {
        TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).ok()?.local_addr().ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::config::{Config, SiteMetrics};

    #[test]
    fn the_configurations_are_good() {
        let layout = Layout::create().unwrap();
        layout.configure(&["127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()]).unwrap();
        for node in [DISPATCHER].iter().chain(&AGENTS) {
            let config = Config::read(&layout.config(node)).unwrap();
            assert_eq!(config.node.name.value.as_str(), *node);
            assert_eq!(config.peers.len(), 3);
            config.load(&SiteMetrics::default()).unwrap();
        }
    }
}
