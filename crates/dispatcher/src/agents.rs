//! Which agents can take connections, and the legs to them.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use serde::Serialize;
use tokio::net::TcpStream;
use watari_balance::{BulkPolicy, HandshakePolicy, RoundRobin, by_client_address};
use watari_sys::tcp;
use watari_wire::leg::{LegSigner, Preface};
use watari_wire::{LegKey, NodeName};

use crate::Config;
use crate::drain::Drains;
use crate::table::Table;

/// The agents of the configuration. One is available from when it hands out a leg key until its link is lost.
pub(crate) struct Agents {
    dispatcher: NodeName,
    known: BTreeMap<NodeName, Agent>,
    bulk: BulkPolicy,
    handshake: HandshakePolicy,
    round_robin: Mutex<RoundRobin>,
    pub(crate) drains: Drains,
    leg_timeout: Duration,
}

struct Agent {
    legs: SocketAddr,
    key: RwLock<Option<Key>>,
}

/// What an agent that can take connections has handed out.
#[derive(Clone)]
struct Key {
    signer: Arc<LegSigner>,
    handshakes: bool,
    /// The link it came over is up. Without, moves that are decided already are still signed with it.
    linked: bool,
}

/// Who serves a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// Does the handshake.
    pub(crate) handshake: NodeName,
    /// Gets the data, if it is another.
    pub(crate) bulk: Option<NodeName>,
}

/// What is known of an agent.
#[derive(Debug, Clone, Serialize)]
pub struct AgentStatus {
    /// Its name.
    pub name: NodeName,
    /// Where it takes legs.
    pub legs: SocketAddr,
    /// Whether it can take connections.
    pub available: bool,
    /// Whether it is being emptied: it gets nothing new, and its connections are asked to leave.
    pub draining: bool,
    /// Connections it owns.
    pub connections: usize,
}

impl Agents {
    pub(crate) fn new(config: &Config) -> Self {
        let agent = |address: &crate::AgentAddress| {
            (address.name.clone(), Agent { legs: address.legs, key: RwLock::default() })
        };
        Self {
            dispatcher: config.name.clone(),
            known: config.agents.iter().map(agent).collect(),
            bulk: config.bulk,
            handshake: config.handshake,
            round_robin: Mutex::default(),
            drains: Drains::default(),
            leg_timeout: config.limits.leg_timeout,
        }
    }

    /// An agent handed out a key: legs are signed with it from now on.
    pub(crate) fn set_key(&self, agent: &NodeName, key: &LegKey) {
        if let Some(known) = self.known.get(agent) {
            let signer = Arc::new(LegSigner::new(self.dispatcher.clone(), agent, key));
            *known.key_mut() = Some(Key { signer, handshakes: key.handshakes, linked: true });
        } else {
            tracing::debug!(peer = %agent, "leg key of an agent that is not in the configuration");
        }
    }

    /// The link to an agent is lost: it gets nothing new until it hands out a key again.
    pub(crate) fn link_down(&self, agent: &NodeName) {
        if let Some(known) = self.known.get(agent)
            && let Some(key) = known.key_mut().as_mut()
        {
            key.linked = false;
        }
    }

    /// Picks the agents for a client; `None` if there is none. `failed` are passed over.
    pub(crate) fn assign(&self, client: IpAddr, failed: &[NodeName]) -> Option<Assignment> {
        let shake_hands = self.available(|name, key| key.handshakes && !failed.contains(name));
        let in_turn = || match self.handshake {
            HandshakePolicy::RoundRobin => {
                self.round_robin.lock().unwrap_or_else(PoisonError::into_inner).pick(&shake_hands).cloned()
            }
        };
        Some(match self.bulk {
            BulkPolicy::Off => Assignment { handshake: by_client_address(client, &shake_hands).cloned()?, bulk: None },
            BulkPolicy::Stay => Assignment { handshake: in_turn()?, bulk: None },
            BulkPolicy::ClientAddress => {
                let handshake = in_turn()?;
                let available = self.available(|name, _| !failed.contains(name));
                let bulk = by_client_address(client, &available).filter(|bulk| **bulk != handshake).cloned();
                Assignment { handshake, bulk }
            }
        })
    }

    /// The agent that gets a connection of `client` when its own is emptied: the one its address selects, or the next in
    /// turn where addresses select none.
    pub(crate) fn successor(&self, client: IpAddr) -> Option<NodeName> {
        let available = self.available(|_, _| true);
        match self.bulk {
            BulkPolicy::ClientAddress | BulkPolicy::Off => by_client_address(client, &available).cloned(),
            BulkPolicy::Stay => {
                self.round_robin.lock().unwrap_or_else(PoisonError::into_inner).pick(&available).cloned()
            }
        }
    }

    /// Whether `agent` is one of the configuration, and whether it can take connections now.
    pub(crate) fn availability(&self, agent: &NodeName) -> Option<bool> {
        self.known.get(agent).map(|agent| agent.key().is_some_and(|key| key.linked))
    }

    /// The available agents that are `wanted` and not being emptied, by name.
    fn available(&self, wanted: impl Fn(&NodeName, &Key) -> bool) -> Vec<NodeName> {
        let is_wanted = |(name, agent): &(&NodeName, &Agent)| {
            agent.key().is_some_and(|key| key.linked && wanted(name, &key)) && !self.drains.contains(name)
        };
        self.known.iter().filter(is_wanted).map(|(name, _)| name.clone()).collect()
    }

    /// Connects a leg to `agent`. Nothing is written on it.
    pub(crate) async fn connect(&self, agent: &NodeName) -> io::Result<TcpStream> {
        let known = self.agent(agent)?;
        let leg = tokio::time::timeout(self.leg_timeout, TcpStream::connect(known.legs)).await??;
        tcp::prepare(&leg)?;
        Ok(leg)
    }

    /// The bytes that open a leg to `agent`.
    pub(crate) fn sign(&self, agent: &NodeName, preface: &Preface) -> io::Result<Vec<u8>> {
        let key = self.agent(agent)?.key().ok_or_else(|| io::Error::other("the agent is not available"))?;
        Ok(key.signer.sign(preface))
    }

    pub(crate) fn statuses(&self, table: &Table) -> Vec<AgentStatus> {
        let owned = table.connections_by_node();
        let status = |(name, agent): (&NodeName, &Agent)| AgentStatus {
            name: name.clone(),
            legs: agent.legs,
            available: agent.key().is_some_and(|key| key.linked),
            draining: self.drains.contains(name),
            connections: owned.get(name).copied().unwrap_or(0),
        };
        self.known.iter().map(status).collect()
    }

    fn agent(&self, agent: &NodeName) -> io::Result<&Agent> {
        self.known.get(agent).ok_or_else(|| io::Error::other("no such agent in the configuration"))
    }
}

impl Agent {
    fn key(&self) -> Option<Key> {
        self.key.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn key_mut(&self) -> RwLockWriteGuard<'_, Option<Key>> {
        self.key.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{AgentAddress, Limits};
    use watari_wire::SecretBytes;

    fn name(text: &str) -> NodeName {
        NodeName::new(text).unwrap()
    }

    fn agents(bulk: BulkPolicy) -> Agents {
        let address = |n: u16| AgentAddress { name: name(&format!("a{n}")), legs: ([127, 0, 0, 1], n).into() };
        let agents = Agents::new(&Config {
            name: name("d1"),
            agents: (1..=3).map(address).collect(),
            handshake: HandshakePolicy::RoundRobin,
            bulk,
            limits: Limits::default(),
        });
        for agent in ["a1", "a2", "a3"] {
            agents.set_key(&name(agent), &key(true));
        }
        agents
    }

    fn key(handshakes: bool) -> LegKey {
        LegKey { id: 1, key: SecretBytes::new(vec![7; 32]), handshakes }
    }

    #[test]
    fn handshakes_go_round_while_the_data_of_a_client_stays_together() {
        let agents = agents(BulkPolicy::ClientAddress);
        let client = [192, 0, 2, 1].into();
        let assigned: Vec<_> = (0..3).map(|_| agents.assign(client, &[]).unwrap()).collect();
        let handshakes: Vec<_> = assigned.iter().map(|a| a.handshake.as_str()).collect();
        assert_eq!(handshakes, ["a1", "a2", "a3"]);
        let owners: Vec<_> = assigned.iter().map(|a| a.bulk.clone().unwrap_or(a.handshake.clone())).collect();
        assert!(owners.iter().all(|owner| *owner == owners[0]), "{owners:?}");
    }

    #[test]
    fn without_handoff_the_address_selects_the_agent_of_the_handshake() {
        let agents = agents(BulkPolicy::Off);
        let client = [192, 0, 2, 1].into();
        let first = agents.assign(client, &[]).unwrap();
        assert_eq!(first.bulk, None);
        assert_eq!(agents.assign(client, &[]), Some(first));
    }

    #[test]
    fn an_agent_without_certificates_gets_data_but_no_handshake() {
        let agents = agents(BulkPolicy::ClientAddress);
        agents.set_key(&name("a3"), &key(false));
        let assigned: Vec<_> = (0..100).map(|n| agents.assign([192, 0, 2, n].into(), &[]).unwrap()).collect();
        assert!(assigned.iter().all(|assignment| assignment.handshake != name("a3")));
        assert!(assigned.iter().any(|assignment| assignment.bulk == Some(name("a3"))));
    }

    #[test]
    fn an_agent_without_a_link_or_that_failed_gets_nothing() {
        let agents = agents(BulkPolicy::Stay);
        agents.link_down(&name("a2"));
        let client = [192, 0, 2, 1].into();
        let picked: Vec<_> = (0..4).map(|_| agents.assign(client, &[name("a3")]).unwrap().handshake).collect();
        assert_eq!(picked, vec![name("a1"); 4]);
        assert_eq!(agents.assign(client, &[name("a1"), name("a3")]), None);
    }
}
