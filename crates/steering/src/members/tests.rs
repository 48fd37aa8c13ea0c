//! Dispatchers that join, leave, die and stand still, and the packets of their connections.
#![allow(clippy::unwrap_used)]

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;

fn name(number: u8) -> NodeName {
    NodeName::new(&format!("d{number}")).unwrap()
}

fn mac(number: u8) -> Mac {
    [2, 0, 0, 0, 0, number]
}

fn advert(number: u8, state: SteeringState) -> SteeringAdvert {
    SteeringAdvert { mac: mac(number), state, addresses: 0, can_serve: true, view: 0, has_strays: false }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_dispatcher_that_joins_gets_an_even_share_and_moves_no_other_slot() {
    let mut members = Members::new(name(1), &BTreeSet::new(), SECOND);
    members.set_state(SteeringState::Serving, SECOND);
    for number in 2..=3 {
        members.hear(&name(number), advert(number, SteeringState::Serving), SECOND);
    }
    let primaries = |members: &Members| Slot::all().map(|slot| members.primary(slot).cloned()).collect::<Vec<_>>();
    let before = primaries(&members);
    members.hear(&name(4), advert(4, SteeringState::Joining), SECOND);
    assert_eq!(primaries(&members), before);
    members.hear(&name(4), advert(4, SteeringState::Serving), SECOND);
    let after = primaries(&members);
    assert!(before.iter().zip(&after).all(|(before, after)| before == after || *after == Some(name(4))));
    for number in 1..=4 {
        let share = after.iter().filter(|primary| **primary == Some(name(number))).count();
        assert!((200..320).contains(&share), "{share} of {SLOTS}", SLOTS = crate::SLOTS);
    }
}

#[test]
fn one_that_is_silent_accepts_nothing_and_may_have_connections_for_a_while() {
    let mut members = Members::new(name(1), &BTreeSet::new(), SECOND);
    members.set_state(SteeringState::Serving, SECOND);
    members.hear(&name(2), advert(2, SteeringState::Serving), SECOND);
    let lost = Slot::all().find(|slot| members.primary(*slot) == Some(&name(2))).unwrap();
    assert_eq!(members.table().entry(lost).first, Some(mac(2)));
    members.expire(SECOND + SILENT_AFTER);
    assert_eq!(members.table().entry(lost).first, Some(mac(2)));
    members.expire(SECOND + SILENT_AFTER + Duration::from_millis(1));
    assert_eq!(members.table().entry(lost), Entry { next: Some(mac(2)), ..Entry::default() });
    members.expire(SECOND + SILENT_MAX + Duration::from_millis(1));
    assert_eq!(members.table().entry(lost), Entry::default());
}

#[test]
fn one_has_no_strays_only_when_all_have_agreed_for_a_while() {
    let mut members = Members::new(name(1), &BTreeSet::new(), SECOND);
    members.set_state(SteeringState::Serving, SECOND);
    members.hear(&name(2), advert(2, SteeringState::Serving), SECOND);
    let has_strays = |members: &Members, now| members.advert(mac(1), now).has_strays;
    assert!(has_strays(&members, 100 * SECOND), "the other has another view");
    let view = members.advert(mac(1), SECOND).view;
    members.hear(&name(2), SteeringAdvert { view, ..advert(2, SteeringState::Serving) }, 2 * SECOND);
    assert!(has_strays(&members, 2 * SECOND));
    assert!(!has_strays(&members, 2 * SECOND + AGREED_FOR));
    members.set_strays(1);
    assert!(has_strays(&members, 2 * SECOND + AGREED_FOR));
}

/// A rule that a cluster breaks. The simulation has to find each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// A primary gives no packet a second chance.
    SecondChance,
    /// Dispatchers tell that they have no strays.
    Strays,
    /// Dispatchers answer packets of unknown connections at once.
    Doubt,
    /// A process that stands still accepts connections, and its kernel answers.
    TimeLimit,
}

/// A cluster of real [`Members`]. Adverts take a random time.
struct Cluster {
    broken: Broken,
    random: SmallRng,
    now: Duration,
    nodes: Vec<Node>,
    /// When it arrives, who sends it, to whom.
    adverts: Vec<(Duration, usize, usize, SteeringAdvert)>,
    /// The slot of each connection, and who has it.
    connections: Vec<(Slot, usize)>,
    dropped: u32,
}

struct Node {
    members: Members,
    /// It was killed, or has left.
    is_gone: bool,
    /// The process does nothing until then.
    stopped_until: Duration,
    /// What its kernel does.
    table: Table,
    renewed_until: Duration,
    is_sure: bool,
}

const TICK: Duration = Duration::from_millis(20);
const ADVERT_INTERVAL: Duration = Duration::from_millis(200);
/// The longest way of an advert. It has to be shorter than `AGREED_FOR`.
const DELAY_MAX_MS: u64 = 250;

impl Cluster {
    fn new(seed: u64, broken: Broken) -> Self {
        Self {
            broken,
            random: SmallRng::seed_from_u64(seed),
            now: SECOND,
            nodes: Vec::new(),
            adverts: Vec::new(),
            connections: Vec::new(),
            dropped: 0,
        }
    }

    fn add(&mut self) {
        let members = Members::new(name(self.nodes.len() as u8), &BTreeSet::new(), self.now);
        let table = members.table();
        let node = Node {
            members,
            is_gone: false,
            stopped_until: Duration::ZERO,
            table,
            renewed_until: Duration::ZERO,
            is_sure: false,
        };
        self.nodes.push(node);
    }

    fn runs(&self, number: usize) -> bool {
        !self.nodes[number].is_gone && self.nodes[number].stopped_until <= self.now
    }

    fn tick(&mut self) {
        self.now += TICK;
        let due: Vec<_> = self
            .adverts
            .extract_if(.., |(at, _, to, _)| {
                *at <= self.now && {
                    let node = &self.nodes[*to];
                    node.is_gone || node.stopped_until <= self.now
                }
            })
            .collect();
        for (_, from, to, advert) in due {
            self.nodes[to].members.hear(&name(from as u8), advert, self.now);
        }
        let is_interval = self.now.as_millis().is_multiple_of(ADVERT_INTERVAL.as_millis());
        for number in 0..self.nodes.len() {
            if !self.runs(number) {
                continue;
            }
            let strays = self.strays(number).count();
            let now = self.now;
            let node = &mut self.nodes[number];
            let before = node.members.advert(mac(number as u8), now);
            node.members.expire(now);
            node.members.set_strays(strays);
            let after = node.members.advert(mac(number as u8), now);
            node.table = node.members.table();
            node.is_sure = node.members.is_sure(now);
            if is_interval || before != after {
                self.tell(number);
            }
        }
    }

    fn tell(&mut self, number: usize) {
        self.nodes[number].renewed_until = self.now + SILENT_AFTER;
        let mut advert = self.nodes[number].members.advert(mac(number as u8), self.now);
        advert.has_strays &= self.broken != Broken::Strays;
        for to in (0..self.nodes.len()).filter(|to| *to != number) {
            // Adverts of one link stay in order.
            let last = self
                .adverts
                .iter()
                .filter(|(_, from, there, _)| (*from, *there) == (number, to))
                .map(|(at, ..)| *at)
                .max();
            let at = self.now + Duration::from_millis(self.random.random_range(0..DELAY_MAX_MS));
            self.adverts.push((at.max(last.unwrap_or_default()), number, to, advert.clone()));
        }
    }

    fn set_state(&mut self, number: usize, state: SteeringState) {
        let now = self.now;
        let node = &mut self.nodes[number];
        node.members.set_state(state, now);
        (node.table, node.is_sure) = (node.members.table(), node.members.is_sure(now));
        self.tell(number);
    }

    fn strays(&self, number: usize) -> impl Iterator<Item = usize> {
        let members = &self.nodes[number].members;
        let mine = name(number as u8);
        self.connections.iter().enumerate().filter_map(move |(index, (slot, at))| {
            (*at == number && members.primary(*slot) != Some(&mine)).then_some(index)
        })
    }

    /// The dispatcher that handles a packet which the router sends to `to`. `connection`: who has it, and `None` for a
    /// SYN. None if a packet is dropped.
    fn route(&self, slot: Slot, to: usize, connection: Option<usize>) -> Option<usize> {
        let (mut at, mut from, mut is_doubtful) = (to, None, false);
        for _ in 0..64 {
            let node = &self.nodes[at];
            if connection == Some(at) {
                return Some(at);
            }
            // As in the program.
            let mut entry = node.table.entry(slot);
            let is_late = self.now > node.renewed_until && self.broken != Broken::TimeLimit;
            if is_late {
                entry.first = entry.first.or(entry.fallback);
            }
            let next = match entry.first {
                Some(first) if Some(first) != from => Some(first),
                _ if connection.is_none() && is_late => return None,
                _ if connection.is_none() || self.broken == Broken::SecondChance => None,
                _ if entry.next == from => entry.after_next,
                _ => entry.next,
            };
            is_doubtful |= (!node.is_sure || is_late) && self.broken != Broken::Doubt;
            let Some(next) = next else {
                return (connection.is_none() || !is_doubtful).then_some(at);
            };
            (from, at) = (Some(mac(at as u8)), usize::from(next[5]));
        }
        None
    }

    fn serving(&self) -> Vec<usize> {
        let serves =
            |number: &usize| self.runs(*number) && self.nodes[*number].members.state() == SteeringState::Serving;
        (0..self.nodes.len()).filter(serves).collect()
    }

    /// A router may send any packet to any dispatcher that has the address.
    fn check(&mut self) {
        let has_address = |node: &Node| {
            !node.is_gone && matches!(node.members.state(), SteeringState::Serving | SteeringState::Leaving)
        };
        let all: Vec<_> = (0..self.nodes.len()).filter(|number| has_address(&self.nodes[*number])).collect();
        for (slot, at) in &self.connections {
            for to in &all {
                let reached = self.route(*slot, *to, Some(*at));
                assert!(
                    [None, Some(*at)].contains(&reached),
                    "a connection at d{at} by d{to} reaches {reached:?} at {:?}",
                    self.now
                );
                self.dropped += u32::from(reached.is_none());
            }
        }
        let slot = Slot::all().nth(self.random.random_range(0..usize::from(crate::SLOTS))).unwrap();
        if let Some(to) = self.serving().first() {
            // One that stands still accepts nothing. The client repeats its SYN.
            if let Some(at) = self.route(slot, *to, None)
                && self.runs(at)
                && self.connections.len() < 300
            {
                self.connections.push((slot, at));
            }
        }
    }

    /// Moves a stray, as a dispatcher does when all agree.
    fn settle(&mut self) {
        for number in 0..self.nodes.len() {
            if !self.runs(number) || !self.nodes[number].members.is_agreed() {
                continue;
            }
            let strays: Vec<_> = self.strays(number).take(5).collect();
            for index in strays {
                let slot = self.connections[index].0;
                let Some(primary) = self.nodes[number].members.primary(slot).cloned() else { continue };
                let to = (0..self.nodes.len()).find(|to| name(*to as u8) == primary).unwrap();
                if self.runs(to) {
                    self.connections[index].1 = to;
                }
            }
        }
    }
}

fn run(seed: u64, broken: Broken) {
    let mut cluster = Cluster::new(seed, broken);
    for number in 0..3 {
        cluster.add();
        cluster.set_state(number, SteeringState::Serving);
    }
    // They know each other for long.
    cluster.now += YOUNG_FOR;
    for _ in 0..50 {
        cluster.tick();
    }
    // One process fails at a time.
    let mut fault_until = Duration::ZERO;
    for _ in 0..3000 {
        cluster.tick();
        cluster.check();
        if cluster.random.random_range(0..3) == 0 {
            cluster.settle();
        }
        let serving = cluster.serving();
        match cluster.random.random_range(0..600) {
            0 if cluster.nodes.len() < 8 => {
                cluster.add();
                cluster.tell(cluster.nodes.len() - 1);
            }
            1 if serving.len() > 2 => cluster.set_state(serving[0], SteeringState::Leaving),
            2 if serving.len() > 2 && cluster.now > fault_until => {
                fault_until = cluster.now + SECOND;
                // Killed, with its connections. The others lose their links to it at once.
                let dead = serving[1];
                cluster.nodes[dead].is_gone = true;
                cluster.connections.retain(|(_, at)| *at != dead);
                cluster.adverts.retain(|(_, from, ..)| *from != dead);
                let now = cluster.now;
                for node in &mut cluster.nodes {
                    node.members.lose(&name(dead as u8), now);
                }
            }
            3 if serving.len() > 2 && cluster.now > fault_until => {
                let pause = Duration::from_millis(cluster.random.random_range(0..5000));
                cluster.nodes[serving[1]].stopped_until = cluster.now + pause;
                fault_until = cluster.now + pause + SECOND;
            }
            _ => {}
        }
        for number in 0..cluster.nodes.len() {
            let node = &cluster.nodes[number];
            let (state, is_agreed) = (node.members.state(), node.members.is_agreed());
            // It has heard all others.
            let knows_all =
                node.members.others().count() + 1 >= cluster.nodes.iter().filter(|node| !node.is_gone).count();
            if cluster.runs(number) && state == SteeringState::Joining && is_agreed && knows_all {
                cluster.set_state(number, SteeringState::Serving);
            }
            let is_empty = cluster.connections.iter().all(|(_, at)| *at != number);
            if cluster.runs(number) && state == SteeringState::Leaving && is_empty && is_agreed {
                // Its routes have been withdrawn.
                cluster.set_state(number, SteeringState::Left);
                cluster.nodes[number].is_gone = true;
            }
        }
    }
    assert!(!cluster.connections.is_empty());
    println!("dropped {}", cluster.dropped);
}

#[test]
fn every_packet_reaches_its_connection_while_dispatchers_come_and_go() {
    let seeds = std::env::var("STEERING_SEEDS").map_or(8, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        println!("seed {seed}");
        run(seed, Broken::Nothing);
    }
}

#[test]
fn a_broken_rule_is_found() {
    for broken in [Broken::SecondChance, Broken::Strays, Broken::Doubt, Broken::TimeLimit] {
        let is_found = (0..40).any(|seed| std::panic::catch_unwind(|| run(seed, broken)).is_err());
        assert!(is_found, "{broken:?}");
    }
}
