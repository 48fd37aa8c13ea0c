//! The members of the cluster.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use watari_dispatcher::AgentConfig;
use watari_mesh::{Join, Peer};
use watari_values::NodeName;

use super::check::{Check, each};
use super::model::Node;
use super::raw::{JoinRule, RawAgentAddress, RawConfig, RawPeer};
use super::spanned::Spanned;

impl Check<'_> {
    /// The join rule, with the addresses that this node announces to members that find it through another node.
    pub(super) fn join(&self, raw: &RawConfig) -> Option<Join> {
        let node = raw.node.get_ref();
        match (node.join, &node.advertise) {
            (JoinRule::Certified, advertise) => {
                let said = advertise.as_ref().unwrap_or(&node.mesh);
                let mesh = said.get_ref().0;
                if mesh.ip().is_unspecified() {
                    return self.wrong(
                        said,
                        format!("nodes cannot connect to {mesh}: set advertise to an address that they reach"),
                    );
                }
                let legs = raw.agent.as_ref().map(|agent| agent.get_ref().legs.get_ref().0);
                Some(Join::Certified { mesh, legs: legs.map(|legs| seen_from_outside(legs, mesh)) })
            }
            (JoinRule::Configured, Some(advertise)) => {
                self.wrong(advertise, "advertise has no effect unless join is \"certified\"")
            }
            (JoinRule::Configured, None) => Some(Join::Configured),
        }
    }

    pub(super) fn peers(&self, node: &NodeName, raw: Vec<RawPeer>) -> Option<Vec<Peer>> {
        let (mut names, mut addresses) = (BTreeMap::new(), BTreeMap::new());
        let peers = each(raw.into_iter().map(|RawPeer { name, mesh }| {
            let is_new = (self.once(&mut names, &name, "the peer"), self.once_at(&mut addresses, &mesh));
            let (Some(()), Some(())) = is_new else { return None };
            // All nodes may have the same list.
            Some((name.get_ref() != node).then(|| Peer { name: name.into_inner(), address: mesh.into_inner().0 }))
        }))?;
        Some(peers.into_iter().flatten().collect())
    }

    /// The agents of a dispatcher. `is_agent`: the node has both roles. `may_come`: whether a node can be a member.
    pub(super) fn agents(
        &self,
        node: &Node,
        is_agent: bool,
        may_come: impl Fn(&NodeName) -> bool,
        raw: Spanned<Vec<RawAgentAddress>>,
    ) -> Option<Vec<AgentConfig>> {
        let (mut names, mut addresses) = (BTreeMap::new(), BTreeMap::new());
        each(raw.into_inner().into_iter().map(|agent| {
            let is_new = self.once(&mut names, &agent.name, "the agent");
            let is_at_new = self.once_at(&mut addresses, &agent.legs);
            let (own, name) = (&node.name.value, agent.name.get_ref());
            if name == own && !is_agent {
                return self.wrong(&agent.name, format!("this node, {name}, is not an agent: it has no [agent]"));
            }
            if name != own && !may_come(name) {
                return self.wrong(&agent.name, format!("the agent {name} is not a peer: add a [[peer]]"));
            }
            let (Some(()), Some(())) = (is_new, is_at_new) else { return None };
            Some(AgentConfig {
                name: agent.name.into_inner(),
                legs: agent.legs.into_inner().0,
                weight: agent.weight.0,
                connections_max: agent.connections_max,
            })
        }))
    }

    /// Whether a dispatcher discovers agents among the members. `join` is `None` if the join rule is wrong.
    pub(super) fn discover(
        &self,
        join: Option<Join>,
        discover: Option<Spanned<bool>>,
        agents: &Spanned<Vec<RawAgentAddress>>,
    ) -> Option<bool> {
        match discover.filter(|discover| *discover.get_ref()) {
            Some(discover) if join == Some(Join::Configured) => {
                self.wrong(&discover, "discover needs join = \"certified\" in [node]")
            }
            None if agents.get_ref().is_empty() => {
                self.wrong(agents, "the dispatcher has no agents: add one, or set discover = true")
            }
            discover => Some(discover.is_some()),
        }
    }
}

/// The address at which other nodes reach a listener of a node that they reach at `mesh`.
fn seen_from_outside(listener: SocketAddr, mesh: SocketAddr) -> SocketAddr {
    if listener.ip().is_unspecified() { SocketAddr::new(mesh.ip(), listener.port()) } else { listener }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::super::model::Config;
    use super::*;

    const NODE: &str = "[node]\nname = \"n1\"\npki = \"pki\"\n";
    const AGENT: &str = "[agent]\nlegs = \"0.0.0.0:4\"\nfiles = { root = \"www\" }\n";

    fn parse(parts: &[&str]) -> Result<Config, String> {
        let text = [&[NODE], parts].concat().concat();
        Config::parse(Path::new("node.toml"), &text).map_err(|error| error.to_string())
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_others_are_told_is_read() {
        let certified = "join = \"certified\"\n";
        let cases = [
            ("mesh = \"0.0.0.0:1\"\n", "", Join::Configured),
            ("mesh = \"0.0.0.0:1\"\n", "join = \"configured\"\n", Join::Configured),
            (
                "mesh = \"192.0.2.1:1\"\n",
                certified,
                Join::Certified { mesh: address("192.0.2.1:1"), legs: Some(address("192.0.2.1:4")) },
            ),
            (
                "mesh = \"0.0.0.0:1\"\nadvertise = \"192.0.2.9:7\"\n",
                certified,
                Join::Certified { mesh: address("192.0.2.9:7"), legs: Some(address("192.0.2.9:4")) },
            ),
        ];
        for (mesh, join, expected) in cases {
            assert_eq!(parse(&[mesh, join, AGENT]).unwrap().node.join, expected);
        }
    }

    #[test]
    fn a_dispatcher_may_find_agents_by_itself() {
        let certified = "mesh = \"127.0.0.1:1\"\njoin = \"certified\"\n";
        let dispatcher = "[dispatcher]\nlisten = [\"127.0.0.1:2\"]\ndiscover = true\nagents = ";
        let found = |node: &str, legs: &str| (NodeName::new(node).unwrap(), address(legs));
        let legs = [found("a1", "127.0.0.1:8"), found("a2", "127.0.0.1:9")].into();
        let listed = "[{ name = \"a1\", legs = \"127.0.0.1:3\", weight = 5 }]\n";
        for (agents, expected) in [
            ("[]\n", [("a1", "127.0.0.1:8", 1), ("a2", "127.0.0.1:9", 1)]),
            (listed, [("a1", "127.0.0.1:3", 5), ("a2", "127.0.0.1:9", 1)]),
        ] {
            let dispatcher = parse(&[certified, dispatcher, agents]).unwrap().dispatcher.unwrap();
            let config = dispatcher.with_agents(&legs);
            let agents: Vec<_> =
                config.agents.iter().map(|agent| (agent.name.as_str(), agent.legs, agent.weight)).collect();
            assert_eq!(agents, expected.map(|(name, legs, weight)| (name, address(legs), weight)));
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let dispatcher = "[dispatcher]\nlisten = [\"127.0.0.1:2\"]\nagents = []\n";
        let cases: [(&[&str], &str); 5] = [
            (&["mesh = \"[::]:1\"\njoin = \"certified\"\n", AGENT], "4: nodes cannot connect to [::]:1: set advertise"),
            (&["mesh = \"127.0.0.1:1\"\nadvertise = \"127.0.0.1:1\"\n", AGENT], "5: advertise has no effect unless"),
            (
                &["mesh = \"127.0.0.1:1\"\njoin = \"open\"\n", AGENT],
                "5: \"open\" is not allowed here: expected one of configured, certified",
            ),
            (&["mesh = \"127.0.0.1:1\"\n", dispatcher, "discover = true\n"], "8: discover needs join"),
            (
                &["mesh = \"127.0.0.1:1\"\n", dispatcher, "discover = false\n"],
                "7: the dispatcher has no agents: add one, or set discover = true",
            ),
        ];
        for (parts, expected) in cases {
            let refused = parse(parts).unwrap_err();
            assert!(refused.starts_with(&format!("node.toml:{expected}")), "{refused}");
        }
    }
}
