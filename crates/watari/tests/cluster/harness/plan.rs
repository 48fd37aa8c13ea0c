//! The properties of a cluster, and its configuration files.

use std::fmt::{Display, Write};
use std::net::SocketAddr;

use super::node::Node;
use super::origin::Origin;
use super::tap::Tap;
use super::{AGENTS, DISPATCHER, GUEST_AGENT, GUEST_DISPATCHER};

/// The properties of a cluster.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) content: Content,
    /// The agents, the first few of [`FIVE_AGENTS`](super::FIVE_AGENTS). `None`: those of [`AGENTS`].
    pub(crate) agents: Option<&'static [&'static str]>,
    /// Whether the dispatcher is an agent, too.
    pub(crate) has_both_roles: bool,
    /// Lines of `[dispatcher]`.
    pub(crate) dispatcher: &'static str,
    /// Keys of each agent in the dispatcher's list, after a comma.
    pub(crate) of_each_agent: &'static str,
    /// Lines of `[dispatcher.check]`. `None`: settings under which an agent that a test stops does not become
    /// unhealthy.
    pub(crate) checks: Option<&'static str>,
    /// The network that relays may come from (`proxy_from`).
    pub(crate) relays: Option<&'static str>,
    /// The backend for `raw.test` and the names below it. It gets a PROXY protocol header with the client's address.
    pub(crate) backend: Option<SocketAddr>,
    /// Lines of `[dispatcher.limits]`.
    pub(crate) dispatcher_limits: &'static str,
    /// Agents whose clocks differ from the system's, and the difference: `+5m`.
    pub(crate) clocks: &'static [(&'static str, &'static str)],
    /// Lines of `[agent.sessions]`. `NAME` stands for the agent's name.
    pub(crate) sessions: &'static str,
    /// Lines of `[agent.limits]`.
    pub(crate) agent_limits: &'static str,
    /// `optional` or `required`.
    pub(crate) client_certificates: Option<&'static str>,
    /// The nodes in every configuration. All other nodes with a certificate are members, too. Empty: every
    /// configuration has all nodes, and the guests.
    pub(crate) seeds: &'static [&'static str],
    /// The limit on open files of each node.
    pub(crate) files_max: Option<u64>,
    /// Links with a tap: the node that dials, and the one that accepts.
    pub(crate) tapped_links: &'static [(&'static str, &'static str)],
    /// Agents with a tap before their leg port.
    pub(crate) tapped_legs: &'static [&'static str],
}

/// The addresses at which the dispatcher accepts clients and relays, over both families.
pub(crate) struct Services {
    pub(crate) clients: [SocketAddr; 2],
    pub(crate) relays: [SocketAddr; 2],
}

/// The content of the site.
#[derive(Default)]
pub(crate) enum Content {
    /// The origins of the harness, behind the agents.
    #[default]
    Origins,
    /// Servers with these URLs, behind the agents.
    Behind(Vec<String>),
    /// Pools and routes, as TOML. `NAME` stands for the agent's name.
    Proxy(String),
    /// Files of these lengths, served by the agents: `N.bin` is the pattern of seed N.
    Files(&'static [u64]),
}

impl Plan {
    pub(crate) fn clock_of(&self, node: &str) -> Option<&'static str> {
        self.clocks.iter().find(|(agent, _)| *agent == node).map(|(_, clock)| *clock)
    }

    pub(crate) fn agents(&self) -> &'static [&'static str] {
        self.agents.unwrap_or(&AGENTS)
    }

    pub(crate) fn taps(&self, nodes: &[Node], take: impl Fn() -> SocketAddr) -> Vec<(String, Tap)> {
        let node = |name: &str| nodes.iter().find(|node| node.name == name).unwrap();
        let links = self.tapped_links.iter().map(|(from, to)| (link_name(from, to), node(to).mesh));
        let legs = self.tapped_legs.iter().map(|agent| ((*agent).to_owned(), node(agent).legs));
        links.chain(legs).map(|(name, server)| (name, Tap::start(take(), server))).collect()
    }

    pub(crate) fn config(
        &self,
        node: &Node,
        nodes: &[Node],
        taps: &[(String, Tap)],
        services: &Services,
        origins: &[Origin],
    ) -> String {
        let tapped = |name: &str| taps.iter().find(|(tap, _)| tap == name).map(|(_, tap)| tap.address);
        let mut text = common(node);
        if !self.seeds.is_empty() {
            text += "join = \"certified\"\n";
        }
        let configured = |peer: &&Node| self.seeds.is_empty() || self.seeds.contains(&peer.name);
        for peer in nodes.iter().filter(configured) {
            let mesh = tapped(&link_name(node.name, peer.name)).unwrap_or(peer.mesh);
            text += &peer_table(peer.name, mesh);
        }
        for (port, guest) in (1..).zip([GUEST_AGENT, GUEST_DISPATCHER]).filter(|_| self.seeds.is_empty()) {
            // No process listens there: the guests dial.
            text += &peer_table(guest, ([127, 0, 0, 1], port).into());
        }
        text += &if node.name == DISPATCHER {
            let agents = nodes.iter().filter(|node| node.is_agent() || self.has_both_roles);
            let agents = agents.map(|agent| (agent.name, tapped(agent.name).unwrap_or(agent.legs)));
            let agent = if self.has_both_roles { self.agent(node, origins) } else { String::new() };
            self.dispatcher(services, agents) + &agent
        } else {
            self.agent(node, origins)
        };
        text
    }

    fn dispatcher(&self, services: &Services, agents: impl Iterator<Item = (&'static str, SocketAddr)>) -> String {
        let mut text = format!("[dispatcher]\nlisten = [{}]\n{}\n", quoted(services.clients), self.dispatcher);
        if let Some(network) = self.relays {
            let _ = writeln!(
                text,
                "listen_proxy = [{}]\nproxy_from = [\"{network}\", \"::1/128\"]",
                quoted(services.relays)
            );
        }
        text += "agents = [\n";
        for (name, legs) in agents {
            let _ = writeln!(text, "  {{ name = \"{name}\", legs = \"{legs}\"{} }},", self.of_each_agent);
        }
        let checks = self.checks.unwrap_or("interval = \"1h\"");
        text += "]\n";
        if let Some(backend) = self.backend {
            let _ = writeln!(text, "[[dispatcher.passthrough]]\nnames = [\"raw.test\", \"*.raw.test\"]");
            let _ = writeln!(text, "backends = [\"{backend}\"]\nproxy_protocol = \"v2\"");
        }
        text + "[dispatcher.check]\n" + checks + "\n[dispatcher.limits]\n" + self.dispatcher_limits + "\n"
    }

    fn agent(&self, node: &Node, origins: &[Origin]) -> String {
        let mut text = format!("[agent]\nlegs = \"{}\"\n", node.legs);
        for kind in ["rsa", "p256"] {
            let _ = writeln!(text, "[[agent.certificate]]\nchain = \"site/{kind}.pem\"\nkey = \"site/{kind}.key\"");
        }
        if let Some(demand) = self.client_certificates {
            let _ = writeln!(text, "[agent.tls]\nclient_ca = \"site/clients.pem\"\nclient_certificates = \"{demand}\"");
        }
        let _ = match &self.content {
            Content::Origins => {
                let origins = quoted(origins.iter().map(|origin| format!("http://{}", origin.address)));
                writeln!(text, "[agent.proxy]\norigins = [{origins}]")
            }
            Content::Behind(origins) => writeln!(text, "[agent.proxy]\norigins = [{}]", quoted(origins)),
            Content::Proxy(tables) => writeln!(text, "{}", tables.replace("NAME", node.name)),
            Content::Files(_) => writeln!(text, "[agent.files]\nroot = \"www\""),
        };
        text + "[agent.sessions]\n"
            + &self.sessions.replace("NAME", node.name)
            + "\n[agent.limits]\n"
            + self.agent_limits
            + "\n"
    }
}

fn link_name(from: &str, to: &str) -> String {
    format!("{from}-{to}")
}

fn common(node: &Node) -> String {
    format!(
        "[log]\nlevel = \"info,watari_agent=debug,watari_dispatcher=debug\"\n\
         [node]\nname = \"{name}\"\npki = \"pki\"\nmesh = \"{mesh}\"\nadmin = \"{name}.sock\"\nmetrics = \"{metrics}\"\n",
        name = node.name,
        mesh = node.mesh,
        metrics = node.metrics,
    )
}

fn peer_table(name: &str, mesh: SocketAddr) -> String {
    format!("[[peer]]\nname = \"{name}\"\nmesh = \"{mesh}\"\n")
}

fn quoted(items: impl IntoIterator<Item: Display>) -> String {
    let quoted: Vec<_> = items.into_iter().map(|item| format!("\"{item}\"")).collect();
    quoted.join(", ")
}
