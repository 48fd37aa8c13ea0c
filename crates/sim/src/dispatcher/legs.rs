//! Legs to agents: new ones, and idle ones that earlier connections have left.

use std::collections::{BTreeMap, BTreeSet};

use watari_relay::DispatcherState;
use watari_values::{ConnectionId, NodeName};
use watari_wire::LegKey;
use watari_wire::leg::{LEG_FREE, LegSigner, Preface};

use crate::agent::{DISPATCHER, name, node};
use crate::network::{Network, NodeId};
use crate::socket::Socket;

/// The most idle legs to one agent.
const IDLE_MAX: usize = 3;

/// What the connections of the dispatcher share.
pub(crate) struct Legs {
    pub(crate) network: Network,
    signers: BTreeMap<NodeId, LegSigner>,
    /// Legs that a connection has left.
    idle: BTreeMap<NodeId, Vec<IdleLeg>>,
    /// Connections whose handshake an agent has announced.
    pub(crate) established: BTreeSet<ConnectionId>,
    /// Agents that have a link.
    pub(crate) available: BTreeSet<NodeId>,
}

struct IdleLeg {
    leg: Socket,
    /// The agent has confirmed that it has read all of the last connection.
    is_free: bool,
}

/// A leg, and whether it has carried another connection.
pub(crate) struct Leg {
    pub(crate) socket: Socket,
    pub(crate) reused: bool,
}

impl DispatcherState for Legs {
    fn keeps_legs_to(&self, agent: &NodeName) -> bool {
        let agent = node(agent);
        self.available.contains(&agent) && self.idle.get(&agent).map_or(0, Vec::len) < IDLE_MAX
    }

    fn is_established(&self, connection: ConnectionId) -> bool {
        self.established.contains(&connection)
    }
}

impl Legs {
    pub(crate) fn new(network: Network) -> Self {
        Self {
            network,
            signers: BTreeMap::new(),
            idle: BTreeMap::new(),
            established: BTreeSet::new(),
            available: BTreeSet::new(),
        }
    }

    pub(crate) fn set_key(&mut self, agent: NodeId, key: &LegKey) {
        self.available.insert(agent);
        self.signers.insert(agent, LegSigner::new(name(DISPATCHER), &name(agent), key));
    }

    pub(crate) fn link_down(&mut self, agent: NodeId) {
        self.available.remove(&agent);
        self.signers.remove(&agent);
        self.idle.remove(&agent);
    }

    /// Some agent that is available, if possible another than `gone`.
    pub(crate) fn pick(&self, gone: Option<NodeId>) -> Option<NodeId> {
        let others: Vec<_> = self.available.iter().filter(|agent| Some(**agent) != gone).collect();
        let any: Vec<_> = if others.is_empty() { self.available.iter().collect() } else { others };
        let at = self.network.random(|random| random.below(any.len() as u64)) as usize;
        any.get(at).map(|agent| **agent)
    }

    /// Signs a preface for its agent, if there is a key.
    pub(crate) fn sign(&self, agent: NodeId, preface: &Preface) -> Option<Vec<u8>> {
        self.signers.get(&agent).map(|signer| signer.sign(preface))
    }

    pub(crate) fn connect(&mut self, agent: NodeId) -> Leg {
        let mut socket = self.network.connect(DISPATCHER, agent, 0);
        socket.fin_on_close();
        Leg { socket, reused: false }
    }

    /// Takes a free leg, or connects one.
    pub(crate) fn take(&mut self, agent: NodeId) -> Leg {
        let idle = self.idle.entry(agent).or_default();
        let is_good = |idle: &mut IdleLeg| match (idle.leg.read(2), idle.is_free) {
            (None, _) => true,
            (Some(Ok(bytes)), false) if bytes == [LEG_FREE] => {
                idle.is_free = true;
                true
            }
            _ => false,
        };
        idle.retain_mut(is_good);
        match idle.iter().position(|idle| idle.is_free) {
            Some(at) => {
                self.network.count(|figures| figures.legs_reused += 1);
                Leg { socket: idle.remove(at).leg, reused: true }
            }
            None => self.connect(agent),
        }
    }

    pub(crate) fn keep(&mut self, agent: NodeId, leg: Socket) {
        self.idle.entry(agent).or_default().push(IdleLeg { leg, is_free: false });
    }

    pub(crate) fn forget_all(&mut self) {
        self.idle.clear();
    }

    pub(crate) fn forget(&mut self, agent: NodeId) {
        self.idle.remove(&agent);
    }
}
