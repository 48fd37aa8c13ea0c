//! The nodes, the network between them, and the clients. The seed determines all that happens.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

pub(super) struct World {
    random: Random,
    placement: Placement,
    network: Network,
    churn: Churn,
    now_ms: u64,
    /// `None`: the node has left.
    nodes: Vec<Option<Exchange>>,
    /// The number of restarts of each node. A message sent to an earlier life is not delivered.
    lives: Vec<u64>,
    /// By time, and then in the order in which they were planned.
    events: BTreeMap<(u64, u64), Event>,
    planned: u64,
    clients: Vec<Client>,
    puts: BTreeMap<(usize, u64, PutId), usize>,
    gets: BTreeMap<(usize, u64, GetId), usize>,
    changes_ms: Vec<u64>,
    report: Report,
}

enum Event {
    Deliver { from: usize, to: usize, life: u64, message: Message },
    Learn { node: usize, life: u64, members: BTreeSet<NodeName> },
    Establish(usize),
    Resume(usize),
    Change,
}

/// A client that establishes a session, and resumes it at another node.
#[derive(Default)]
struct Client {
    pause_ms: u64,
    node: usize,
    established_ms: u64,
    stored_ms: u64,
    sought_ms: u64,
}

const CLIENTS: usize = 100;
/// Clients begin within this time.
const BEGIN_MS: u64 = 20_000;
const CHANGES_MS: [u64; 5] = [3_000, 8_000, 13_000, 18_000, 23_000];
const LEARN_MS_MAX: u64 = 100;
/// Longer than all tries to send a copy take.
const SETTLED_MS: u64 = 2_000;

impl World {
    pub(super) fn new(seed: u64, nodes: usize, placement: Placement, network: Network, churn: Churn) -> Self {
        let mut world = Self {
            random: Random(seed),
            placement,
            network,
            churn,
            now_ms: 0,
            nodes: (0..nodes).map(|number| Some(start(number, placement))).collect(),
            lives: vec![0; nodes],
            events: BTreeMap::new(),
            planned: 0,
            clients: Vec::new(),
            puts: BTreeMap::new(),
            gets: BTreeMap::new(),
            changes_ms: Vec::new(),
            report: Report::default(),
        };
        world.plan_all();
        world
    }

    pub(super) fn run(mut self) -> Report {
        loop {
            let event = self.events.first_key_value().map(|((ms, _), _)| *ms);
            let timer = self.first_timer();
            match (event, timer) {
                (None, None) => return self.end(),
                (event, Some((ms, node))) if event.is_none_or(|event| ms < event) => self.fire(ms, node),
                _ => self.next_event(),
            }
        }
    }

    fn end(self) -> Report {
        assert!(self.puts.is_empty() && self.gets.is_empty(), "all that was begun has ended");
        self.report
    }

    fn plan_all(&mut self) {
        for node in 0..self.nodes.len() {
            let actions = self.change_view(node, &names(0..self.nodes.len()));
            assert_eq!(actions, []);
        }
        for client in 0..CLIENTS {
            // Half of the clients come back at once.
            let pause_ms = if client % 2 == 0 { 0 } else { self.random.below(6_000) };
            self.clients.push(Client { pause_ms, ..Client::default() });
            let at = self.random.below(BEGIN_MS);
            self.plan(at, Event::Establish(client));
        }
        if self.churn == Churn::OneAtATime {
            for ms in CHANGES_MS {
                self.plan(ms, Event::Change);
            }
        }
    }

    fn plan(&mut self, at_ms: u64, event: Event) {
        self.planned += 1;
        self.events.insert((at_ms, self.planned), event);
    }

    fn first_timer(&self) -> Option<(u64, usize)> {
        let timers = self.nodes.iter().enumerate().filter_map(|(number, node)| {
            let ms = node.as_ref()?.next_timer()?;
            Some((ms - skew_ms(number), number))
        });
        timers.min()
    }

    fn fire(&mut self, ms: u64, node: usize) {
        self.now_ms = self.now_ms.max(ms);
        let now = self.now(node);
        let actions = self.nodes[node].as_mut().map(|exchange| exchange.on_timer(now));
        self.follow(node, actions.unwrap_or_default());
    }

    fn next_event(&mut self) {
        let Some(((ms, _), event)) = self.events.pop_first() else { return };
        self.now_ms = ms;
        match event {
            Event::Deliver { from, to, life, message } if self.lives[to] == life => {
                let now = self.now(to);
                let actions = self.nodes[to].as_mut().map(|node| node.on_message(now, &name(from), message));
                self.follow(to, actions.unwrap_or_default());
            }
            Event::Learn { node, life, members } if self.lives[node] == life => {
                let actions = self.change_view(node, &members);
                self.follow(node, actions);
            }
            Event::Deliver { .. } | Event::Learn { .. } => {}
            Event::Establish(client) => self.establish(client),
            Event::Resume(client) => self.resume(client),
            Event::Change => self.change(),
        }
    }

    fn change_view(&mut self, node: usize, members: &BTreeSet<NodeName>) -> Vec<Action> {
        let now = self.now(node);
        self.nodes[node].as_mut().map(|exchange| exchange.set_members(now, members)).unwrap_or_default()
    }

    fn establish(&mut self, client: usize) {
        let node = self.random_node(None);
        self.clients[client].node = node;
        self.clients[client].established_ms = self.now_ms;
        let now = self.now(node);
        let session = Session { secret: secret_of(client), expires: now.unix_s + 3600, issuer: name(node) };
        let Some(exchange) = &mut self.nodes[node] else { return };
        let (id, actions) = exchange.put(now, vec![(digested(client as u64), session)]);
        self.puts.insert((node, self.lives[node], id), client);
        self.report.put += 1;
        self.follow(node, actions);
    }

    fn resume(&mut self, client: usize) {
        let node = self.random_node(Some(self.clients[client].node));
        self.clients[client].sought_ms = self.now_ms;
        let now = self.now(node);
        let Some(exchange) = &mut self.nodes[node] else { return };
        let (id, actions) = exchange.get(now, vec![digested(client as u64)]);
        self.gets.insert((node, self.lives[node], id), client);
        self.follow(node, actions);
    }

    /// A node leaves, or comes back.
    fn change(&mut self) {
        self.changes_ms.push(self.now_ms);
        self.report.changes += 1;
        let gone = self.nodes.iter().position(Option::is_none);
        let node = gone.unwrap_or_else(|| self.random_node(None));
        self.lives[node] += 1;
        // Its connections have ended with it.
        self.puts.retain(|(at, ..), _| *at != node);
        self.gets.retain(|(at, ..), _| *at != node);
        self.nodes[node] = gone.map(|gone| start(gone, self.placement));
        let up: Vec<usize> = (0..self.nodes.len()).filter(|number| self.nodes[*number].is_some()).collect();
        let members = names(up.iter().copied());
        // It serves clients once it is linked.
        let actions = self.change_view(node, &members);
        assert_eq!(actions, []);
        for number in up.into_iter().filter(|number| *number != node) {
            let at = self.now_ms + self.random.below(LEARN_MS_MAX);
            self.plan(at, Event::Learn { node: number, life: self.lives[number], members: members.clone() });
        }
    }

    fn follow(&mut self, node: usize, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(to, message) | Action::SendSoon(to, message) => self.send(node, &to, message),
                Action::Stored(id) => self.stored(node, id),
                Action::Found(id, sessions, outcome) => self.found(node, id, &sessions, outcome),
                Action::Spent(..) => unreachable!("no client asks for it"),
            }
        }
    }

    fn send(&mut self, from: usize, to: &NodeName, message: Message) {
        self.report.put_messages +=
            u64::from(matches!(message, Message::Request(_, Request::Put(_)) | Message::Answer(_, Answer::Stored)));
        let to = (0..self.nodes.len()).find(|number| name(*number) == *to).unwrap();
        if self.random.below(100) >= self.network.loss_percent {
            let share = self.random.below(1_001);
            let at = self.now_ms + 1 + (self.network.delay_ms_max - 1) * share.pow(4) / 1_000_u64.pow(4);
            self.plan(at, Event::Deliver { from, to, life: self.lives[to], message });
        }
    }

    fn stored(&mut self, node: usize, id: PutId) {
        let number = self.puts.remove(&(node, self.lives[node], id)).unwrap();
        let client = &mut self.clients[number];
        client.stored_ms = self.now_ms;
        let at = self.now_ms + client.pause_ms;
        self.report.put_ms_max = self.report.put_ms_max.max(self.now_ms - client.established_ms);
        self.plan(at, Event::Resume(number));
    }

    fn found(&mut self, node: usize, id: GetId, sessions: &[FoundSession], outcome: Outcome) {
        let number = self.gets.remove(&(node, self.lives[node], id)).unwrap();
        let client = &self.clients[number];
        self.report.search_ms_max = self.report.search_ms_max.max(self.now_ms - client.sought_ms);
        let found = sessions.iter().any(|found| {
            found.key == digested(number as u64)
                && found.session.secret == secret_of(number)
                && self.is_in_time(node, found)
        });
        if found && outcome == Outcome::Complete {
            self.report.resumed += 1;
        } else if self.is_excused(client) {
            self.report.excused += 1;
        } else {
            self.report.lost.push((number, outcome));
        }
    }

    /// Whether the session expires an hour after it was established, plus at most the time that messages take.
    fn is_in_time(&self, node: usize, found: &FoundSession) -> bool {
        let left_s = found.session.expires - self.now(node).unix_s;
        (3_590..=3_603).contains(&left_s)
    }

    /// Whether a node came or left before the session had time to reach its owners.
    fn is_excused(&self, client: &Client) -> bool {
        let from = client.established_ms.saturating_sub(LEARN_MS_MAX);
        let until = (client.stored_ms + SETTLED_MS).min(self.now_ms);
        self.changes_ms.iter().any(|ms| (from..=until).contains(ms))
    }

    /// A node that is present, and is not `not`.
    fn random_node(&mut self, not: Option<usize>) -> usize {
        let there = |number: &usize| self.nodes[*number].is_some() && Some(*number) != not;
        let choice: Vec<usize> = (0..self.nodes.len()).filter(there).collect();
        choice[self.random.below(choice.len() as u64) as usize]
    }

    /// The time of this node's own clocks.
    fn now(&self, node: usize) -> Now {
        let ms = self.now_ms + skew_ms(node);
        Now { ms, unix_s: START.unix_s + ms / 1_000 }
    }
}

fn start(number: usize, placement: Placement) -> Exchange {
    Exchange::new(name(number), placement, Store::new(1 << 20))
}

fn skew_ms(node: usize) -> u64 {
    node as u64 * 100_000
}

fn secret_of(client: usize) -> SecretBytes {
    SecretBytes::new(client.to_be_bytes().to_vec())
}

/// The generator `SplitMix64`.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
