//! Where clients are given to agents: who has how many connections, whose turn it is, and who waits for a place.
//!
//! All of it is behind one lock, so that a limit is never passed and nobody overtakes who waits. It is held for as long
//! as a choice among some agents takes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use watari_balance::{Candidate, ResponseAverage, Turns};
use watari_handoff::ArbiterEvent;
use watari_wire::NodeName;

/// See the module.
#[derive(Default)]
pub(crate) struct Desk {
    state: Mutex<State>,
}

/// What is behind the lock.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) turns: Turns<NodeName>,
    loads: BTreeMap<NodeName, Load>,
    /// By ticket: the first is the next to be served.
    waiting: BTreeMap<u64, Arc<Notify>>,
    tickets: u64,
}

/// What an agent has to do.
#[derive(Default)]
struct Load {
    /// Connections that it owns, and those that shall be its own after their handshake.
    connections: usize,
    unanswered: usize,
    response: ResponseAverage,
}

/// Where a client stands that asks for an agent.
#[derive(Clone, Copy)]
pub(crate) enum Standing<'a> {
    /// It has just come, and lets those first who wait.
    New,
    /// It waits.
    Waits(&'a Ticket),
    /// It had its turn, and the agent it got cannot be reached.
    Again,
}

impl Desk {
    /// Lets `choose` do what it must with everything held.
    pub(crate) fn with<T>(&self, choose: impl FnOnce(&mut State) -> T) -> T {
        choose(&mut self.state())
    }

    /// A place at `agent`, whether there is room or not.
    pub(crate) fn place(self: &Arc<Self>, agent: &NodeName) -> Place {
        self.state().load(agent).connections += 1;
        Place { desk: self.clone(), agent: agent.clone() }
    }

    /// A place in the queue, unless as many as `max` wait.
    pub(crate) fn enter(self: &Arc<Self>, max: usize) -> Option<Ticket> {
        let mut state = self.state();
        if state.waiting.len() >= max {
            return None;
        }
        state.tickets += 1;
        let (number, turn) = (state.tickets, Arc::new(Notify::new()));
        state.waiting.insert(number, turn.clone());
        Some(Ticket { desk: self.clone(), number, turn })
    }

    /// Who waits the longest may try: a place is free, or an agent has come.
    pub(crate) fn wake(&self) {
        self.state().wake();
    }

    /// Forgets the agents that are not to be kept.
    pub(crate) fn retain(&self, kept: impl Fn(&NodeName) -> bool) {
        let mut state = self.state();
        state.turns.retain(&kept);
        state.loads.retain(|agent, load| load.connections > 0 || load.unanswered > 0 || kept(agent));
    }

    pub(crate) fn connections(&self, agent: &NodeName) -> usize {
        self.state().connections(agent)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether a client of this standing may be served now.
    pub(crate) fn is_turn_of(&self, standing: Standing<'_>) -> bool {
        match standing {
            Standing::New => self.waiting.is_empty(),
            Standing::Waits(ticket) => self.waiting.first_key_value().is_some_and(|(first, _)| *first == ticket.number),
            Standing::Again => true,
        }
    }

    pub(crate) fn connections(&self, agent: &NodeName) -> usize {
        self.loads.get(agent).map_or(0, |load| load.connections)
    }

    /// Enters what is known of an agent's load.
    pub(crate) fn describe(&self, candidate: &mut Candidate<NodeName>, now: Instant) {
        if let Some(load) = self.loads.get(&candidate.name) {
            candidate.connections = load.connections;
            candidate.unanswered = load.unanswered;
            candidate.response = load.response.at(now);
        }
    }

    /// A place at `agent` of this very desk.
    pub(crate) fn take(&mut self, desk: &Arc<Desk>, agent: &NodeName) -> Place {
        self.load(agent).connections += 1;
        Place { desk: desk.clone(), agent: agent.clone() }
    }

    fn load(&mut self, agent: &NodeName) -> &mut Load {
        if !self.loads.contains_key(agent) {
            self.loads.insert(agent.clone(), Load::default());
        }
        self.loads.get_mut(agent).expect("it is there by now")
    }

    fn wake(&self) {
        if let Some((_, turn)) = self.waiting.first_key_value() {
            turn.notify_one();
        }
    }
}

/// One of the connections of an agent, as long as it lives.
pub(crate) struct Place {
    desk: Arc<Desk>,
    agent: NodeName,
}

impl Place {
    pub(crate) fn agent(&self) -> &NodeName {
        &self.agent
    }

    /// One at another agent, whether there is room or not.
    pub(crate) fn elsewhere(&self, agent: &NodeName) -> Self {
        self.desk.place(agent)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.desk.state();
        state.load(&self.agent).connections -= 1;
        state.wake();
    }
}

/// A place in the queue, as long as it lives.
pub(crate) struct Ticket {
    desk: Arc<Desk>,
    number: u64,
    turn: Arc<Notify>,
}

impl Ticket {
    /// Waits until it may be this one's turn.
    pub(crate) async fn called(&self) {
        self.turn.notified().await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.desk.state();
        state.waiting.remove(&self.number);
        // There may be room for another.
        state.wake();
    }
}

/// Measures how soon an agent answers: how long it takes to open the leg, and from the first byte the agent is sent to
/// the first byte it answers. A client that hesitates to speak is not the agent's fault.
pub(crate) struct Stopwatch {
    desk: Arc<Desk>,
    agent: NodeName,
    started: Instant,
    opening: Duration,
    asked: Option<Instant>,
    answered: bool,
}

impl Stopwatch {
    /// The leg to the agent of `place` is about to be opened.
    pub(crate) fn start(place: &Place) -> Self {
        place.desk.state().load(&place.agent).unanswered += 1;
        Self {
            desk: place.desk.clone(),
            agent: place.agent.clone(),
            started: Instant::now(),
            opening: Duration::ZERO,
            asked: None,
            answered: false,
        }
    }

    /// The leg is open.
    pub(crate) fn opened(&mut self) {
        self.opening = self.started.elapsed();
    }

    /// Takes what the relay tells its arbiter.
    pub(crate) fn follow(&mut self, event: &ArbiterEvent) {
        match event {
            _ if self.answered => {}
            ArbiterEvent::RelayedRx(1..) if self.asked.is_none() => self.asked = Some(Instant::now()),
            ArbiterEvent::RelayedTx(1..) => self.answer(Instant::now()),
            _ => {}
        }
    }

    fn answer(&mut self, now: Instant) {
        let mut state = self.desk.state();
        let load = state.load(&self.agent);
        load.unanswered -= 1;
        if let Some(asked) = self.asked {
            load.response.observe(now, self.opening + now.duration_since(asked));
        }
        drop(state);
        self.answered = true;
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        if !self.answered {
            self.desk.state().load(&self.agent).unanswered -= 1;
        }
    }
}
