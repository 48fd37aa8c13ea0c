//! One leg that carries one connection after the other, exhaustively: its dispatcher and its agent never disagree about whose
//! byte is whose, and none that has begun on it is dropped.
//!
//! Between them are the leg, in order and without loss, and messages that are lost (never delivered), late and repeated. The
//! target of a move may lie about what it holds, so that the dispatcher commits although the source has read less than it was
//! sent.

use std::collections::{BTreeSet, VecDeque};

use stateright::{Checker, Model, Property};

/// Connections on the leg, one after the other.
const CONNECTIONS: u8 = 3;
/// Bytes of each of them, in each direction.
const BYTES: u8 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Byte {
    Preface(u8),
    Of(u8),
    Free,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    Propose { connection: u8, read: u8, written: u8 },
    Freeze { connection: u8, written: u8 },
    LegKept { connection: u8, written: u8 },
    Committed { connection: u8 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Dispatcher {
    /// `tail` is where the source said that its stream is cut: an attempt is undecided.
    Carries {
        written: u8,
        read: u8,
        tail: Option<u8>,
    },
    Released,
    Free,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Agent {
    Idle,
    Serves {
        connection: u8,
        read: u8,
        written: u8,
    },
    /// Reads up to `cut` and no further.
    Fenced {
        connection: u8,
        read: u8,
        written: u8,
        cut: u8,
    },
    Closed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    dispatcher: Dispatcher,
    agent: Agent,
    /// The one that the dispatcher carries, or carried last.
    connection: u8,
    up: VecDeque<Byte>,
    down: VecDeque<Byte>,
    messages: BTreeSet<Message>,
    /// What must never be.
    wrong: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    DispatcherWrites,
    DispatcherReads,
    Commits { keeps: bool },
    Takes,
    AgentWrites,
    AgentReads,
    Proposes,
    Hears(Message),
}

/// What is left out of the rules, to see that it is missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sabotage {
    None,
    /// The dispatcher writes the next preface before the agent has said that the leg is free.
    TakesTooEarly,
    /// The agent keeps the leg without looking how much it has read.
    KeepsUnread,
    /// The agent keeps the leg also when it is only told that the move was committed.
    KeepsUntold,
}

struct Leg(Sabotage);

impl Model for Leg {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            dispatcher: Dispatcher::Carries { written: 0, read: 0, tail: None },
            agent: Agent::Idle,
            connection: 1,
            up: [Byte::Preface(1)].into(),
            down: VecDeque::new(),
            messages: BTreeSet::new(),
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        use Action::{AgentReads, AgentWrites, Commits, DispatcherReads, DispatcherWrites, Hears, Proposes, Takes};
        if state.wrong.is_some() {
            return;
        }
        let all = [
            DispatcherWrites,
            DispatcherReads,
            Commits { keeps: true },
            Commits { keeps: false },
            Takes,
            AgentWrites,
            AgentReads,
            Proposes,
        ];
        actions.extend(all.into_iter().chain(state.messages.iter().copied().map(Hears)));
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::DispatcherWrites => state.dispatcher_writes()?,
            Action::DispatcherReads => state.dispatcher_reads()?,
            Action::Commits { keeps } => state.commits(keeps)?,
            Action::Takes => state.takes(self.0)?,
            Action::AgentWrites => state.agent_writes()?,
            Action::AgentReads => state.agent_reads()?,
            Action::Proposes => state.proposes()?,
            Action::Hears(message @ Message::Propose { .. }) => state.dispatcher_hears(message)?,
            Action::Hears(message) => state.agent_hears(message, self.0)?,
        }
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no byte is taken for another's, and none is dropped", |_, state: &State| {
                state.wrong.is_none()
            }),
            Property::sometimes("the last connection is served on the same leg", |_, state: &State| {
                matches!(state.agent, Agent::Serves { connection: CONNECTIONS, read: 1, .. })
            }),
            Property::sometimes("a lying target costs a leg", |_, state: &State| {
                state.agent == Agent::Closed && state.dispatcher == Dispatcher::Released
            }),
        ]
    }
}

impl State {
    fn dispatcher_writes(&mut self) -> Option<()> {
        let Dispatcher::Carries { written, tail: None, .. } = &mut self.dispatcher else { return None };
        *written = written.checked_add(1).filter(|written| *written <= BYTES)?;
        self.up.push_back(Byte::Of(self.connection));
        Some(())
    }

    fn dispatcher_reads(&mut self) -> Option<()> {
        let byte = *self.down.front()?;
        match (&mut self.dispatcher, byte) {
            (Dispatcher::Carries { read, .. }, Byte::Of(connection)) if connection == self.connection => *read += 1,
            (Dispatcher::Released, Byte::Free) => self.dispatcher = Dispatcher::Free,
            (Dispatcher::Free | Dispatcher::Closed, _) => return None,
            _ => self.wrong = Some("the dispatcher reads what is another's"),
        }
        self.down.pop_front();
        Some(())
    }

    /// The target says that it holds all that was written, whatever the source has read.
    fn commits(&mut self, keeps: bool) -> Option<()> {
        let Dispatcher::Carries { written, read, tail: Some(tail) } = self.dispatcher else { return None };
        (read == tail).then_some(())?;
        let connection = self.connection;
        self.dispatcher = if keeps { Dispatcher::Released } else { Dispatcher::Closed };
        let told = if keeps { Message::LegKept { connection, written } } else { Message::Committed { connection } };
        self.messages.insert(told);
        Some(())
    }

    fn takes(&mut self, sabotage: Sabotage) -> Option<()> {
        let may_take = match self.dispatcher {
            Dispatcher::Free => true,
            Dispatcher::Released => sabotage == Sabotage::TakesTooEarly,
            _ => false,
        };
        (may_take && self.connection < CONNECTIONS && self.agent != Agent::Closed).then_some(())?;
        self.connection += 1;
        self.dispatcher = Dispatcher::Carries { written: 0, read: 0, tail: None };
        self.up.push_back(Byte::Preface(self.connection));
        Some(())
    }

    fn agent_writes(&mut self) -> Option<()> {
        let Agent::Serves { connection, written, .. } = &mut self.agent else { return None };
        *written = written.checked_add(1).filter(|written| *written <= BYTES)?;
        self.down.push_back(Byte::Of(*connection));
        Some(())
    }

    fn agent_reads(&mut self) -> Option<()> {
        let byte = *self.up.front()?;
        match (&mut self.agent, byte) {
            (Agent::Idle, Byte::Preface(connection)) => self.agent = Agent::Serves { connection, read: 0, written: 0 },
            (Agent::Serves { connection, read, .. }, Byte::Of(of)) if *connection == of => *read += 1,
            (Agent::Fenced { read, cut, .. }, _) if *read == *cut => return None,
            (Agent::Fenced { connection, read, .. }, Byte::Of(of)) if *connection == of => *read += 1,
            (Agent::Closed, _) => return None,
            _ => self.wrong = Some("the agent reads what is another's"),
        }
        self.up.pop_front();
        Some(())
    }

    /// For the first time, or again.
    fn proposes(&mut self) -> Option<()> {
        if let Agent::Serves { connection, read, written } = self.agent {
            self.agent = Agent::Fenced { connection, read, written, cut: read };
        }
        let Agent::Fenced { connection, read, written, .. } = self.agent else { return None };
        self.messages.insert(Message::Propose { connection, read, written });
        Some(())
    }

    fn dispatcher_hears(&mut self, message: Message) -> Option<()> {
        let Message::Propose { connection, read: read_there, written: tail } = message else { return None };
        match &mut self.dispatcher {
            Dispatcher::Carries { written, tail: cut, .. } if connection == self.connection => {
                *cut = Some(tail);
                if read_there < *written {
                    self.messages.insert(Message::Freeze { connection, written: *written });
                }
            }
            _ => drop(self.messages.insert(Message::Committed { connection })),
        }
        Some(())
    }

    fn agent_hears(&mut self, message: Message, sabotage: Sabotage) -> Option<()> {
        let Agent::Fenced { connection: fenced, read, cut, .. } = &mut self.agent else { return None };
        let keeps = match message {
            Message::Freeze { connection, written } if connection == *fenced => {
                *cut = written;
                return Some(());
            }
            Message::LegKept { connection, written } if connection == *fenced => {
                written == *read || sabotage == Sabotage::KeepsUnread
            }
            Message::Committed { connection } if connection == *fenced => sabotage == Sabotage::KeepsUntold,
            _ => return None,
        };
        if keeps {
            self.agent = Agent::Idle;
            self.down.push_back(Byte::Free);
        } else {
            self.agent = Agent::Closed;
            if self.up.iter().any(|byte| matches!(byte, Byte::Preface(_))) {
                self.wrong = Some("a connection has begun on a leg that is closed");
            }
        }
        Some(())
    }
}

#[test]
fn no_byte_is_taken_for_another_connections() {
    let checker = Leg(Sabotage::None).checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    assert!(checker.is_done());
}

#[test]
fn what_is_left_out_of_the_rules_is_missed() {
    for sabotage in [Sabotage::TakesTooEarly, Sabotage::KeepsUnread, Sabotage::KeepsUntold] {
        let checker = Leg(sabotage).checker().threads(2).spawn_bfs().join();
        let broken = checker.discovery("no byte is taken for another's, and none is dropped");
        assert!(broken.is_some(), "{sabotage:?} is not missed");
    }
}
