//! Simulates many nodes. Each is configured with one other node. Links come up and break, and messages are lost with
//! them. A seed repeats a run.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;

use super::tests::{address, name};
use super::*;

/// A cluster. A link is possible between two nodes if they have each other's address, or if one introduces itself.
struct World {
    random: u64,
    now: Now,
    nodes: Vec<Members>,
    links: BTreeSet<(usize, usize)>,
    /// Sender, receiver and message. Each link keeps the order.
    network: VecDeque<(usize, usize, MembersMessage)>,
    messages: usize,
}

impl World {
    /// Node N is configured with one of the nodes before it, drawn at random.
    fn new(seed: u64, count: usize) -> Self {
        let now = Now { instant: Instant::now(), unix_s: 1_700_000_000 };
        let mut world = Self {
            random: seed,
            now,
            nodes: Vec::new(),
            links: BTreeSet::new(),
            network: VecDeque::new(),
            messages: 0,
        };
        for node in 0..count {
            let mut members = Members::new(node_name(node), Some((address(port(node)), None)), FORGET_AFTER, now);
            if node > 0 {
                let seed = world.draw(node);
                members.configure(vec![Peer { name: node_name(seed), address: address(port(seed)) }], now);
            }
            world.nodes.push(members);
        }
        world
    }

    /// A number below `bound` (splitmix64).
    fn draw(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).unwrap()
    }

    /// Whether one of the two can connect, and neither refuses the other.
    fn may_link(&self, a: usize, b: usize) -> bool {
        let (name_a, name_b) = (node_name(a), node_name(b));
        let is_known = self.nodes[a].peer(&name_b).is_some() || self.nodes[b].peer(&name_a).is_some();
        is_known && !self.nodes[a].is_evicted(&name_b) && !self.nodes[b].is_evicted(&name_a)
    }

    fn link(&mut self, a: usize, b: usize) {
        if !self.links.insert((a, b)) {
            return;
        }
        for (from, to) in [(a, b), (b, a)] {
            self.nodes[from].linked(&node_name(to), true, self.now);
            let all = self.nodes[from].all(self.now);
            self.send(from, to, all);
        }
    }

    /// Breaks a link. The messages in transit on it are lost.
    fn cut(&mut self, a: usize, b: usize) {
        if self.links.remove(&(a, b)) {
            self.network.retain(|(from, to, _)| (*from.min(to), *from.max(to)) != (a, b));
            for (node, other) in [(a, b), (b, a)] {
                self.nodes[node].linked(&node_name(other), false, self.now);
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, message: MembersMessage) {
        self.messages += 1;
        self.network.push_back((from, to, message));
    }

    fn linked_with(&self, node: usize) -> Vec<usize> {
        let other = |&(a, b): &(usize, usize)| if a == node { Some(b) } else { (b == node).then_some(a) };
        self.links.iter().filter_map(other).collect()
    }

    fn follow(&mut self, node: usize, outcome: Outcome, except: Option<usize>) {
        for to in self.linked_with(node).into_iter().filter(|to| Some(*to) != except && !outcome.news.is_empty()) {
            self.send(node, to, outcome.news.clone());
        }
        for change in outcome.changes {
            if let Change::Evicted(verdict) = change {
                let others = self.linked_with(node).into_iter().filter(|other| node_name(*other) == verdict.name);
                for other in others.collect::<Vec<_>>() {
                    self.cut(node.min(other), node.max(other));
                }
            }
        }
    }

    /// Delivers one message of any link.
    fn deliver(&mut self) {
        let Some(link) = (!self.network.is_empty()).then(|| self.draw(self.network.len())) else { return };
        let (from, to) = (self.network[link].0, self.network[link].1);
        let first = self.network.iter().position(|(a, b, _)| (*a, *b) == (from, to)).unwrap();
        let (_, _, message) = self.network.remove(first).unwrap();
        let outcome = self.nodes[to].merge(message, self.now);
        self.follow(to, outcome, Some(from));
    }

    /// Links come up and break, and messages arrive, at random.
    fn rage(&mut self, steps: usize) {
        for _ in 0..steps {
            let (a, b) = self.pair();
            match self.draw(10) {
                0..3 if self.may_link(a, b) => self.link(a, b),
                3 => self.cut(a, b),
                _ => self.deliver(),
            }
        }
    }

    fn pair(&mut self) -> (usize, usize) {
        let (a, b) = (self.draw(self.nodes.len()), self.draw(self.nodes.len() - 1));
        let b = if b < a { b } else { b + 1 };
        (a.min(b), a.max(b))
    }

    /// Establishes all possible links, and delivers until no message is in transit.
    fn calm(&mut self) {
        loop {
            let links = self.links.len();
            for b in 1..self.nodes.len() {
                for a in 0..b {
                    if self.may_link(a, b) {
                        self.link(a, b);
                    }
                }
            }
            while !self.network.is_empty() {
                self.deliver();
            }
            if self.links.len() == links {
                return;
            }
        }
    }

    fn known_to(&self, node: usize) -> BTreeSet<NodeName> {
        self.nodes[node].all(self.now).members.into_iter().map(|member| member.name).collect()
    }
}

fn node_name(node: usize) -> NodeName {
    name(&format!("n{node:03}"))
}

fn port(node: usize) -> u16 {
    u16::try_from(node + 1).unwrap()
}

const FORGET_AFTER: Duration = Duration::from_hours(1);
const SEEDS: u64 = 20;

/// An eviction is ordered at a node that has not been evicted.
#[test]
fn all_nodes_converge_on_members_and_evictions() {
    for (seed, count) in (0..SEEDS).flat_map(|seed| [2, 3, 7, 20].map(|count| (seed, count))) {
        let mut world = World::new(seed, count);
        world.rage(50 * count);
        world.calm();
        let everybody: BTreeSet<_> = (0..count).map(node_name).collect();
        assert!((0..count).all(|node| world.known_to(node) == everybody), "seed {seed}, {count} nodes");
        assert_eq!(world.links.len(), count * (count - 1) / 2);

        let (orderer, evicted) = world.pair();
        let outcome = world.nodes[orderer].evict(&node_name(evicted), None, world.now).unwrap();
        world.follow(orderer, outcome, None);
        world.rage(50 * count);
        world.calm();
        let rest: BTreeSet<_> = (0..count).filter(|node| *node != evicted).map(node_name).collect();
        for node in (0..count).filter(|node| *node != evicted) {
            assert_eq!(world.known_to(node), rest, "seed {seed}, {count} nodes, at {node}");
            assert!(world.nodes[node].is_evicted(&node_name(evicted)));
        }
        assert!(world.linked_with(evicted).is_empty());
    }
}

/// A new node costs each of the others one message to all. Each link costs two messages.
#[test]
fn messages_are_bounded() {
    for count in [5, 20, 60] {
        let mut world = World::new(1, count);
        world.calm();
        let (links, pairs) = (world.links.len(), count * (count - 1));
        assert_eq!(links, pairs / 2);
        let to_join = world.messages;
        assert!(to_join <= 2 * links + count * pairs, "{to_join} messages for {count} nodes");
        let outcome = world.nodes[0].evict(&node_name(count - 1), None, world.now).unwrap();
        world.follow(0, outcome, None);
        world.calm();
        let to_evict = world.messages - to_join;
        assert!(to_evict <= pairs, "{to_evict} messages for {count} nodes");
        println!("{count} nodes: {to_join} messages until all know all, {to_evict} for an eviction");
    }
}
