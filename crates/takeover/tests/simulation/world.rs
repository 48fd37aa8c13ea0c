//! The simulated cluster.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt;
use std::mem;
use std::net::IpAddr;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use watari_takeover::{Action, Candidate, Event, GATE_SLACK, Settings, Terms, Time, Voter};
use watari_values::NodeName;
use watari_wire::TakeoverMessage;

use crate::plan::{END, FAULTS_END, Fault, MS, Plan, Us};
use crate::sabotage::Sabotage;

pub(crate) struct World {
    now: Us,
    random: StdRng,
    nodes: Vec<Node>,
    /// By time, then in order of their numbers.
    due: BinaryHeap<Reverse<(Us, u64)>>,
    occurrences: BTreeMap<u64, Occurrence>,
    number: u64,
    /// Directed links that are cut.
    cuts: BTreeMap<(usize, usize), Us>,
    sabotage: Option<Sabotage>,
    lost: u32,
    repeated: u32,
    late: u32,
    incarnations: u64,
    pub(crate) activations: usize,
    pub(crate) switches: usize,
    pub(crate) log: Vec<String>,
}

/// A property that does not hold.
#[derive(Debug)]
pub(crate) enum Broken {
    TwoOwners(String),
    /// No node, or more than one, answers when the faults have ended.
    NoOwner(String),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwoOwners(said) | Self::NoOwner(said) => f.write_str(said),
        }
    }
}

/// A machine. Its kernel goes on when its process does not.
struct Node {
    name: NodeName,
    /// `None`: the process does not run.
    process: Option<Process>,
    stalled_until: Us,
    clock_base: Time,
    rate: u64,
    gate: Gate,
    settings: Option<Settings>,
    ready: bool,
    /// The number of its last timer. Earlier ones do not count.
    timer: u64,
}

struct Process {
    incarnation: u64,
    voter: Voter,
    candidate: Option<Candidate>,
}

/// The packet filter and the address, in the kernel.
#[derive(Default)]
struct Gate {
    until: Time,
    has_address: bool,
}

enum Occurrence {
    /// The process `incarnation` of the node gets a message.
    Deliver {
        from: usize,
        to: usize,
        message: TakeoverMessage,
    },
    Wake {
        node: usize,
        timer: u64,
    },
    /// An action of the driver is carried out.
    Done {
        node: usize,
        incarnation: u64,
        action: Action,
    },
    Restart {
        node: usize,
    },
    Ready {
        node: usize,
    },
    Fault(Fault),
}

impl World {
    pub(crate) fn new(plan: &Plan, sabotage: Option<Sabotage>) -> Self {
        let mut random = StdRng::seed_from_u64(plan.seed ^ 0x5eed);
        let name = |node: usize| {
            let role = if node < plan.dispatchers { 'd' } else { 'a' };
            NodeName::new(&format!("{role}{node}")).unwrap()
        };
        let all = plan.dispatchers + plan.agents;
        let voters: BTreeSet<NodeName> = (0..all).map(name).collect();
        let lease = Duration::from_millis(plan.lease_ms);
        let nodes = (0..all).map(|node| {
            let mut voters = voters.clone();
            if sabotage == Some(Sabotage::OtherVoters) && node == 1 {
                voters = [name(1)].into();
            }
            let terms = Terms { voters, lease, advert_interval: lease / 4 };
            let settings = Settings {
                node: name(node),
                incarnation: 0,
                address: address(),
                priority: random.random_range(1..=254),
                preempt: plan.preempt,
                terms,
            };
            let slow = sabotage == Some(Sabotage::SlowClock) && node == 0;
            Node {
                name: name(node),
                process: None,
                stalled_until: 0,
                clock_base: Duration::from_millis(random.random_range(0..1_000_000)),
                rate: if slow { 666_000 } else { plan.rates[node] },
                gate: Gate::default(),
                settings: (node < plan.dispatchers).then_some(settings),
                ready: true,
                timer: 0,
            }
        });
        let nodes = nodes.collect();
        let mut world = Self {
            now: 0,
            random,
            nodes,
            due: BinaryHeap::new(),
            occurrences: BTreeMap::new(),
            number: 0,
            cuts: BTreeMap::new(),
            sabotage,
            lost: plan.lost,
            repeated: plan.repeated,
            late: plan.late,
            incarnations: 0,
            activations: 0,
            switches: 0,
            log: Vec::new(),
        };
        for node in 0..all {
            let at = world.random.random_range(0..300 * MS);
            world.later(at, Occurrence::Restart { node });
        }
        for (at, fault) in &plan.faults {
            world.later(*at, Occurrence::Fault(fault.clone()));
        }
        world
    }

    pub(crate) fn run(&mut self, plan: &Plan) -> Result<(), Broken> {
        while let Some(Reverse((at, number))) = self.due.pop() {
            if at > END {
                break;
            }
            if self.now < FAULTS_END && at >= FAULTS_END {
                (self.lost, self.repeated, self.late) = (0, 0, 0);
            }
            self.now = at;
            let occurrence = self.occurrences.remove(&number).unwrap();
            self.occur(occurrence)?;
        }
        let owners: Vec<_> = (0..self.nodes.len()).filter(|node| self.answers(*node)).collect();
        if owners.len() != 1 {
            return Err(Broken::NoOwner(format!("nodes {owners:?} answer at the end of {plan:?}")));
        }
        Ok(())
    }

    /// Whether the node answers packets for the address.
    fn answers(&self, node: usize) -> bool {
        let Gate { until, has_address } = self.nodes[node].gate;
        has_address && (self.clock(node, self.now) < until || self.sabotage == Some(Sabotage::GateStaysOpen))
    }

    fn clock(&self, node: usize, now: Us) -> Time {
        let Node { clock_base, rate, .. } = &self.nodes[node];
        *clock_base + Duration::from_nanos(now * rate / 1000)
    }

    fn later(&mut self, at: Us, occurrence: Occurrence) {
        self.number += 1;
        self.due.push(Reverse((at.max(self.now), self.number)));
        self.occurrences.insert(self.number, occurrence);
    }

    fn occur(&mut self, occurrence: Occurrence) -> Result<(), Broken> {
        match occurrence {
            Occurrence::Deliver { from, to, message } => {
                if self.nodes[to].stalled_until > self.now {
                    let at = self.nodes[to].stalled_until + self.random.random_range(0..5 * MS);
                    self.later(at, Occurrence::Deliver { from, to, message });
                    return Ok(());
                }
                self.deliver(from, to, &message)
            }
            Occurrence::Wake { node, timer } => {
                if self.nodes[node].timer != timer {
                    return Ok(());
                }
                if self.nodes[node].stalled_until > self.now {
                    let at = self.nodes[node].stalled_until;
                    self.later(at, Occurrence::Wake { node, timer });
                    return Ok(());
                }
                self.handle(node, Event::Tick)
            }
            Occurrence::Done { node, incarnation, action } => self.done(node, incarnation, action),
            Occurrence::Restart { node } => self.restart(node),
            Occurrence::Ready { node } => {
                self.nodes[node].ready = true;
                self.handle(node, Event::Ready(true))
            }
            Occurrence::Fault(fault) => self.fault(&fault),
        }
    }

    fn restart(&mut self, node: usize) -> Result<(), Broken> {
        if self.nodes[node].process.is_some() {
            return Ok(());
        }
        self.incarnations += 1;
        let incarnation = self.incarnations;
        let now = self.clock(node, self.now);
        let this = &mut self.nodes[node];
        // The new process cleans up.
        this.gate = Gate::default();
        let voted_since = if self.sabotage == Some(Sabotage::VoterForgets) { Duration::ZERO } else { now };
        let settings = this.settings.clone().map(|settings| Settings { incarnation, ..settings });
        let candidate = settings.map(|settings| Candidate::new(settings, now));
        this.process = Some(Process { incarnation, voter: Voter::new(voted_since), candidate });
        let ready = this.ready;
        self.log.push(format!("{} {} starts", self.now, self.nodes[node].name));
        self.handle(node, Event::Ready(ready))
    }

    fn fault(&mut self, fault: &Fault) -> Result<(), Broken> {
        self.log.push(format!("{} {fault:?}", self.now));
        match *fault {
            Fault::Kill { node, for_us } => {
                self.nodes[node].process = None;
                self.nodes[node].stalled_until = 0;
                self.later(self.now + for_us, Occurrence::Restart { node });
            }
            Fault::Stall { node, for_us } => self.nodes[node].stalled_until = self.now + for_us,
            Fault::Cut { from, to, for_us } => drop(self.cuts.insert((from, to), self.now + for_us)),
            Fault::Isolate { node, for_us } => {
                for other in 0..self.nodes.len() {
                    self.cuts.insert((node, other), self.now + for_us);
                    self.cuts.insert((other, node), self.now + for_us);
                }
            }
            Fault::Switch { at, to } => {
                let to = to.map(|to| self.nodes[to].name.clone());
                let now = self.clock(at, self.now);
                let is_stalled = self.nodes[at].stalled_until > self.now;
                let candidate = self.nodes[at].process.as_mut().and_then(|process| process.candidate.as_mut());
                let Some(candidate) = candidate.filter(|_| !is_stalled) else { return Ok(()) };
                let mut actions = Vec::new();
                if candidate.order_switch(to.as_ref(), now, &mut actions).is_ok() {
                    self.switches += 1;
                }
                return self.carry_out(at, actions);
            }
            Fault::NotReady { node, for_us } => {
                self.nodes[node].ready = false;
                self.later(self.now + for_us, Occurrence::Ready { node });
                return self.handle(node, Event::Ready(false));
            }
        }
        Ok(())
    }

    fn deliver(&mut self, from: usize, to: usize, message: &TakeoverMessage) -> Result<(), Broken> {
        let (now, sender) = (self.clock(to, self.now), self.nodes[from].name.clone());
        let sabotage = self.sabotage;
        let Some(process) = &mut self.nodes[to].process else { return Ok(()) };
        match message {
            TakeoverMessage::LeaseWanted(wanted) => {
                let mut wanted = wanted.clone();
                match sabotage {
                    Some(Sabotage::VoterCountsShorter) => wanted.lease_ms /= 2,
                    Some(Sabotage::ReturnEndsLaterLeases) => {
                        wanted.after.iter_mut().for_each(|before| before.lease.round = u64::MAX);
                    }
                    _ => {}
                }
                let answer = process.voter.wanted(&sender, &wanted, now);
                self.send(to, from, answer);
                Ok(())
            }
            TakeoverMessage::LeaseReturned(returned) => {
                let mut returned = returned.clone();
                if sabotage == Some(Sabotage::ReturnEndsLaterLeases) {
                    returned.lease.round = u64::MAX;
                }
                process.voter.returned(&sender, &returned);
                Ok(())
            }
            message => self.handle(to, Event::Message { from: &sender, message }),
        }
    }

    /// Has the candidate of the node handle an event, if it has one that runs.
    fn handle(&mut self, node: usize, event: Event<'_>) -> Result<(), Broken> {
        let now = self.clock(node, self.now);
        let Some(candidate) = self.nodes[node].process.as_mut().and_then(|process| process.candidate.as_mut()) else {
            return Ok(());
        };
        let before = candidate.status(now);
        let mut actions = Vec::new();
        candidate.handle(event, now, &mut actions);
        let after = candidate.status(now);
        assert!(candidate.wake_at() > now, "a driver would never wait: {candidate:?}");
        if before.role != after.role {
            self.log.push(format!("{} {} {:?}: {}", self.now, self.nodes[node].name, after.role, after.reason));
        }
        self.carry_out(node, actions)
    }

    fn carry_out(&mut self, node: usize, actions: Vec<Action>) -> Result<(), Broken> {
        let process = self.nodes[node].process.as_ref().unwrap();
        let (incarnation, candidate) = (process.incarnation, process.candidate.as_ref().unwrap());
        let (wake_at, voters) = (candidate.wake_at(), candidate.settings().terms.voters.clone());
        for action in actions {
            match action {
                Action::ToVoters(message) => {
                    for to in 0..self.nodes.len() {
                        if voters.contains(&self.nodes[to].name) {
                            self.send(node, to, message.clone());
                        }
                    }
                }
                Action::ToDispatchers(message) => {
                    for to in (0..self.nodes.len()).filter(|to| *to != node) {
                        if self.nodes[to].settings.is_some() {
                            self.send(node, to, message.clone());
                        }
                    }
                }
                Action::To(name, message) => {
                    let to = self.nodes.iter().position(|other| other.name == name).unwrap();
                    self.send(node, to, message);
                }
                Action::Deactivate if self.sabotage == Some(Sabotage::RemovedTooEarly) => {
                    let at = self.now + self.random.random_range(100 * MS..300 * MS);
                    self.later(at, Occurrence::Done { node, incarnation, action: Action::Deactivate });
                    self.handle(node, Event::Removed)?;
                }
                action => {
                    let at = self.now + self.random.random_range(0..20 * MS);
                    self.later(at, Occurrence::Done { node, incarnation, action });
                }
            }
        }
        let ahead = wake_at.saturating_sub(self.clock(node, self.now)).as_nanos();
        if let Ok(ahead) = u64::try_from(ahead) {
            // Timers are late, not early.
            let at =
                self.now + ahead.saturating_mul(1000) / self.nodes[node].rate + 1 + self.random.random_range(0..3 * MS);
            self.nodes[node].timer += 1;
            let timer = self.nodes[node].timer;
            self.later(at, Occurrence::Wake { node, timer });
        }
        Ok(())
    }

    fn done(&mut self, node: usize, incarnation: u64, action: Action) -> Result<(), Broken> {
        if self.nodes[node].process.as_ref().is_none_or(|process| process.incarnation != incarnation) {
            return Ok(());
        }
        if self.nodes[node].stalled_until > self.now {
            let at = self.nodes[node].stalled_until;
            self.later(at, Occurrence::Done { node, incarnation, action });
            return Ok(());
        }
        let is_owner = |node: &Node| {
            let candidate = node.process.as_ref().unwrap().candidate.as_ref().unwrap();
            candidate.status(Duration::ZERO).lease_end.is_some()
        };
        match action {
            Action::Check => {
                let in_use = self.random.random_bool(0.01).then_some([2, 0, 0, 0, 0, 1]);
                self.handle(node, Event::Checked(in_use))
            }
            Action::Activate { until } | Action::Extend { until } => {
                // A driver carries out no order that another has followed.
                if !is_owner(&self.nodes[node]) {
                    return Ok(());
                }
                let others: Vec<_> =
                    (0..self.nodes.len()).filter(|other| *other != node && self.answers(*other)).collect();
                let this = &mut self.nodes[node];
                this.gate.until = until + GATE_SLACK;
                let is_activated = !mem::replace(&mut this.gate.has_address, true);
                if is_activated {
                    self.activations += 1;
                    self.log.push(format!("{} {} answers", self.now, self.nodes[node].name));
                }
                if self.answers(node) && !others.is_empty() {
                    let log = self.log.join("\n");
                    return Err(Broken::TwoOwners(format!("{node} answers, and {others:?} too:\n{log}")));
                }
                if is_activated { self.handle(node, Event::Activated) } else { Ok(()) }
            }
            Action::Deactivate => {
                self.nodes[node].gate = Gate::default();
                self.handle(node, Event::Removed)
            }
            Action::ToVoters(_) | Action::ToDispatchers(_) | Action::To(..) => unreachable!("sent at once"),
        }
    }

    fn send(&mut self, from: usize, to: usize, message: TakeoverMessage) {
        if from == to {
            let at = self.now;
            return self.later(at, Occurrence::Deliver { from, to, message });
        }
        let is_cut = self.cuts.get(&(from, to)).is_some_and(|until| *until > self.now);
        let of_thousand = self.random.random_range(0..1000);
        if is_cut && self.random.random_bool(0.5) || of_thousand < self.lost {
            return;
        }
        let copies = if self.random.random_range(0..1000) < self.repeated { 2 } else { 1 };
        for _ in 0..copies {
            let mut at = self.now + self.random.random_range(100..5 * MS);
            if is_cut {
                // TCP delivers it after the cut.
                at = self.cuts[&(from, to)] + self.random.random_range(0..200 * MS);
            } else if self.random.random_range(0..1000) < self.late {
                at += self.random.random_range(0..1500 * MS);
            }
            self.later(at, Occurrence::Deliver { from, to, message: message.clone() });
        }
    }
}

fn address() -> IpAddr {
    [192, 0, 2, 1].into()
}
