//! Assigns agents' slots to clients: the number of connections of each agent, and the queue of the clients that wait.
//!
//! One lock protects all of it. So the dispatcher never exceeds a limit, and no client overtakes one in the queue. The
//! lock is held for as long as a choice among some agents takes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use watari_balance::{Candidate, ResponseAverage, Turns};
use watari_values::NodeName;

/// The load of agents, and the queue of clients.
#[derive(Default)]
pub(crate) struct Scheduler {
    state: Mutex<Schedule>,
}

/// The data behind the lock of a [`Scheduler`].
#[derive(Default)]
pub(crate) struct Schedule {
    pub(crate) turns: Turns<NodeName>,
    loads: BTreeMap<NodeName, Load>,
    /// By ticket number: the dispatcher serves the lowest first.
    waiting: BTreeMap<u64, Arc<Notify>>,
    slots_issued: u64,
}

/// The load of an agent, as this dispatcher counts it.
#[derive(Default)]
struct Load {
    /// Connections that it owns, and those reserved for it until their handshake is done.
    connections: usize,
    unanswered: usize,
    response: ResponseAverage,
}

/// The queue position of a client that asks for an agent.
#[derive(Clone, Copy)]
pub(crate) enum QueuePosition<'a> {
    /// The client has just connected. Clients in the queue go first.
    New,
    /// The client waits in the queue.
    Waits(&'a QueueSlot),
    /// The client had its turn, but the dispatcher cannot reach the selected agent.
    Again,
}

impl Scheduler {
    /// Calls `choose` with the lock held.
    pub(crate) fn with<T>(&self, choose: impl FnOnce(&mut Schedule) -> T) -> T {
        choose(&mut self.state())
    }

    /// Takes a slot at `agent`, even above its limit.
    pub(crate) fn place(self: &Arc<Self>, agent: &NodeName) -> Place {
        self.state().load(agent).connections += 1;
        Place { scheduler: self.clone(), agent: agent.clone() }
    }

    /// Takes a queue slot. `None`: `max` clients wait already.
    pub(crate) fn enter(self: &Arc<Self>, max: usize) -> Option<QueueSlot> {
        let mut state = self.state();
        if state.waiting.len() >= max {
            return None;
        }
        state.slots_issued += 1;
        let (number, turn) = (state.slots_issued, Arc::new(Notify::new()));
        state.waiting.insert(number, turn.clone());
        Some(QueueSlot { scheduler: self.clone(), number, turn })
    }

    /// Lets the first client in the queue try again, because a slot is free or an agent is available.
    pub(crate) fn wake(&self) {
        self.state().wake();
    }

    /// Removes the agents for which `kept` returns false.
    pub(crate) fn retain(&self, kept: impl Fn(&NodeName) -> bool) {
        let mut state = self.state();
        state.turns.retain(&kept);
        state.loads.retain(|agent, load| load.connections > 0 || load.unanswered > 0 || kept(agent));
    }

    pub(crate) fn connections(&self, agent: &NodeName) -> usize {
        self.state().connections(agent)
    }

    fn state(&self) -> MutexGuard<'_, Schedule> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Schedule {
    /// Whether a client at this queue position may get a slot now.
    pub(crate) fn is_turn_of(&self, position: QueuePosition<'_>) -> bool {
        match position {
            QueuePosition::New => self.waiting.is_empty(),
            QueuePosition::Waits(slot) => {
                self.waiting.first_key_value().is_some_and(|(first, _)| *first == slot.number)
            }
            QueuePosition::Again => true,
        }
    }

    pub(crate) fn connections(&self, agent: &NodeName) -> usize {
        self.loads.get(agent).map_or(0, |load| load.connections)
    }

    /// Fills in the load of the agent that `candidate` names.
    pub(crate) fn describe(&self, candidate: &mut Candidate<NodeName>, now: Instant) {
        if let Some(load) = self.loads.get(&candidate.name) {
            candidate.connections = load.connections;
            candidate.unanswered = load.unanswered;
            candidate.response = load.response.at(now);
        }
    }

    /// Takes a slot at `agent`. `scheduler` owns this state.
    pub(crate) fn take(&mut self, scheduler: &Arc<Scheduler>, agent: &NodeName) -> Place {
        self.load(agent).connections += 1;
        Place { scheduler: scheduler.clone(), agent: agent.clone() }
    }

    fn load(&mut self, agent: &NodeName) -> &mut Load {
        if !self.loads.contains_key(agent) {
            self.loads.insert(agent.clone(), Load::default());
        }
        self.loads.get_mut(agent).expect("the entry was inserted above")
    }

    fn wake(&self) {
        if let Some((_, turn)) = self.waiting.first_key_value() {
            turn.notify_one();
        }
    }
}

/// A slot at an agent, for one connection. Dropping it frees the slot.
pub(crate) struct Place {
    scheduler: Arc<Scheduler>,
    agent: NodeName,
}

impl Place {
    pub(crate) fn agent(&self) -> &NodeName {
        &self.agent
    }

    /// Takes a slot at another agent, even above its limit.
    pub(crate) fn elsewhere(&self, agent: &NodeName) -> Self {
        self.scheduler.place(agent)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.scheduler.state();
        state.load(&self.agent).connections -= 1;
        state.wake();
    }
}

/// A queue slot. Dropping it leaves the queue.
pub(crate) struct QueueSlot {
    scheduler: Arc<Scheduler>,
    number: u64,
    turn: Arc<Notify>,
}

impl QueueSlot {
    /// Waits until this client may be the first in the queue.
    pub(crate) async fn called(&self) {
        self.turn.notified().await;
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        let mut state = self.scheduler.state();
        state.waiting.remove(&self.number);
        // Another client may fit now.
        state.wake();
    }
}

/// Measures the response time of an agent: the time to open the leg, plus the time from the first byte sent to the
/// agent to its first byte back. The time until the client sends its first byte does not count.
pub(crate) struct Stopwatch {
    scheduler: Arc<Scheduler>,
    agent: NodeName,
    started: Instant,
    opening: Duration,
    asked: Option<Instant>,
    answered: bool,
}

impl Stopwatch {
    /// Starts the measurement, before the leg to the agent of `place` is opened.
    pub(crate) fn start(place: &Place) -> Self {
        place.scheduler.state().load(&place.agent).unanswered += 1;
        let mut stopwatch = Self::stopped(place);
        stopwatch.answered = false;
        stopwatch
    }

    /// A stopwatch that measures nothing.
    pub(crate) fn stopped(place: &Place) -> Self {
        Self {
            scheduler: place.scheduler.clone(),
            agent: place.agent.clone(),
            started: Instant::now(),
            opening: Duration::ZERO,
            asked: None,
            answered: true,
        }
    }

    /// Records that the leg is open.
    pub(crate) fn opened(&mut self) {
        self.opening = self.started.elapsed();
    }

    /// Records bytes of the client that were sent to the agent.
    pub(crate) fn sent(&mut self, bytes: usize) {
        if bytes > 0 && !self.answered && self.asked.is_none() {
            self.asked = Some(Instant::now());
        }
    }

    /// Records that the agent sent bytes.
    pub(crate) fn received(&mut self) {
        if !self.answered {
            self.answer(Instant::now());
        }
    }

    fn answer(&mut self, now: Instant) {
        let mut state = self.scheduler.state();
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
            self.scheduler.state().load(&self.agent).unanswered -= 1;
        }
    }
}
