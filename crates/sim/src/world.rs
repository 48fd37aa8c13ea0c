//! Runs a plan.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use watari_handover::TransferConditions;
use watari_values::SecretBytes;
use watari_wire::LegKey;

use crate::agent::{Agent, DISPATCHER, Origins, SessionNames, Sessions, Sharing, Site};
use crate::client::{Client, Fate, SessionCache};
use crate::dispatcher::Dispatcher;
use crate::figures::Figures;
use crate::ledger::Ledger;
use crate::message::Message;
use crate::network::{Disturbance, Event, Network, NodeId, Trace};
use crate::origin::{Origin, OriginHabits};
use crate::plan::Plan;
use crate::random::{Random, mix};
use crate::sabotage::Sabotage;

/// No run takes longer, in virtual time.
const END: Duration = Duration::from_mins(5);

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub seed: u64,
    /// The invariants that did not hold. The run ends at the first one.
    pub violations: Vec<String>,
    pub trace: Trace,
    pub figures: Figures,
}

/// Runs a seed. Traces only a digest.
pub fn run(seed: u64, sabotage: Option<Sabotage>) -> Outcome {
    World::new(seed, sabotage, false).run()
}

/// Runs a seed, and returns a line for each thing that happened.
pub fn run_traced(seed: u64, sabotage: Option<Sabotage>) -> Outcome {
    World::new(seed, sabotage, true).run()
}

struct World {
    seed: u64,
    sabotage: Option<Sabotage>,
    network: Network,
    ledger: Ledger,
    is_harmless: bool,
    origins_fail: bool,
    dispatcher: Option<Dispatcher>,
    /// `agents[0]` is node 1.
    agents: Vec<Option<Agent>>,
    /// `origins[0]` is the node behind the last agent.
    origins: Vec<OriginSlot>,
    conditions: TransferConditions,
    sessions: Sharing,
    session_names: Rc<SessionNames>,
    /// By the person of a client.
    caches: Vec<Arc<SessionCache>>,
    clients: Vec<Client>,
    /// Clients that have not connected yet.
    coming: Vec<(Duration, crate::client::Habits)>,
    stalled: Vec<Duration>,
    starts: u32,
}

/// A place for an origin.
struct OriginSlot {
    origin: Option<Origin>,
    habits: OriginHabits,
    starts: u64,
}

impl World {
    fn new(seed: u64, sabotage: Option<Sabotage>, traced: bool) -> Self {
        let plan = Plan::new(seed);
        let network = Network::new(seed, plan.links, traced);
        let mut world = Self {
            seed,
            sabotage,
            ledger: Ledger::new(network.clone()),
            is_harmless: plan.is_harmless,
            origins_fail: plan.origins_fail,
            dispatcher: None,
            agents: (0..plan.agents).map(|_| None).collect(),
            conditions: plan.conditions,
            sessions: plan.sessions,
            session_names: Rc::default(),
            caches: plan.clients.iter().map(|_| SessionCache::new()).collect(),
            clients: Vec::new(),
            coming: plan.clients,
            stalled: vec![Duration::ZERO; 1 + plan.agents + plan.origins.len()],
            origins: plan.origins.into_iter().map(|habits| OriginSlot { origin: None, habits, starts: 0 }).collect(),
            starts: 0,
            network,
        };
        world.coming.sort_by_key(|(at, _)| *at);
        for node in 0..world.first_client() {
            world.start(node);
        }
        for client in 0..world.coming.len() {
            world.network.schedule(world.coming[client].0, Event::Wake(world.first_client() + client));
        }
        for (at, disturbance) in plan.disturbances {
            world.network.schedule(at, Event::Disturb(disturbance));
        }
        world
    }

    /// The node of the first origin.
    fn first_origin(&self) -> NodeId {
        1 + self.agents.len()
    }

    /// The node of the first client.
    fn first_client(&self) -> NodeId {
        self.first_origin() + self.origins.len()
    }

    fn run(mut self) -> Outcome {
        while let Some(event) = self.network.next() {
            if self.network.now() > END || !self.network.violations().is_empty() {
                break;
            }
            if let Some(node) = self.on_event(event) {
                self.step(node);
            }
        }
        self.check_end();
        let violations = self.network.violations();
        let figures = self.network.figures();
        Outcome { seed: self.seed, violations, trace: self.network.take_trace(), figures }
    }

    /// Returns the node that has to look at its state.
    fn on_event(&mut self, event: Event) -> Option<NodeId> {
        match event {
            Event::Wake(node) => Some(node),
            Event::Segment { end, segment } => self.network.arrive(end, segment),
            Event::Disturb(disturbance) => self.disturb(disturbance),
            Event::Message { to, .. } | Event::Accept { at: to, .. } if self.network.is_down(to) => None,
            Event::Message { to, .. } | Event::Accept { at: to, .. } if self.stalled[to] > self.network.now() => {
                self.network.schedule(self.stalled[to], event);
                None
            }
            Event::Message { from, to, message } => {
                self.deliver(from, to, &message);
                Some(to)
            }
            Event::Accept { at, socket, client } => {
                // What is not accepted is dropped, and so reset.
                if at == DISPATCHER {
                    if let Some(dispatcher) = &mut self.dispatcher {
                        dispatcher.accept(client, socket);
                    }
                } else if at < self.first_origin() {
                    if let Some(agent) = &mut self.agents[at - 1] {
                        agent.accept(socket);
                    }
                } else {
                    let place = at - self.first_origin();
                    if let Some(origin) = &mut self.origins[place].origin {
                        origin.accept(socket);
                    }
                }
                Some(at)
            }
        }
    }

    fn deliver(&mut self, from: NodeId, to: NodeId, message: &Message) {
        match (message, &mut self.dispatcher) {
            (Message::ToDispatcher(message), Some(dispatcher)) => dispatcher.on_message(from, message),
            (Message::ToDispatcher(_), None) => {}
            _ => {
                if let Some(agent) = &mut self.agents[to - 1] {
                    agent.on_message(from, message);
                }
            }
        }
    }

    fn step(&mut self, node: NodeId) {
        let (first_origin, first_client) = (self.first_origin(), self.first_client());
        if node >= first_client {
            return self.step_client(node - first_client);
        }
        if self.stalled[node] > self.network.now() {
            return self.network.schedule(self.stalled[node], Event::Wake(node));
        }
        match (node, &mut self.dispatcher) {
            (DISPATCHER, Some(dispatcher)) => dispatcher.step(),
            (DISPATCHER, None) => {}
            (node, _) if node >= first_origin => {
                self.origins[node - first_origin].origin.iter_mut().for_each(Origin::step);
            }
            (node, _) => self.agents[node - 1].iter_mut().for_each(Agent::step),
        }
    }

    fn step_client(&mut self, client: usize) {
        if client == self.clients.len() && client < self.coming.len() {
            let (node, number) = (self.first_client() + client, client as u64 + 1);
            let socket = self.network.connect(node, DISPATCHER, number);
            let habits = self.coming[client].1.clone();
            let sessions = &self.caches[habits.person];
            self.clients.push(Client::new(self.network.clone(), (node, number), socket, habits.clone(), sessions));
        }
        if let Some(client) = self.clients.get_mut(client) {
            client.step();
        }
    }

    fn disturb(&mut self, disturbance: Disturbance) -> Option<NodeId> {
        if disturbance != Disturbance::Move {
            self.network.note(|| format!("{disturbance:?}"));
        }
        match disturbance {
            Disturbance::Move => {
                let agents: Vec<_> = (1..=self.agents.len()).collect();
                if let Some(dispatcher) = self.running_dispatcher() {
                    dispatcher.order_move(&agents);
                }
            }
            Disturbance::Drain(agent) => {
                if let Some(dispatcher) = self.running_dispatcher() {
                    dispatcher.drain(agent);
                }
            }
            Disturbance::Crash(node) => self.crash(node),
            Disturbance::Restart(node) if self.network.is_down(node) => self.start(node),
            Disturbance::Restart(_) => {}
            // A node that stands still gives no key.
            Disturbance::Upgrade if self.stalled.iter().any(|until| *until > self.network.now()) => {}
            Disturbance::Upgrade => {
                if let Some(dispatcher) = &mut self.dispatcher {
                    dispatcher.upgrade();
                    (1..=self.agents.len()).for_each(|agent| self.exchange_key(agent));
                }
            }
            Disturbance::Stall(node, until) => self.stalled[node] = self.stalled[node].max(until),
            Disturbance::Partition(a, b, until) => self.network.partition(a, b, until),
            Disturbance::Vanish(client) => {
                if let Some(client) = self.clients.get_mut(client) {
                    client.vanish();
                }
            }
        }
        None
    }

    /// The dispatcher, unless it stands still.
    fn running_dispatcher(&mut self) -> Option<&mut Dispatcher> {
        let is_stalled = self.stalled[DISPATCHER] > self.network.now();
        self.dispatcher.as_mut().filter(|_| !is_stalled)
    }

    /// Ends a process. The kernel closes its sockets.
    fn crash(&mut self, node: NodeId) {
        self.network.set_down(node, true);
        self.stalled[node] = Duration::ZERO;
        if node == DISPATCHER {
            self.dispatcher = None;
        } else if node >= self.first_origin() {
            let at = node - self.first_origin();
            self.origins[at].origin = None;
        } else {
            self.agents[node - 1] = None;
            self.agents.iter().flatten().for_each(|agent| agent.link_down(node));
            if let Some(dispatcher) = &mut self.dispatcher {
                dispatcher.link_down(node);
            }
        }
    }

    fn start(&mut self, node: NodeId) {
        self.network.set_down(node, false);
        self.starts += 1;
        let (network, ledger, sabotage) = (self.network.clone(), self.ledger.clone(), self.sabotage);
        if node == DISPATCHER {
            self.dispatcher = Some(Dispatcher::new(network, u64::from(self.starts), sabotage));
            (1..=self.agents.len()).for_each(|agent| self.exchange_key(agent));
        } else if node >= self.first_origin() {
            let at = node - self.first_origin();
            let OriginSlot { origin, habits, starts } = &mut self.origins[at];
            *origin = Some(Origin::new(network, node, (at as u64, *starts), *habits));
            *starts += 1;
        } else {
            let origins = Origins::new(self.first_origin()..self.first_client(), self.conditions);
            let (sharing, names) = ((self.sessions, self.agents.len()), self.session_names.clone());
            let sessions = Sessions::new((network.clone(), node), sharing, names, sabotage);
            let agent = Agent::new(Site::new((network, node), ledger, sabotage, origins, sessions));
            for (other, linked) in (1..).zip(&self.agents).filter_map(|(other, linked)| Some((other, linked.as_ref()?)))
            {
                linked.link_up(node);
                agent.link_up(other);
            }
            self.agents[node - 1] = Some(agent);
            self.exchange_key(node);
        }
    }

    /// An agent gives the dispatcher a key for prefaces.
    fn exchange_key(&mut self, node: NodeId) {
        self.starts += 1;
        let mut random = Random::new(mix(self.seed) ^ u64::from(self.starts));
        let bytes = (0..4).flat_map(|_| random.next().to_be_bytes()).collect();
        let key = LegKey { id: self.starts, key: SecretBytes::new(bytes), handshakes: true };
        if let (Some(dispatcher), Some(agent)) = (&mut self.dispatcher, &mut self.agents[node - 1]) {
            agent.set_key(&key);
            dispatcher.set_key(node, &key);
        }
    }

    fn check_end(&self) {
        if !self.network.violations().is_empty() {
            return;
        }
        if self.is_harmless && self.network.figures().unavailable > 0 {
            self.network.violation("no origin answered, although one is good".to_owned());
        }
        if self.clients.len() < self.coming.len() {
            self.network.violation("a client has not connected".to_owned());
        }
        for (number, client) in (1..).zip(&self.clients) {
            match client.fate() {
                None => self.network.violation(format!("client {number} waits for ever")),
                Some(Fate::Cut) if self.is_harmless && !(self.origins_fail && client.needs_an_origin()) => {
                    self.network.violation(format!("client {number} was cut although no node failed"));
                }
                Some(_) => {}
            }
        }
        for (node, agent) in (1..).zip(&self.agents) {
            if agent.as_ref().is_some_and(|agent| !agent.is_idle()) {
                self.network.violation(format!("agent {node} has a connection or a stream left"));
            }
        }
        if self.dispatcher.as_ref().is_some_and(|dispatcher| !dispatcher.is_idle()) {
            self.network.violation("a relay is left".to_owned());
        }
    }
}
