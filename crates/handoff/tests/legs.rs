//! Exhaustive check of one leg that carries several connections, one after the other. Its dispatcher and its agent
//! always agree which connection a byte belongs to, and no connection that has begun on it is dropped. A connection
//! leaves the leg by a move, or by an end that its agent announces.
//!
//! The leg keeps order and loses nothing. Messages between the two can be lost (never delivered), late and repeated.
//! The target of a move may lie about what it holds, so that the dispatcher commits although the source has read less
//! than it was sent.

use std::collections::{BTreeSet, VecDeque};

use stateright::{Checker, Model, Property};

/// Connections on the leg, one after the other.
const CONNECTIONS: u8 = 3;
/// Bytes of each connection, in each direction.
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
    Final { connection: u8, written: u8 },
}

/// The end of the agent's stream, as far as the dispatcher has received it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Tail {
    Unknown,
    /// A move is undecided: the client's stream is cut.
    OfMove(u8),
    /// The stream ends there. The client's stream continues until the dispatcher has read the agent's.
    OfEnd(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Dispatcher {
    Carries { written: u8, read: u8, tail: Tail },
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
    /// Has announced its end. Reads and discards, up to `cut` once the dispatcher has sent that.
    Ended {
        connection: u8,
        read: u8,
        cut: Option<u8>,
    },
    Closed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    dispatcher: Dispatcher,
    agent: Agent,
    /// The connection that the dispatcher carries, or carried last.
    connection: u8,
    up: VecDeque<Byte>,
    down: VecDeque<Byte>,
    messages: BTreeSet<Message>,
    /// A violation of the rules.
    wrong: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    DispatcherWrites,
    DispatcherReads,
    Commits { keeps: bool },
    Finishes { keeps: bool },
    Takes,
    AgentWrites,
    AgentReads,
    Proposes,
    Ends,
    Hears(Message),
}

/// A rule that is left out, to check that the model finds the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sabotage {
    None,
    /// The dispatcher writes the next preface before the agent has reported that the leg is free.
    TakesTooEarly,
    /// The agent keeps the leg without a check of how much it has read.
    KeepsUnread,
    /// The agent also keeps the leg after a plain `Committed`.
    KeepsUntold,
    /// The agent frees the leg as soon as the dispatcher keeps it, with bytes of the ended connection on their way.
    FreesUnread,
    /// The dispatcher relays the client's stream after it has kept the leg.
    RelaysAfterEnd,
    /// The dispatcher keeps the leg with bytes of the agent on their way.
    FinishesUnread,
}

struct Leg(Sabotage);

impl Model for Leg {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            dispatcher: Dispatcher::Carries { written: 0, read: 0, tail: Tail::Unknown },
            agent: Agent::Idle,
            connection: 1,
            up: [Byte::Preface(1)].into(),
            down: VecDeque::new(),
            messages: BTreeSet::new(),
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        use Action::{
            AgentReads, AgentWrites, Commits, DispatcherReads, DispatcherWrites, Ends, Finishes, Hears, Proposes, Takes,
        };
        if state.wrong.is_some() {
            return;
        }
        let all = [
            DispatcherWrites,
            DispatcherReads,
            Commits { keeps: true },
            Commits { keeps: false },
            Finishes { keeps: true },
            Finishes { keeps: false },
            Takes,
            AgentWrites,
            AgentReads,
            Proposes,
            Ends,
        ];
        actions.extend(all.into_iter().chain(state.messages.iter().copied().map(Hears)));
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::DispatcherWrites => state.dispatcher_writes(self.0)?,
            Action::DispatcherReads => state.dispatcher_reads()?,
            Action::Commits { keeps } => state.commits(keeps)?,
            Action::Finishes { keeps } => state.finishes(keeps, self.0)?,
            Action::Takes => state.takes(self.0)?,
            Action::AgentWrites => state.agent_writes()?,
            Action::AgentReads => state.agent_reads()?,
            Action::Proposes => state.proposes()?,
            Action::Ends => state.ends()?,
            Action::Hears(message @ (Message::Propose { .. } | Message::Final { .. })) => {
                state.dispatcher_hears(message)?;
            }
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
            Property::sometimes("a leg is free after an end", |_, state: &State| {
                state.dispatcher == Dispatcher::Free
                    && state.messages.iter().all(|message| !matches!(message, Message::Propose { .. }))
            }),
            Property::sometimes("a lying target costs a leg", |_, state: &State| {
                state.agent == Agent::Closed && state.dispatcher == Dispatcher::Released
            }),
        ]
    }
}

impl State {
    fn dispatcher_writes(&mut self, sabotage: Sabotage) -> Option<()> {
        if self.dispatcher == Dispatcher::Released && sabotage == Sabotage::RelaysAfterEnd {
            self.up.push_back(Byte::Of(self.connection));
            self.dispatcher = Dispatcher::Closed;
            return Some(());
        }
        let Dispatcher::Carries { written, tail: Tail::Unknown | Tail::OfEnd(_), .. } = &mut self.dispatcher else {
            return None;
        };
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

    /// The target claims to hold all bytes written, even if the source has not read them.
    fn commits(&mut self, keeps: bool) -> Option<()> {
        let Dispatcher::Carries { written, read, tail: Tail::OfMove(tail) } = self.dispatcher else { return None };
        (read == tail).then_some(())?;
        let connection = self.connection;
        self.dispatcher = if keeps { Dispatcher::Released } else { Dispatcher::Closed };
        let told = if keeps { Message::LegKept { connection, written } } else { Message::Committed { connection } };
        self.messages.insert(told);
        Some(())
    }

    /// The dispatcher has sent the whole stream to the client. If it keeps the leg, it does not read the client any
    /// more.
    fn finishes(&mut self, keeps: bool, sabotage: Sabotage) -> Option<()> {
        let Dispatcher::Carries { written, read, tail: Tail::OfEnd(tail) } = self.dispatcher else { return None };
        (read == tail || sabotage == Sabotage::FinishesUnread).then_some(())?;
        self.dispatcher = if keeps { Dispatcher::Released } else { Dispatcher::Closed };
        if keeps {
            self.messages.insert(Message::LegKept { connection: self.connection, written });
        }
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
        self.dispatcher = Dispatcher::Carries { written: 0, read: 0, tail: Tail::Unknown };
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
            (Agent::Ended { connection, read, .. }, Byte::Of(of)) if *connection == of => *read += 1,
            (Agent::Fenced { connection, read, .. }, Byte::Of(of)) if *connection == of => *read += 1,
            (Agent::Closed, _) => return None,
            _ => self.wrong = Some("the agent reads what is another's"),
        }
        self.up.pop_front();
        self.frees_at_cut();
        Some(())
    }

    fn ends(&mut self) -> Option<()> {
        let Agent::Serves { connection, read, written } = self.agent else { return None };
        self.agent = Agent::Ended { connection, read, cut: None };
        self.messages.insert(Message::Final { connection, written });
        Some(())
    }

    /// The agent keeps the leg once it has read all bytes of the ended connection.
    fn frees_at_cut(&mut self) {
        if let Agent::Ended { read, cut: Some(cut), .. } = self.agent
            && read == cut
        {
            self.agent = Agent::Idle;
            self.down.push_back(Byte::Free);
        }
    }

    /// Proposes for the first time, or again.
    fn proposes(&mut self) -> Option<()> {
        if let Agent::Serves { connection, read, written } = self.agent {
            self.agent = Agent::Fenced { connection, read, written, cut: read };
        }
        let Agent::Fenced { connection, read, written, .. } = self.agent else { return None };
        self.messages.insert(Message::Propose { connection, read, written });
        Some(())
    }

    fn dispatcher_hears(&mut self, message: Message) -> Option<()> {
        let (connection, read_there, tail) = match (message, &mut self.dispatcher) {
            (Message::Propose { connection, read, written }, _) => (connection, read, written),
            (Message::Final { connection, written }, Dispatcher::Carries { tail, .. })
                if connection == self.connection =>
            {
                *tail = Tail::OfEnd(written);
                return Some(());
            }
            _ => return None,
        };
        match &mut self.dispatcher {
            Dispatcher::Carries { written, tail: cut, .. } if connection == self.connection => {
                *cut = Tail::OfMove(tail);
                if read_there < *written {
                    self.messages.insert(Message::Freeze { connection, written: *written });
                }
            }
            _ => drop(self.messages.insert(Message::Committed { connection })),
        }
        Some(())
    }

    fn agent_hears(&mut self, message: Message, sabotage: Sabotage) -> Option<()> {
        if let (Agent::Ended { connection: ended, cut, read }, Message::LegKept { connection, written }) =
            (&mut self.agent, message)
        {
            (connection == *ended).then_some(())?;
            *cut = Some(if sabotage == Sabotage::FreesUnread { *read } else { written });
            self.frees_at_cut();
            return Some(());
        }
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
    let all = [
        Sabotage::TakesTooEarly,
        Sabotage::KeepsUnread,
        Sabotage::KeepsUntold,
        Sabotage::FreesUnread,
        Sabotage::RelaysAfterEnd,
        Sabotage::FinishesUnread,
    ];
    for sabotage in all {
        let checker = Leg(sabotage).checker().threads(2).spawn_bfs().join();
        let broken = checker.discovery("no byte is taken for another's, and none is dropped");
        assert!(broken.is_some(), "{sabotage:?} is not missed");
    }
}
