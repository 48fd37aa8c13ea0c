//! The cost of a cluster as it grows, simulated with the code that nodes run: sharing sessions, and spreading clients.
//!
//! No message is lost or late. Each client of TLS 1.3 does one full handshake and resumes twice, each time at a node
//! drawn at random. Each handshake makes two sessions, as with `tickets = 2`.

#![allow(clippy::cast_precision_loss, reason = "counts are far below 2^53")]

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use serde::Serialize;
use watari_agent::{session_message_to_wire, ticket_seeds_to_wire};
use watari_balance::{BulkPolicy, Candidate, HandshakePolicy, Turns, by_client_address};
use watari_session::{Action, Exchange, Now, Placement, RANDOM_LEN, Ring, RingSettings, Session, Store, TicketSeed};
use watari_values::{NodeName, SecretBytes, SessionKey};
use watari_wire::{AgentToAgent, Message, frame};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("a cluster of {0} nodes cannot be simulated: the number is 2 to {NODES_MAX}")]
    Nodes(usize),
    #[error("a node has no name: {0}")]
    Name(String),
}

pub const NODES_MAX: usize = 10_000;
const RESUMPTIONS: u64 = 2;
const TICKETS: u64 = 2;
/// Handshakes of a simulation with 100 nodes or fewer. Larger clusters have fewer, because pushing costs more there.
const CLIENTS_MAX: u64 = 200;
const CLIENTS_MIN: u64 = 10;
/// Clients for each node when they are spread.
const SPREAD: usize = 10;
/// Length of rustls' TLS 1.3 sessions without a client certificate, in bytes.
const SESSION_LEN: usize = 150;

/// Messages and bytes that nodes sent for the handshakes, and what they store.
#[derive(Clone, Debug, Serialize)]
pub struct SharingCost {
    pub nodes: usize,
    pub messages_per_handshake: f64,
    pub bytes_per_handshake: f64,
    /// How many nodes store a session.
    pub copies: f64,
    /// Memory of stored sessions at all nodes, in bytes for each session.
    pub memory_per_session: f64,
}

impl SharingCost {
    pub fn simulate(nodes: usize, placement: Placement) -> Result<Self, Error> {
        let clients = (20_000 / nodes.max(1) as u64).clamp(CLIENTS_MIN, CLIENTS_MAX);
        let mut cluster = Cluster::of(nodes, placement)?;
        for client in 0..clients {
            cluster.serve(client);
        }
        let sum =
            |of: &dyn Fn(&Store) -> usize| cluster.nodes.iter().map(|node| of(node.store())).sum::<usize>() as f64;
        let handshakes = (clients * (1 + RESUMPTIONS)) as f64;
        let sessions = handshakes * TICKETS as f64;
        Ok(Self {
            nodes,
            messages_per_handshake: cluster.messages as f64 / handshakes,
            bytes_per_handshake: cluster.bytes as f64 / handshakes,
            copies: sum(&Store::len) / sessions,
            memory_per_session: sum(&Store::bytes) / sessions,
        })
    }
}

/// The busiest of the nodes, in relation to the average.
#[derive(Clone, Debug, Serialize)]
pub struct Spread {
    pub nodes: usize,
    /// Clients of the busiest node, divided by those of the average node: handshakes, and the data after them.
    pub handshakes: f64,
    pub bulk: f64,
}

impl Spread {
    /// Spreads clients with addresses that follow each other.
    pub fn simulate(nodes: usize, handshake: HandshakePolicy, bulk: BulkPolicy) -> Result<Self, Error> {
        let mut candidates: Vec<_> = names(nodes)?.into_iter().map(Candidate::new).collect();
        let by_name: HashMap<NodeName, usize> =
            candidates.iter().map(|candidate| candidate.name.clone()).zip(0..).collect();
        let (mut turns, mut handshakes, mut data) = (Turns::default(), vec![0; nodes], vec![0; nodes]);
        for client in 0..nodes * SPREAD {
            let address = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + u32::try_from(client).unwrap_or_default()));
            let policy = if bulk == BulkPolicy::Off { HandshakePolicy::ClientAddress } else { handshake };
            let Some(picked) = policy.pick(&mut turns, address, &candidates) else { continue };
            let first = by_name[&picked.name];
            let second = match bulk {
                BulkPolicy::ClientAddress => by_client_address(address, &candidates),
                BulkPolicy::Stay | BulkPolicy::Off => None,
            };
            let second = second.map_or(first, |picked| by_name[&picked.name]);
            handshakes[first] += 1;
            data[second] += 1;
            candidates[second].connections += 1;
        }
        let busiest = |counts: &[usize]| counts.iter().max().map_or(0.0, |most| *most as f64 / SPREAD as f64);
        Ok(Self { nodes, handshakes: busiest(&handshakes), bulk: busiest(&data) })
    }
}

fn names(nodes: usize) -> Result<Vec<NodeName>, Error> {
    if !(2..=NODES_MAX).contains(&nodes) {
        return Err(Error::Nodes(nodes));
    }
    let names = (0..nodes).map(|number| NodeName::new(&format!("agent-{number}")));
    names.collect::<Result<_, _>>().map_err(|error| Error::Name(error.to_string()))
}

/// Nodes whose messages arrive without delay.
struct Cluster {
    names: Vec<NodeName>,
    by_name: HashMap<NodeName, usize>,
    nodes: Vec<Exchange>,
    sessions: u64,
    /// Messages that the nodes sent.
    messages: u64,
    /// Bytes of the frames of these messages.
    bytes: u64,
}

impl Cluster {
    fn of(nodes: usize, placement: Placement) -> Result<Self, Error> {
        let names = names(nodes)?;
        let members = names.iter().cloned().collect();
        let node = |name: &NodeName| {
            let mut node = Exchange::new(name.clone(), placement, Store::new(64 << 20));
            node.set_members(NOW, &members);
            node
        };
        let by_name = names.iter().cloned().zip(0..).collect();
        Ok(Self { nodes: names.iter().map(node).collect(), names, by_name, sessions: 0, messages: 0, bytes: 0 })
    }

    fn serve(&mut self, client: u64) {
        let mut known = self.establish(self.drawn(client, 0));
        for visit in 1..=RESUMPTIONS {
            let node = self.drawn(client, visit);
            let (_, actions) = self.nodes[node].get(NOW, vec![known]);
            self.deliver(node, actions);
            known = self.establish(node);
        }
    }

    /// Stores a handshake's sessions, and returns the key of the one that the client will resume.
    fn establish(&mut self, node: usize) -> SessionKey {
        let made: Vec<_> = (0..TICKETS).map(|_| self.session(node)).collect();
        let key = made[0].0;
        let (_, actions) = self.nodes[node].put(NOW, made);
        self.deliver(node, actions);
        key
    }

    fn session(&mut self, node: usize) -> (SessionKey, Session) {
        self.sessions += 1;
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, &self.sessions.to_be_bytes()).as_ref());
        let secret = SecretBytes::new(vec![0; SESSION_LEN]);
        let issuer = self.names[node].clone();
        (SessionKey(key), Session { secret, expires: NOW.unix_s + 3600, issuer })
    }

    /// Delivers messages until no node sends any more.
    fn deliver(&mut self, from: usize, actions: Vec<Action>) {
        let mut sent: VecDeque<(usize, Vec<Action>)> = [(from, actions)].into();
        while let Some((from, actions)) = sent.pop_front() {
            for action in actions {
                if let Action::Send(to, message) | Action::SendSoon(to, message) = action
                    && let Some(&to) = self.by_name.get(&to)
                {
                    let sender = self.names[from].clone();
                    self.messages += 1;
                    self.bytes += frame::encoded_len(&session_message_to_wire(message.clone()).into()) as u64;
                    sent.push_back((to, self.nodes[to].on_message(NOW, &sender, message)));
                }
            }
        }
    }

    /// A node drawn at random, the same in every run.
    fn drawn(&self, client: u64, visit: u64) -> usize {
        let digest = digest(&SHA256, &[client.to_be_bytes(), visit.to_be_bytes()].concat());
        let number = digest.as_ref().first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
        (number % self.nodes.len() as u64) as usize
    }
}

const NOW: Now = Now { ms: 1_000, unix_s: 1_000_000 };

/// Bytes that a node receives in a day where agents share ticket keys. Keys rotate every six hours, and the node restarts
/// once. After the restart, each other node sends it all its seeds.
pub fn bytes_of_keys(nodes: usize) -> u64 {
    let settings = RingSettings {
        lifetime: Duration::from_hours(12),
        period: Duration::from_hours(1),
        activation_delay: Duration::from_secs(5),
    };
    let mut ring = Ring::new(settings, [0; 12], NOW.unix_s);
    let mut rotated = 0;
    for hour in 0..24 {
        let now = NOW.unix_s + hour * 3600;
        ring.advance(now);
        if hour % 6 == 0
            && let Ok(seed) = ring.rotate(now, &[u8::try_from(hour).unwrap_or_default(); RANDOM_LEN])
        {
            rotated += len(ring.share_one(&seed).into_iter().collect());
        }
    }
    rotated + (nodes as u64 - 1) * len(ring.share())
}

fn len(seeds: Vec<TicketSeed>) -> u64 {
    frame::encoded_len(&Message::from(AgentToAgent::TicketSeeds(ticket_seeds_to_wire(seeds)))) as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn owners_cost_the_same_in_any_cluster_and_pushing_does_not() {
        let per_handshake = |nodes, placement| SharingCost::simulate(nodes, placement).unwrap().messages_per_handshake;
        let (small, large) = (per_handshake(10, Placement::Owner), per_handshake(100, Placement::Owner));
        assert!(large < small * 1.4 && large < 12.0, "{small} {large}");
        let (small, large) = (per_handshake(10, Placement::Push), per_handshake(100, Placement::Push));
        assert!((17.9..19.0).contains(&small) && (197.9..199.0).contains(&large), "{small} {large}");
    }

    #[test]
    fn few_nodes_store_a_session_of_owners_and_all_store_a_pushed_one() {
        // Two owners, and a node that has asked them.
        let copies = |placement| SharingCost::simulate(20, placement).unwrap().copies;
        assert!((2.0..3.5).contains(&copies(Placement::Owner)) && copies(Placement::Push) > 19.9);
    }

    #[test]
    fn turns_are_even_and_addresses_are_not() {
        let spread = |handshake, bulk| Spread::simulate(50, handshake, bulk).unwrap();
        let moved = spread(HandshakePolicy::RoundRobin, BulkPolicy::ClientAddress);
        assert!(moved.handshakes < 1.001 && moved.bulk > 1.2, "{moved:?}");
        let off = spread(HandshakePolicy::RoundRobin, BulkPolicy::Off);
        assert!(off.handshakes > 1.2 && off.bulk > 1.2, "{off:?}");
        let stay = spread(HandshakePolicy::RoundRobin, BulkPolicy::Stay);
        assert!(stay.handshakes < 1.001 && stay.bulk < 1.001, "{stay:?}");
    }

    #[test]
    fn a_cluster_of_one_or_of_too_many_is_refused() {
        assert!(matches!(SharingCost::simulate(1, Placement::Push), Err(Error::Nodes(1))));
        assert!(matches!(
            Spread::simulate(10_001, HandshakePolicy::RoundRobin, BulkPolicy::Stay),
            Err(Error::Nodes(_))
        ));
    }
}
