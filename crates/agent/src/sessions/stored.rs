//! Stored sessions, and their exchange with other agents.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot};
use tokio::time::{interval, sleep_until, timeout};
use watari_handshake::Miss;
use watari_session::{
    Action, Exchange, FoundSession, GetId, Message, Now, Outcome, Placement, PutId, Request, Session, Source, SpendId,
    Store, Verdict,
};
use watari_values::{NodeName, SecretBytes, SessionKey};

use super::clock::Clock;
use super::database::{DatabaseStatus, OneProcessDatabase};
use super::sharing::{Mode, Sharing};
use super::tickets::TicketRing;
use super::wire::session_message_to_wire;
use crate::node::peers::Peers;

/// The sessions in memory and in the file, and the tasks that wait for an exchange.
pub(super) struct StoredSessions {
    clock: Clock,
    peers: Peers,
    /// Sessions from before the process started, and those that memory has no room for.
    database: Arc<OneProcessDatabase>,
    state: Mutex<ExchangeState>,
    /// Notified when the timer of the exchange becomes earlier.
    changed: Notify,
}

/// A session in memory, as it passes to a successor of this process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PassedSession {
    key: SessionKey,
    secret: SecretBytes,
    /// In seconds of Unix time.
    expires: u64,
    issuer: NodeName,
    is_own: bool,
    is_spent: bool,
}

impl PassedSession {
    /// About the bytes that it takes.
    pub(crate) fn len(&self) -> usize {
        self.secret.as_slice().len() + self.issuer.as_str().len() + size_of::<Self>()
    }
}

struct ExchangeState {
    exchange: Exchange,
    puts: HashMap<PutId, oneshot::Sender<()>>,
    gets: HashMap<GetId, oneshot::Sender<(Vec<FoundSession>, Outcome)>>,
    spends: HashMap<SpendId, oneshot::Sender<Verdict>>,
    /// When [`StoredSessions::run_timer`] wakes next, in milliseconds of [`Now::ms`].
    looks_at: Option<u64>,
    /// Whether a successor of this process approves uses of the sessions.
    is_given_up: bool,
}

impl StoredSessions {
    /// The file of sessions is not open ([`Self::database_file`]).
    pub(super) fn new(peers: Peers, sharing: &Sharing, ring: &Arc<TicketRing>, clock: Clock) -> Self {
        let placement = if sharing.mode == Mode::Push { Placement::Push } else { Placement::Owner };
        let database = Arc::new(OneProcessDatabase::new(sharing.database.clone(), Arc::clone(ring), clock));
        let exchange = Exchange::new(peers.name().clone(), placement, Store::new(sharing.memory_bytes));
        let state = ExchangeState {
            exchange,
            puts: HashMap::new(),
            gets: HashMap::new(),
            spends: HashMap::new(),
            looks_at: None,
            is_given_up: false,
        };
        Self { clock, peers, database, state: Mutex::new(state), changed: Notify::new() }
    }

    /// Stores sessions at the agents that will be asked for them. Returns when these confirm, or at the timeout.
    pub(super) async fn put(&self, sessions: Vec<(SessionKey, Session)>) {
        if let Some(database) = self.database.get() {
            for (key, session) in &sessions {
                database.put(*key, session);
            }
        }
        // The exchange has its own timeout. Its first result is enough.
        self.run(|exchange, now| exchange.put(now, sessions), |state| &mut state.puts).await;
    }

    /// Searches for sessions, here and at the agents that store them. Returns the reason if some were not found.
    pub(super) async fn get(&self, keys: &[SessionKey]) -> (Vec<FoundSession>, Option<Miss>) {
        self.restore(keys).await;
        let found = self.run(|exchange, now| exchange.get(now, keys.to_vec()), |state| &mut state.gets).await;
        let Some((sessions, outcome)) = found else { return (Vec::new(), Some(Miss::Unreachable)) };
        let miss = match outcome {
            Outcome::Complete => None,
            Outcome::Unknown => Some(Miss::Unknown),
            Outcome::Unreachable => Some(Miss::Unreachable),
        };
        self.store(sessions.iter().filter(|found| found.source == Source::Pulled).map(|found| found.key));
        (sessions, miss)
    }

    /// Requests the approval for a use of the session from the agent that established it.
    pub(super) async fn spend(&self, found: &FoundSession) -> Verdict {
        let verdict = self.run(|exchange, now| exchange.spend(now, found), |state| &mut state.spends).await;
        // A use that was approved after the sessions had passed is unknown to the successor.
        if self.state().is_given_up { Verdict::Unreachable } else { verdict.unwrap_or(Verdict::Unreachable) }
    }

    /// Starts an exchange, and waits for its result.
    async fn run<Id: Eq + Hash, T>(
        &self,
        begin: impl FnOnce(&mut Exchange, Now) -> (Id, Vec<Action>),
        waiting: impl FnOnce(&mut ExchangeState) -> &mut HashMap<Id, oneshot::Sender<T>>,
    ) -> Option<T> {
        let (ends, actions) = {
            let mut state = self.state();
            let (id, actions) = begin(&mut state.exchange, self.clock.now());
            let (end, ends) = oneshot::channel();
            waiting(&mut state).insert(id, end);
            // Most exchanges end before their timer is due. So the timer is moved only if it would fire too late.
            let due = state.exchange.next_timer();
            if due.is_some_and(|due| state.looks_at.is_none_or(|looks_at| due < looks_at)) {
                self.changed.notify_one();
            }
            (ends, actions)
        };
        self.act(actions);
        timeout(WAIT_MAX, ends).await.ok()?.ok()
    }

    /// Loads sessions that are not in memory from the file.
    pub(super) async fn restore(&self, keys: &[SessionKey]) {
        let Some(database) = self.database.get() else { return };
        let missing = self.missing(keys);
        if missing.is_empty() {
            return;
        }
        for (key, session) in database.get(missing).await {
            self.state().exchange.restore(self.clock.now(), key, session);
        }
    }

    /// The keys in another agent's request that are not in memory, and may be in the file.
    pub(super) fn may_be_stored(&self, message: &Message) -> Vec<SessionKey> {
        match (self.database.get(), message) {
            (Some(_), Message::Request(_, Request::Get(keys))) => self.missing(keys),
            _ => Vec::new(),
        }
    }

    fn missing(&self, keys: &[SessionKey]) -> Vec<SessionKey> {
        let (state, now) = (self.state(), self.clock.unix_s());
        keys.iter().filter(|key| state.exchange.store().get(key, now).is_none()).copied().collect()
    }

    /// Writes sessions that are in memory to the file.
    fn store(&self, keys: impl Iterator<Item = SessionKey>) {
        let Some(database) = self.database.get() else { return };
        let now = self.clock.unix_s();
        for key in keys {
            let in_memory = self.state().exchange.store().get(&key, now).map(|(session, _)| session.clone());
            if let Some(session) = in_memory {
                database.put(key, &session);
            }
        }
    }

    /// Waits until all queued sessions are in the file.
    pub(super) async fn flush(&self) {
        if let Some(database) = self.database.get() {
            database.flush().await;
        }
    }

    pub(super) fn database_status(&self) -> Option<DatabaseStatus> {
        self.database.get()?.status()
    }

    /// The file of sessions.
    pub(super) fn database_file(&self) -> &Arc<OneProcessDatabase> {
        &self.database
    }

    /// Sets the linked agents.
    pub(super) fn set_members(&self, agents: &BTreeSet<NodeName>) {
        let actions = self.state().exchange.set_members(self.clock.now(), agents);
        self.act(actions);
    }

    pub(super) fn on_message(&self, from: &NodeName, message: Message) {
        let put: Vec<SessionKey> = match &message {
            Message::Request(_, Request::Put(sessions)) => sessions.iter().map(|sent| sent.key).collect(),
            _ => Vec::new(),
        };
        let actions = {
            let mut state = self.state();
            if state.is_given_up && matches!(message, Message::Request(_, Request::Spend(..))) {
                // The other agent asks again, and then asks the successor.
                return;
            }
            state.exchange.on_message(self.clock.now(), from, message)
        };
        self.store(put.into_iter());
        self.act(actions);
    }

    /// Repeats messages that were not answered, until it is dropped.
    pub(super) async fn run_timer(&self) {
        let mut expiry = interval(EXPIRY);
        loop {
            let next = {
                let mut state = self.state();
                state.looks_at = state.exchange.next_timer();
                state.looks_at.map(|ms| self.clock.at(ms))
            };
            let due = async {
                match next {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {
                    let actions = self.state().exchange.on_timer(self.clock.now());
                    self.act(actions);
                }
                () = self.changed.notified() => {}
                _ = expiry.tick() => self.state().exchange.expire(self.clock.now()),
            }
        }
    }

    /// All sessions in memory, for a successor of this process. From now on, only the successor approves uses of them.
    pub(super) fn give_up(&self) -> Vec<PassedSession> {
        let mut state = self.state();
        state.is_given_up = true;
        let passed = state.exchange.store().export().map(|(key, session, is_own, is_spent)| PassedSession {
            key: *key,
            secret: session.secret.clone(),
            expires: session.expires,
            issuer: session.issuer.clone(),
            is_own,
            is_spent,
        });
        passed.collect()
    }

    /// The successor has failed.
    pub(super) fn keep(&self) {
        self.state().is_given_up = false;
    }

    /// Stores the sessions of the predecessor of this process.
    pub(super) fn take_over(&self, sessions: Vec<PassedSession>) {
        let sessions = sessions.into_iter().map(|passed| {
            let PassedSession { key, secret, expires, issuer, is_own, is_spent } = passed;
            (key, Session { secret, expires, issuer }, is_own, is_spent)
        });
        self.state().exchange.import(sessions);
    }

    /// The number of sessions in memory, and their size in bytes.
    pub(super) fn in_memory(&self) -> (usize, usize) {
        let state = self.state();
        let store = state.exchange.store();
        (store.len(), store.bytes())
    }

    fn act(&self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(to, message) => {
                    self.peers.send(&to, session_message_to_wire(message));
                }
                Action::SendSoon(to, message) => self.peers.send_soon(&to, session_message_to_wire(message)),
                // The waiting task may have ended.
                Action::Stored(id) => {
                    let waits = self.state().puts.remove(&id);
                    let _ = waits.map(|waits| waits.send(()));
                }
                Action::Found(id, sessions, outcome) => {
                    let waits = self.state().gets.remove(&id);
                    let _ = waits.map(|waits| waits.send((sessions, outcome)));
                }
                Action::Spent(id, verdict) => {
                    let waits = self.state().spends.remove(&id);
                    let _ = waits.map(|waits| waits.send(verdict));
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, ExchangeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The interval at which expired sessions are removed if no new ones arrive.
const EXPIRY: Duration = Duration::from_secs(10);
/// Longer than any exchange takes.
const WAIT_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::handoff::testing::{RecordedLinks, name};

    /// The previous process still has links after its sessions have passed.
    #[tokio::test]
    async fn a_use_is_approved_by_one_process_of_the_node() {
        let (links, clock) = (RecordedLinks::default(), Clock::start());
        let sharing = Sharing { mode: Mode::Owner, single_use: true, ..Sharing::default() };
        let ring = Arc::new(TicketRing::new(sharing.lifetime, clock).unwrap());
        let stored = StoredSessions::new(Peers::new(name("a"), links.clone()), &sharing, &ring, clock);
        let key = SessionKey([1; 32]);
        let expires = clock.unix_s() + 60;
        let session = Session { secret: SecretBytes::new(vec![7; 100]), expires, issuer: name("a") };
        stored.put(vec![(key, session.clone())]).await;
        stored.set_members(&[name("b")].into());
        links.take();
        let passed = stored.give_up();
        assert_eq!((passed.len(), passed[0].is_own, passed[0].is_spent), (1, true, false));
        let spend = |number| stored.on_message(&name("b"), Message::Request(number, Request::Spend(key)));
        spend(1);
        assert_eq!(links.take(), []);
        let found = FoundSession { key, session, source: Source::Own };
        assert_eq!(stored.spend(&found).await, Verdict::Unreachable);
        stored.keep();
        spend(2);
        assert_eq!(links.take().len(), 1);
    }
}
