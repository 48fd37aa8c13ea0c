//! The cost of sharing sessions as a cluster grows, simulated with the code that nodes run.
//!
//! No message is lost or late. Each client of TLS 1.3 does one full handshake and resumes twice, each time at a node
//! drawn at random. Each handshake makes two sessions, as with `tickets = 2`.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use watari_agent::{session_message_to_wire, ticket_seeds_to_wire};
use watari_session::{Action, Exchange, Now, Placement, RANDOM_LEN, Ring, RingSettings, Session, Store, TicketSeed};
use watari_values::{NodeName, SecretBytes, SessionKey};
use watari_wire::{AgentToAgent, Message, frame};

use crate::failure::{Failure, tls};

/// The heading of the table.
pub(super) const TITLE: &str =
    "Cost of sharing sessions, by the number of agents (simulated with the code that agents run)";

/// A table of the cost of each mode, by the number of nodes.
pub(super) fn table() -> Result<String, Failure> {
    let mut table = String::from(HEAD);
    for nodes in SIZES {
        let (push, owner) = (Costs::of(nodes, Placement::Push)?, Costs::of(nodes, Placement::Owner)?);
        let tickets = rotation(nodes);
        let _ = writeln!(table, "| {nodes} | {push} | {owner} | {tickets} |");
    }
    Ok(table)
}

const SIZES: [usize; 9] = [2, 3, 5, 10, 20, 50, 100, 300, 1000];
const CLIENTS: u64 = 200;
const RESUMPTIONS: u64 = 2;
const TICKETS: u64 = 2;
/// Length of rustls' TLS 1.3 sessions without a client certificate, in bytes.
const SESSION_LEN: usize = 150;

const HEAD: &str = "\
| agents | push: messages, bytes per handshake | push: per agent, sent + received | push: copies of a session \
| owner: messages, bytes per handshake | owner: per agent, sent + received | owner: copies of a session \
| tickets: bytes that an agent receives per day |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
";

/// Messages and bytes that the nodes sent for all handshakes, and the copies of sessions that they store.
struct Costs {
    nodes: usize,
    messages: u64,
    bytes: u64,
    copies: usize,
}

impl Costs {
    fn of(nodes: usize, placement: Placement) -> Result<Self, Failure> {
        let mut cluster = Cluster::of(nodes, placement)?;
        for client in 0..CLIENTS {
            cluster.serve(client);
        }
        let copies = cluster.nodes.iter().map(|node| node.store().len()).sum();
        Ok(Self { nodes, messages: cluster.messages, bytes: cluster.bytes, copies })
    }
}

impl std::fmt::Display for Costs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let handshakes = (CLIENTS * (1 + RESUMPTIONS)) as f64;
        let (messages, bytes) = (self.messages as f64 / handshakes, self.bytes as f64 / handshakes);
        let nodes = self.nodes as f64;
        // One node sends each message, and another receives it.
        let (sent_and_received, share) = (2.0 * messages / nodes, 2.0 * bytes / nodes);
        let copies = self.copies as f64 / (handshakes * TICKETS as f64);
        write!(f, "{messages:.1}, {bytes:.0} | {sent_and_received:.2}, {share:.0} | {copies:.1}")
    }
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
    fn of(nodes: usize, placement: Placement) -> Result<Self, Failure> {
        let names = (0..nodes).map(|number| NodeName::new(&format!("agent-{number}")));
        let names: Vec<_> = names.collect::<Result<_, _>>().map_err(tls("naming a node"))?;
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

/// Bytes that a node receives in a day. Keys rotate every six hours, and the node restarts once. After the restart,
/// each other node sends it all its seeds.
fn rotation(nodes: usize) -> u64 {
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
        let per_handshake = |nodes, placement| {
            Costs::of(nodes, placement).unwrap().messages as f64 / (CLIENTS * (1 + RESUMPTIONS)) as f64
        };
        let (small, large) = (per_handshake(10, Placement::Owner), per_handshake(100, Placement::Owner));
        assert!(large < small * 1.4 && large < 12.0, "{small} {large}");
        let (small, large) = (per_handshake(10, Placement::Push), per_handshake(100, Placement::Push));
        assert!((17.9..19.0).contains(&small) && (197.9..199.0).contains(&large), "{small} {large}");
    }
}
