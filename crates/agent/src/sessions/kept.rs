//! Sessions that agents keep for clients, and share.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep_until, timeout};
use watari_handshake::{Found, Kept, Miss, Origin};
use watari_session::{Action, Exchange, FoundSession, GetId, Outcome, Placement, PutId, Source, Store};
use watari_wire::{Message, NodeName, SessionKey};

use super::Sharing;
use super::clock::Clock;
use crate::Shared;

/// The sessions, and those who wait for others.
pub(super) struct KeptSessions {
    clock: Clock,
    lifetime: Duration,
    state: Mutex<State>,
    /// Something waits that did not before.
    changed: Notify,
}

struct State {
    exchange: Exchange,
    puts: HashMap<PutId, oneshot::Sender<()>>,
    gets: HashMap<GetId, oneshot::Sender<(Vec<FoundSession>, Outcome)>>,
}

impl KeptSessions {
    pub(super) fn new(name: NodeName, sharing: &Sharing, placement: Placement, clock: Clock) -> Self {
        let exchange = Exchange::new(name, placement, Store::new(sharing.memory_bytes));
        let state = State { exchange, puts: HashMap::new(), gets: HashMap::new() };
        Self { clock, lifetime: sharing.lifetime, state: Mutex::new(state), changed: Notify::new() }
    }

    /// Keeps sessions where others will look for them. Returns when they are there, or when they have not come there in time.
    pub(super) async fn put(&self, shared: &Shared, made: Vec<Kept>) {
        let now = self.clock.now();
        let expires = now.unix_s + self.lifetime.as_secs();
        let sessions = made.into_iter().map(|kept| (kept.key, kept.session, expires)).collect();
        let (stored, actions) = {
            let mut state = self.state();
            let (id, actions) = state.exchange.put(now, sessions);
            let (done, stored) = oneshot::channel();
            state.puts.insert(id, done);
            (stored, actions)
        };
        self.act(shared, actions);
        self.changed.notify_one();
        // The exchange gives up by itself; what it says first is enough.
        let _ = timeout(WAIT_MAX, stored).await;
    }

    /// Looks for sessions, here and where they should be; says why some were not found.
    pub(super) async fn get(&self, shared: &Shared, keys: &[SessionKey]) -> (Vec<(SessionKey, Found)>, Option<Miss>) {
        let (found, actions) = {
            let mut state = self.state();
            let (id, actions) = state.exchange.get(self.clock.now(), keys.to_vec());
            let (done, found) = oneshot::channel();
            state.gets.insert(id, done);
            (found, actions)
        };
        self.act(shared, actions);
        self.changed.notify_one();
        let Ok(Ok((sessions, outcome))) = timeout(WAIT_MAX, found).await else {
            return (Vec::new(), Some(Miss::Unreachable));
        };
        let miss = match outcome {
            Outcome::Complete => None,
            Outcome::Unknown => Some(Miss::Unknown),
            Outcome::Unreachable => Some(Miss::Unreachable),
        };
        (sessions.into_iter().map(|session| self.found(session)).collect(), miss)
    }

    /// These are the agents that there are links to.
    pub(super) fn set_members(&self, shared: &Shared, agents: &BTreeSet<NodeName>) {
        let actions = self.state().exchange.set_members(self.clock.now(), agents);
        self.act(shared, actions);
    }

    pub(super) fn on_message(&self, shared: &Shared, from: &NodeName, message: Message) {
        let actions = self.state().exchange.on_message(self.clock.now(), from, message);
        self.act(shared, actions);
    }

    /// Sends again what was not answered, for as long as anybody runs it.
    pub(super) async fn keep_time(&self, shared: &Shared) {
        loop {
            let next = self.state().exchange.next_timer().map(|ms| self.clock.at(ms));
            let due = async {
                match next {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {
                    let actions = self.state().exchange.on_timer(self.clock.now());
                    self.act(shared, actions);
                }
                () = self.changed.notified() => {}
            }
        }
    }

    /// How many sessions are kept, and how many bytes they take.
    pub(super) fn kept(&self) -> (usize, usize) {
        let state = self.state();
        let store = state.exchange.store();
        (store.len(), store.bytes())
    }

    fn act(&self, shared: &Shared, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(to, message) => {
                    shared.tell(&to, &message);
                }
                // Who waited may have gone.
                Action::Stored(id) => {
                    let waits = self.state().puts.remove(&id);
                    let _ = waits.map(|waits| waits.send(()));
                }
                Action::Found(id, sessions, outcome) => {
                    let waits = self.state().gets.remove(&id);
                    let _ = waits.map(|waits| waits.send((sessions, outcome)));
                }
            }
        }
    }

    fn found(&self, found: FoundSession) -> (SessionKey, Found) {
        let origin = match found.source {
            Source::Own => Origin::Here,
            Source::Here => Origin::Elsewhere,
            Source::Pulled => Origin::Pulled,
        };
        let since = found.expires_unix_s.saturating_sub(self.lifetime.as_secs());
        (found.key, Found { session: found.session, since, origin })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Longer than the exchange takes for anything.
const WAIT_MAX: Duration = Duration::from_secs(3);
