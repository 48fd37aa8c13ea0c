//! Exhaustive check of a change of the dispatcher: with the machines of D1, of the agent and of the next dispatchers, no
//! byte is lost, repeated or reordered, and never do two dispatchers have the client's socket.
//!
//! A leg keeps order. Messages between nodes can be lost (never delivered), late, reordered and repeated. Every timer may
//! fire at any time. A crash resets the legs of a dispatcher, and loses any part of what it has written on them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::{Checker, Model, Property};
use watari_handoff::{AgentLeg, Giving, GivingAction, Taking};
use watari_values::NodeName;

/// D1 is 0. The others are next dispatchers.
type Node = usize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    /// D1 to the agent.
    DetachLeg {
        number: u32,
        to: Node,
    },
    AttachLeg {
        number: u32,
    },
    /// The agent to D1.
    LegDetached {
        number: u32,
        tx_offset: u8,
    },
    LegAttached {
        number: u32,
    },
    /// D1 to a next dispatcher: the frozen socket.
    State {
        number: u32,
        to: Node,
        at: Offsets,
    },
    Given {
        number: u32,
        to: Node,
    },
    /// A next dispatcher to D1.
    TakeHeld {
        number: u32,
    },
    Taken {
        number: u32,
    },
}

/// The bytes that the client's socket has delivered, and those that it has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Offsets {
    rx: u8,
    tx: u8,
}

/// The client's socket at a dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Socket {
    Live(Offsets),
    /// D1's, while it is shipped, or a copy that stays silent.
    Silent(Offsets),
    None,
}

/// What a dispatcher writes on a leg. Bytes are numbered from the start of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Up {
    Preface { change: u32, at: Offsets },
    Byte(u8),
    Fin,
    Reset,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Leg {
    up: VecDeque<Up>,
    down: VecDeque<u8>,
    /// Whether the agent has reset it.
    is_reset: bool,
    /// Whether the dispatcher writes and reads no more.
    is_closed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Agent {
    leg: AgentLeg,
    dispatcher: Node,
    /// Bytes of the client's stream that were read, and of the stream to the client that were written.
    at: Offsets,
    /// The legs to read, in order, each with the offset at which it begins. The last one is written.
    legs: Vec<(Node, u8)>,
    /// Whether the leg that is read has ended.
    has_ended: bool,
    has_failed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    giving: Option<Giving>,
    /// The next dispatcher of the attempt.
    giving_to: Node,
    taking: Vec<Option<Taking>>,
    sockets: Vec<Socket>,
    legs: Vec<Leg>,
    agent: Agent,
    messages: BTreeSet<Message>,
    crashed: Vec<bool>,
    /// Timers that may cost a connection: that of the agent, and those of next dispatchers.
    has_expired: bool,
    wrong: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Begins {
        to: Node,
    },
    Offers,
    /// The time of the attempt is over.
    Fails,
    /// D1 asks the agent again to write on its leg.
    Repeats,
    Hears(Message),
    /// The link breaks: all copies of the message that were sent so far never arrive.
    Loses(Message),
    DispatcherReadsClient(Node),
    DispatcherReadsLeg(Node),
    /// A dispatcher notices that the agent has reset its leg.
    LegIsReset(Node),
    AgentWrites,
    AgentReads,
    AgentReadsPreface(Node),
    AgentExpires,
    TakingExpires(Node),
    /// All that D1 has written on its leg arrives before the reset, or nothing does.
    Crashes {
        node: Node,
        delivers: bool,
    },
}

/// A rule that is left out, to check that the model finds the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sabotage {
    None,
    /// The agent takes each request and each preface for one of the last attempt.
    AgentIgnoresNumber,
    /// The agent writes on the previous leg until the next one comes.
    AgentWritesDetached,
    /// The agent goes over to the next leg when the previous one ends, wherever that is.
    AgentIgnoresOffset,
    /// The agent takes the end of a detached leg for the end of the stream.
    AgentEndsDetached,
    /// D1 goes on when its timer fires after it has given the connection up.
    GivesAndGoesOn,
    /// D1 ships the socket before it has read all that the agent has written.
    OffersUnread,
    /// A next dispatcher goes on as soon as it holds the connection.
    TakesUngiven,
    /// D1 asks the agent once to write on its leg again.
    AttachesOnce,
}

#[derive(Debug, Clone, Copy)]
struct Change {
    sabotage: Sabotage,
    /// Bytes of each stream.
    len: Offsets,
    /// Next dispatchers.
    others: usize,
    attempts: u32,
    crashes: bool,
    expiries: bool,
    /// Whether orders to attach a leg, and their answers, get lost.
    losses: bool,
}

const PLAIN: Change = Change {
    sabotage: Sabotage::None,
    len: Offsets { rx: 2, tx: 2 },
    others: 1,
    attempts: 1,
    crashes: false,
    expiries: false,
    losses: false,
};

fn name(node: Node) -> NodeName {
    NodeName::new(["d1", "d2", "d3"][node]).expect("a valid name")
}

const ONE_SOCKET: &str = "at most one dispatcher has the client's socket";
const IN_ORDER: &str = "bytes arrive in order and once, on the right leg";
const NO_HARM: &str = "without a crash or an early end of a hold, no connection is lost";

impl Model for Change {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let nodes = 1 + self.others;
        let start = Offsets { rx: 0, tx: 0 };
        let mut sockets = vec![Socket::None; nodes];
        sockets[0] = Socket::Live(start);
        vec![State {
            giving: None,
            giving_to: 0,
            taking: vec![None; nodes],
            sockets,
            legs: vec![Leg::default(); nodes],
            agent: Agent {
                leg: AgentLeg::default(),
                dispatcher: 0,
                at: start,
                legs: vec![(0, 0)],
                has_ended: false,
                has_failed: false,
            },
            messages: BTreeSet::new(),
            crashed: vec![false; nodes],
            has_expired: false,
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wrong.is_some() {
            return;
        }
        let nodes = 0..=self.others;
        actions.extend((1..=self.others).map(|to| Action::Begins { to }));
        actions.extend([Action::Offers, Action::Fails, Action::AgentWrites, Action::AgentReads]);
        actions.extend(state.messages.iter().copied().map(Action::Hears));
        if self.losses {
            let attaches =
                |message: &Message| matches!(message, Message::AttachLeg { .. } | Message::LegAttached { .. });
            actions.extend(state.messages.iter().copied().filter(attaches).map(Action::Loses));
            actions.push(Action::Repeats);
        }
        for node in nodes {
            actions.extend([
                Action::DispatcherReadsClient(node),
                Action::DispatcherReadsLeg(node),
                Action::LegIsReset(node),
                Action::AgentReadsPreface(node),
            ]);
            if self.crashes {
                actions.extend([true, false].map(|delivers| Action::Crashes { node, delivers }));
            }
        }
        if self.expiries {
            actions.push(Action::AgentExpires);
            actions.extend((1..=self.others).map(Action::TakingExpires));
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        state.take(self, action)?;
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_SOCKET, |_, state: &State| {
                state.sockets.iter().filter(|socket| matches!(socket, Socket::Live(_))).count() <= 1
            }),
            Property::always(IN_ORDER, |_, state: &State| state.wrong.is_none()),
            Property::always(NO_HARM, |_, state: &State| {
                state.has_expired || state.crashed.contains(&true) || !state.is_lost()
            }),
            Property::sometimes("the last dispatcher relays all", |model: &Self, state: &State| {
                state.is_complete(model.len) && matches!(state.sockets[model.others], Socket::Live(_))
            }),
            Property::sometimes("D1 relays all after its attempts", |model: &Self, state: &State| {
                state.is_complete(model.len)
                    && matches!(state.sockets[0], Socket::Live(_))
                    && state.giving.is_some_and(|giving| giving.number() == model.attempts)
            }),
        ]
    }
}

impl State {
    fn take(&mut self, model: &Change, action: Action) -> Option<()> {
        match action {
            Action::Begins { to } => self.begins(model, to),
            Action::Offers => self.offers(model),
            Action::Fails => self.fails(model),
            Action::Repeats => self.repeats(model),
            Action::Loses(message) => self.messages.remove(&message).then_some(()),
            Action::Hears(message) => self.hears(model, message),
            Action::DispatcherReadsClient(node) => self.dispatcher_reads_client(model, node),
            Action::DispatcherReadsLeg(node) => self.dispatcher_reads_leg(node),
            Action::LegIsReset(node) => self.leg_is_reset(node),
            Action::AgentWrites => self.agent_writes(model),
            Action::AgentReads => self.agent_reads(model),
            Action::AgentReadsPreface(node) => self.agent_reads_preface(model, node),
            Action::AgentExpires => self.agent_expires(),
            Action::TakingExpires(node) => self.taking_expires(node),
            Action::Crashes { node, delivers } => self.crashes(node, delivers),
        }
    }

    /// Whether all bytes of both streams have arrived.
    fn is_complete(&self, len: Offsets) -> bool {
        let at_client = self.sockets.iter().any(|socket| matches!(socket, Socket::Live(at) if at.tx == len.tx));
        self.agent.at.rx == len.rx && at_client
    }

    /// Whether no dispatcher has the client's socket, or will have it.
    fn is_lost(&self) -> bool {
        let waits = |node: Node| {
            self.taking[node].is_some_and(|taking| !taking.is_live()) && matches!(self.sockets[node], Socket::Silent(_))
        };
        self.sockets[0] == Socket::None
            && (1..self.sockets.len()).all(|node| !waits(node) && !matches!(self.sockets[node], Socket::Live(_)))
    }
}

/// D1, and what all dispatchers do.
impl State {
    fn begins(&mut self, model: &Change, to: Node) -> Option<()> {
        let last = self.giving.map_or(0, |giving| giving.number());
        // The previous attempt has failed: D1 still relays.
        let is_idle = self.giving.is_none_or(|giving| !is_attempting(giving));
        let may = is_idle && !self.crashed[0] && last < model.attempts && matches!(self.sockets[0], Socket::Live(_));
        may.then_some(())?;
        self.giving = Some(Giving::begin(last + 1));
        self.giving_to = to;
        self.messages.insert(Message::DetachLeg { number: last + 1, to });
        Some(())
    }

    fn offers(&mut self, model: &Change) -> Option<()> {
        let Socket::Live(at) = self.sockets[0] else { return None };
        let (giving, to) = (self.giving.as_mut()?, self.giving_to);
        if !giving.is_quiet(u64::from(at.tx)) {
            let is_detached = !giving.is_detaching() && self.agent.leg.last() == giving.number();
            (model.sabotage == Sabotage::OffersUnread && is_detached).then_some(())?;
            // Only an attempt that is detached can be offered.
            giving.on_failure()?;
            let mut forced = Giving::begin(giving.number());
            forced.on_detached(giving.number(), u64::from(at.tx), u64::from(at.tx));
            *giving = forced;
        }
        giving.offer();
        let number = giving.number();
        self.sockets[0] = Socket::Silent(at);
        self.messages.insert(Message::State { number, to, at });
        Some(())
    }

    fn fails(&mut self, model: &Change) -> Option<()> {
        let giving = self.giving.as_mut()?;
        if model.sabotage == Sabotage::GivesAndGoesOn && giving.is_given() {
            let at = self.messages.iter().find_map(|message| match message {
                Message::State { number, at, .. } if *number == giving.number() => Some(*at),
                _ => None,
            });
            self.sockets[0] = Socket::Live(at?);
            return Some(());
        }
        let action = giving.on_failure()?;
        self.acts(action)
    }

    fn repeats(&mut self, model: &Change) -> Option<()> {
        let giving = self.giving.filter(|giving| giving.is_attaching() && !self.crashed[0])?;
        (model.sabotage != Sabotage::AttachesOnce).then_some(())?;
        self.messages.insert(Message::AttachLeg { number: giving.number() });
        Some(())
    }

    fn acts(&mut self, action: GivingAction) -> Option<()> {
        let number = self.giving.as_ref()?.number();
        match action {
            GivingAction::Give => {
                self.sockets[0] = Socket::None;
                self.messages.insert(Message::Given { number, to: self.giving_to });
                self.close(0, Up::Fin);
            }
            GivingAction::GoOn => {
                if let Socket::Silent(at) = self.sockets[0] {
                    self.sockets[0] = Socket::Live(at);
                }
                self.messages.insert(Message::AttachLeg { number });
            }
            GivingAction::Reset => self.wrong = Some("the agent writes behind the end that it has announced"),
        }
        Some(())
    }

    fn hears(&mut self, model: &Change, message: Message) -> Option<()> {
        match message {
            Message::DetachLeg { .. } | Message::AttachLeg { .. } => self.agent_hears(model, message),
            Message::State { to, .. } | Message::Given { to, .. } => self.taking_hears(model, to, message),
            Message::LegDetached { .. }
            | Message::LegAttached { .. }
            | Message::TakeHeld { .. }
            | Message::Taken { .. } => {
                (!self.crashed[0]).then_some(())?;
                let giving = self.giving.as_mut()?;
                let action = match (message, self.sockets[0]) {
                    (Message::LegDetached { number, tx_offset }, Socket::Live(at)) => {
                        let before = *giving;
                        let action = giving.on_detached(number, u64::from(tx_offset), u64::from(at.tx));
                        if action.is_none() {
                            return (before != *giving).then_some(());
                        }
                        action
                    }
                    (Message::LegAttached { number }, _) => {
                        giving.on_attached(number);
                        return Some(());
                    }
                    (Message::TakeHeld { number }, _) => giving.on_held(number),
                    (Message::Taken { number }, _) => {
                        giving.on_taken(number);
                        return Some(());
                    }
                    _ => None,
                };
                self.acts(action?)
            }
        }
    }

    fn dispatcher_reads_client(&mut self, model: &Change, node: Node) -> Option<()> {
        let Socket::Live(at) = &mut self.sockets[node] else { return None };
        (at.rx < model.len.rx && !self.legs[node].is_closed && !self.legs[node].is_reset).then_some(())?;
        self.legs[node].up.push_back(Up::Byte(at.rx));
        at.rx += 1;
        Some(())
    }

    fn dispatcher_reads_leg(&mut self, node: Node) -> Option<()> {
        let Socket::Live(at) = &mut self.sockets[node] else { return None };
        (!self.legs[node].is_closed).then_some(())?;
        let byte = self.legs[node].down.pop_front()?;
        if byte != at.tx {
            self.wrong = Some("a byte to the client is lost or repeated");
            return Some(());
        }
        at.tx += 1;
        let relayed = u64::from(at.tx);
        if let (0, Some(giving)) = (node, &mut self.giving)
            && let Some(action) = giving.on_relayed(relayed)
        {
            self.acts(action);
        }
        Some(())
    }

    /// The dispatcher resets its client.
    fn leg_is_reset(&mut self, node: Node) -> Option<()> {
        let leg = &self.legs[node];
        (leg.is_reset && !leg.is_closed && self.sockets[node] != Socket::None).then_some(())?;
        self.sockets[node] = Socket::None;
        self.close(node, Up::Reset);
        Some(())
    }

    fn close(&mut self, node: Node, by: Up) {
        let leg = &mut self.legs[node];
        if !std::mem::replace(&mut leg.is_closed, true) {
            leg.up.push_back(by);
            leg.down.clear();
        }
    }

    fn crashes(&mut self, node: Node, delivers: bool) -> Option<()> {
        (!self.crashed.contains(&true)).then_some(())?;
        self.crashed[node] = true;
        self.sockets[node] = Socket::None;
        if node > 0 {
            self.taking[node] = None;
        }
        if !delivers {
            self.legs[node].up.clear();
        }
        self.legs[node].is_closed = false;
        self.close(node, Up::Reset);
        Some(())
    }
}

/// A next dispatcher.
impl State {
    fn taking_hears(&mut self, model: &Change, node: Node, message: Message) -> Option<()> {
        (!self.crashed[node]).then_some(())?;
        match message {
            Message::State { number, at, .. } => {
                // A later attempt replaces an earlier one, which D1 has ended.
                let last = self.taking[node].map(|taking| taking.number());
                (last < Some(number)).then_some(())?;
                self.taking[node] = Some(Taking::hold(number));
                self.sockets[node] = Socket::Silent(at);
                self.messages.insert(Message::TakeHeld { number });
                if model.sabotage == Sabotage::TakesUngiven {
                    self.goes_on(node, number);
                }
            }
            Message::Given { number, .. } => {
                if self.taking[node].as_mut()?.on_given(number) {
                    self.goes_on(node, number);
                }
                if self.taking[node].is_some_and(|taking| taking.is_live() && taking.number() == number) {
                    self.messages.insert(Message::Taken { number });
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn goes_on(&mut self, node: Node, change: u32) {
        let Socket::Silent(at) = self.sockets[node] else { return };
        self.sockets[node] = Socket::Live(at);
        self.legs[node].up.push_back(Up::Preface { change, at });
    }

    fn taking_expires(&mut self, node: Node) -> Option<()> {
        if self.taking[node].as_mut()?.on_timeout() || self.sockets[node] == Socket::None {
            return None;
        }
        self.sockets[node] = Socket::None;
        self.has_expired = true;
        Some(())
    }
}

impl State {
    fn agent_hears(&mut self, model: &Change, message: Message) -> Option<()> {
        let agent = &mut self.agent;
        // Only the dispatcher of the connection gives orders.
        (agent.dispatcher == 0 && !agent.has_failed).then_some(())?;
        match message {
            Message::DetachLeg { number, to } => {
                if model.sabotage == Sabotage::AgentIgnoresNumber && number <= agent.leg.last() {
                    let last = agent.leg.last();
                    agent.leg = AgentLeg::after(last - 1);
                    agent.leg.on_detach(last, &name(to));
                    self.messages.insert(Message::LegDetached { number, tx_offset: agent.at.tx });
                } else if agent.leg.on_detach(number, &name(to)) {
                    self.messages.insert(Message::LegDetached { number, tx_offset: agent.at.tx });
                }
            }
            Message::AttachLeg { number } => {
                let number = if model.sabotage == Sabotage::AgentIgnoresNumber { agent.leg.last() } else { number };
                agent.leg.on_attach(number);
                if agent.leg.last() == number {
                    self.messages.insert(Message::LegAttached { number });
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn agent_writes(&mut self, model: &Change) -> Option<()> {
        let agent = &mut self.agent;
        let may_write = agent.leg.may_write() || model.sabotage == Sabotage::AgentWritesDetached;
        (may_write && !agent.has_failed && agent.at.tx < model.len.tx).then_some(())?;
        let (node, _) = *agent.legs.last()?;
        if node != agent.dispatcher {
            self.wrong = Some("the agent writes on the leg of another dispatcher");
            return Some(());
        }
        self.legs[node].down.push_back(agent.at.tx);
        agent.at.tx += 1;
        Some(())
    }

    fn agent_reads(&mut self, model: &Change) -> Option<()> {
        let agent = &mut self.agent;
        (!agent.has_failed).then_some(())?;
        if let Some(&(_, next)) = agent.legs.get(1) {
            let ignores = model.sabotage == Sabotage::AgentIgnoresOffset && agent.has_ended;
            if agent.at.rx == next || ignores {
                agent.legs.remove(0);
                agent.has_ended = false;
                return Some(());
            }
            if agent.has_ended || agent.at.rx > next {
                self.agent_fails();
                return Some(());
            }
        }
        let (node, _) = *agent.legs.first()?;
        if agent.has_ended {
            // The end counts once the leg is not detached: the dispatcher has gone.
            (agent.leg.may_write() || model.sabotage == Sabotage::AgentEndsDetached).then_some(())?;
            self.agent_fails();
            return Some(());
        }
        match self.legs[node].up.pop_front()? {
            Up::Byte(byte) if byte == agent.at.rx => agent.at.rx += 1,
            Up::Byte(_) => self.wrong = Some("a byte of the client is lost or repeated"),
            Up::Fin | Up::Reset => agent.has_ended = true,
            Up::Preface { .. } => self.wrong = Some("a preface within a stream"),
        }
        Some(())
    }

    /// The agent reads the preface of a leg that does not carry its connection yet.
    fn agent_reads_preface(&mut self, model: &Change, node: Node) -> Option<()> {
        let Some(&Up::Preface { change, at }) = self.legs[node].up.front() else { return None };
        self.legs[node].up.pop_front();
        let agent = &mut self.agent;
        let fits = at.tx == agent.at.tx && at.rx >= agent.at.rx && !agent.has_failed;
        let number = if model.sabotage == Sabotage::AgentIgnoresNumber { agent.leg.last() } else { change };
        if fits && agent.leg.on_continue(number, &name(node)) {
            agent.dispatcher = node;
            agent.legs.push((node, at.rx));
        } else {
            self.legs[node].is_reset = true;
        }
        Some(())
    }

    fn agent_expires(&mut self) -> Option<()> {
        (!self.agent.leg.may_write() && !self.agent.has_failed).then_some(())?;
        self.has_expired = true;
        self.agent_fails();
        Some(())
    }

    fn agent_fails(&mut self) {
        self.agent.has_failed = true;
        for (node, _) in std::mem::take(&mut self.agent.legs) {
            self.legs[node].is_reset = true;
        }
    }
}

/// Whether D1 has not ended the attempt.
fn is_attempting(mut giving: Giving) -> bool {
    giving.on_failure().is_some()
}

/// The number of states, and the first one found from which the connection can neither go on to its end nor be reset.
fn explore(model: &Change) -> (usize, Option<State>) {
    let is_over = |state: &State| state.is_complete(model.len) || state.is_lost();
    let (mut numbers, mut before) = (HashMap::new(), Vec::<Vec<usize>>::new());
    let (mut states, mut frontier) = (Vec::new(), VecDeque::from(model.init_states()));
    for first in &frontier {
        numbers.insert(fingerprint(first), 0);
        before.push(Vec::new());
        states.push(is_over(first));
    }
    let mut found: Vec<Option<State>> = vec![None];
    let mut next = 0;
    while let Some(state) = frontier.pop_front() {
        let number = next;
        next += 1;
        let mut actions = Vec::new();
        model.actions(&state, &mut actions);
        for action in actions {
            let Some(after) = model.next_state(&state, action) else { continue };
            let known = before.len();
            let to = *numbers.entry(fingerprint(&after)).or_insert(known);
            if to == known {
                before.push(Vec::new());
                states.push(is_over(&after));
                found.push(None);
                frontier.push_back(after);
            }
            // What nodes do without a fault.
            let is_fault = matches!(action, Action::Crashes { .. } | Action::Loses(_));
            if !is_fault {
                before[to].push(number);
            }
        }
        found[number] = Some(state);
    }
    let mut ends = vec![false; before.len()];
    let mut pending: Vec<usize> = (0..before.len()).filter(|state| states[*state]).collect();
    while let Some(state) = pending.pop() {
        if !std::mem::replace(&mut ends[state], true) {
            pending.extend(&before[state]);
        }
    }
    let stuck = ends.iter().position(|ends| !ends);
    (before.len(), stuck.and_then(|state| found[state].take()))
}

fn fingerprint(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

fn check(model: Change) {
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!("{model:?}: {} states", checker.unique_state_count());
    checker.assert_properties();
    assert!(checker.is_done());
}

#[test]
fn a_change_keeps_all_bytes() {
    check(PLAIN);
}

#[test]
fn a_failed_attempt_does_no_harm_to_the_next_one() {
    check(Change { attempts: 2, len: Offsets { rx: 1, tx: 1 }, ..PLAIN });
    check(Change { attempts: 2, others: 2, len: Offsets { rx: 1, tx: 1 }, ..PLAIN });
}

#[test]
fn crashes_and_early_timers_lose_connections_and_no_bytes() {
    check(Change { crashes: true, expiries: true, ..PLAIN });
    check(Change { attempts: 2, crashes: true, expiries: true, len: Offsets { rx: 1, tx: 1 }, ..PLAIN });
    check(Change { attempts: 2, others: 2, crashes: true, expiries: true, ..PLAIN });
}

#[test]
fn from_every_state_the_connection_goes_on_or_ends() {
    for model in [
        Change { crashes: true, expiries: true, ..PLAIN },
        Change { attempts: 2, expiries: true, len: Offsets { rx: 1, tx: 1 }, ..PLAIN },
        ATTACHING,
        Change { attempts: 2, ..ATTACHING },
    ] {
        let (states, stuck) = explore(&model);
        assert!(stuck.is_none(), "of {states} states, this one leads nowhere: {stuck:?}");
    }
}

/// No timer fires early, so an agent that waits for an order waits for ever.
const ATTACHING: Change = Change { losses: true, len: Offsets { rx: 1, tx: 1 }, ..PLAIN };

#[test]
fn an_order_that_is_lost_is_repeated() {
    check(ATTACHING);
    check(Change { attempts: 2, crashes: true, expiries: true, ..ATTACHING });
    let (_, stuck) = explore(&Change { sabotage: Sabotage::AttachesOnce, ..ATTACHING });
    assert!(stuck.is_some(), "a lost order is not found");
}

#[test]
fn what_is_left_out_of_the_rules_is_missed() {
    let two = Change { attempts: 2, others: 2, len: Offsets { rx: 1, tx: 1 }, ..PLAIN };
    let timers = Change { crashes: true, expiries: true, ..PLAIN };
    let cases = [
        (Sabotage::AgentIgnoresNumber, two),
        (Sabotage::AgentWritesDetached, PLAIN),
        (Sabotage::AgentIgnoresOffset, timers),
        (Sabotage::AgentEndsDetached, PLAIN),
        (Sabotage::GivesAndGoesOn, PLAIN),
        (Sabotage::OffersUnread, PLAIN),
        (Sabotage::TakesUngiven, PLAIN),
    ];
    for (sabotage, model) in cases {
        let checker = Change { sabotage, ..model }.checker().threads(2).spawn_bfs().join();
        let broken = [ONE_SOCKET, IN_ORDER, NO_HARM].into_iter().find(|rule| checker.discovery(rule).is_some());
        println!("{sabotage:?}: {broken:?}");
        assert!(broken.is_some(), "{sabotage:?} is not missed");
    }
}
