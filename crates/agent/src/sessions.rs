//! Session resumption, and the sharing of sessions between agents.

mod clock;
mod database;
mod keys_file;
mod redis;
mod stored;
mod tickets;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, interval, timeout_at};
use tokio_util::sync::CancellationToken;
use watari_handshake::{Found, Miss, NewSession, Provided, SessionSource, Wanted};
use watari_session::{FoundSession, Session, Source, TicketSeed, TooManySeeds, Verdict};
use watari_values::{NodeName, Role, SessionKey, TicketSeedId};
use watari_wire::AgentToAgent;

use crate::AgentShared;
use crate::metrics::{Metrics, VERSIONS};
use clock::Clock;
pub use database::{DatabaseFile, DatabaseStatus};
use keys_file::KeysFile;
use redis::SealedRedis;
pub use redis::{RedisServer, RedisStatus};
use stored::StoredSessions;
use tickets::TicketRing;
pub(crate) use wire::session_message_from_wire;
use wire::ticket_seeds_from_wire;
pub use wire::{session_message_to_wire, ticket_seeds_to_wire};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharing {
    /// The way of sharing.
    pub mode: Mode,
    /// How long a session can be resumed after its handshake.
    pub lifetime: Duration,
    /// The interval at which an agent draws a new seed for ticket keys.
    pub rotation: Duration,
    /// Tickets that a client gets after each TLS 1.3 handshake.
    pub tickets_per_handshake: usize,
    /// The most memory for stored sessions, in bytes.
    pub memory_bytes: usize,
    /// Whether a session can be resumed only once. Not allowed with `Mode::Tickets`, because no agent records which
    /// tickets were used.
    pub single_use: bool,
    /// Whether clients may send early data, once with each session. Allowed only with `Mode::Push` and `Mode::Owner`,
    /// because the agent that established a session has to have stored it.
    pub early_data: bool,
    /// The file of the ticket keys, so that they survive a restart.
    pub keys_file: Option<PathBuf>,
    /// The file of the stored sessions, so that they survive a restart.
    pub database: Option<DatabaseFile>,
    /// The server that stores sessions in `Mode::Redis`.
    pub redis: Option<RedisServer>,
}

/// The way of sharing sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Sessions are not shared.
    Private,
    /// Every linked agent can open the tickets of every other. Sessions of clients without ticket support are stored as
    /// in `Owner`.
    Tickets,
    /// Every session is sent to all agents (the paper's method).
    Push,
    /// Two agents store each session, and the other agents request it from them.
    Owner,
    /// A Redis server stores every session, sealed, for all agents that use it.
    Redis,
}

impl Mode {
    /// The spelling in configuration files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Tickets => "tickets",
            Self::Push => "push",
            Self::Owner => "owner",
            Self::Redis => "redis",
        }
    }
}

impl Sharing {
    /// Whether tickets contain sessions. Otherwise they are names of stored sessions.
    fn seals_tickets(&self) -> bool {
        matches!(self.mode, Mode::Private | Mode::Tickets)
    }

    /// Whether there are ticket keys: for tickets, or for sessions stored outside the memory.
    fn has_keys(&self) -> bool {
        self.seals_tickets() || self.database.is_some() || self.mode == Mode::Redis
    }

    fn shares_keys(&self) -> bool {
        self.has_keys() && self.mode != Mode::Private
    }
}

/// The state of session resumption, and counts since the agent started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStatus {
    pub sharing: Sharing,
    /// The number of seeds of ticket keys.
    pub seeds: usize,
    /// The age of the newest seed, by its maker's clock.
    pub newest_seed_age: Option<Duration>,
    /// Sessions stored in memory: their number, and their size in bytes.
    pub in_memory: (usize, usize),
    /// The state of the session file, if one is configured.
    pub database: Option<DatabaseStatus>,
    /// The state of the Redis server, if one is configured.
    pub redis: Option<RedisStatus>,
    /// By TLS version: `"1.2"`, `"1.3"`.
    pub handshakes: Vec<(&'static str, HandshakeCounts)>,
}

/// Handshakes of one TLS version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandshakeCounts {
    /// Handshakes that resumed nothing.
    pub full: u64,
    /// Handshakes that resumed a session, by its source (`SessionSource::label`).
    pub resumed: BTreeMap<&'static str, u64>,
    /// Those of `full` whose client offered a session, by the reason that it was not resumed (`Miss::label`).
    pub missed: BTreeMap<&'static str, u64>,
}

impl Default for Sharing {
    fn default() -> Self {
        Self {
            mode: Mode::Tickets,
            lifetime: Duration::from_hours(12),
            rotation: Duration::from_hours(6),
            tickets_per_handshake: 2,
            memory_bytes: 64 << 20,
            single_use: false,
            early_data: false,
            keys_file: None,
            database: None,
            redis: None,
        }
    }
}

/// The reason that ticket keys were not rotated.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    /// Too many seeds were made within a lifetime.
    #[error(transparent)]
    TooOften(#[from] TooManySeeds),
    /// The system provides no randomness.
    #[error("the system gives no random bytes")]
    NoRandomness,
    /// The mode needs no ticket keys.
    #[error("mode `{0}` has no ticket keys: a ticket only names a session that agents store")]
    NoKeys(&'static str),
}

/// The session state of this agent.
pub(crate) struct Sessions {
    sharing: Sharing,
    clock: Clock,
    offered: Arc<watari_handshake::Sessions>,
    tickets: Arc<TicketRing>,
    keys_file: Option<Arc<KeysFile>>,
    stored: StoredSessions,
    redis: Option<SealedRedis>,
    state: Mutex<SharingState>,
    started: Instant,
    /// Incremented when seeds arrive or an agent links, for tasks that wait for either.
    learned: watch::Sender<u64>,
}

#[derive(Default)]
struct SharingState {
    agents: BTreeSet<NodeName>,
    /// Requested seeds, and when they were requested.
    asked: BTreeMap<TicketSeedId, Instant>,
}

impl Sessions {
    pub(crate) fn new(name: NodeName, sharing: Sharing) -> io::Result<Self> {
        let clock = Clock::start();
        let tickets = Arc::new(TicketRing::new(&sharing, clock)?);
        let keys_file = sharing.keys_file.clone().map(KeysFile::new);
        if let Some(file) = &keys_file {
            tickets.merge(file.read()?);
        }
        let redis = match &sharing.redis {
            Some(server) => {
                let settings = server.settings().map_err(io::Error::other)?;
                Some(SealedRedis::new(settings, Arc::clone(&tickets), name.clone(), clock, sharing.single_use))
            }
            None => None,
        };
        let stored = StoredSessions::new(name, &sharing, &tickets, clock)?;
        let offered = watari_handshake::Sessions {
            tickets: sharing.seals_tickets().then(|| Arc::clone(&tickets) as _),
            kept: true,
            lifetime: sharing.lifetime,
            tickets_per_handshake: sharing.tickets_per_handshake,
            early_data: sharing.early_data,
        };
        let (learned, _) = watch::channel(0);
        let offered = Arc::new(offered);
        let keys_file = keys_file.map(Arc::new);
        let sessions = Self {
            sharing,
            clock,
            offered,
            tickets,
            keys_file,
            stored,
            redis,
            state: Mutex::default(),
            started: Instant::now(),
            learned,
        };
        if sessions.sharing.mode == Mode::Private && !sessions.tickets.is_ready() {
            sessions.tickets.rotate().map_err(io::Error::other)?;
        }
        Ok(sessions)
    }

    /// The settings that handshakes use.
    pub(crate) fn offered(&self) -> &Arc<watari_handshake::Sessions> {
        &self.offered
    }

    pub(crate) fn status(&self, metrics: &Metrics) -> SessionStatus {
        let (seeds, newest_seed_age) = self.tickets.seeds();
        let handshakes = VERSIONS.map(|version| (version, metrics.handshake_counts(version))).to_vec();
        SessionStatus {
            sharing: self.sharing.clone(),
            seeds,
            newest_seed_age,
            in_memory: self.stored.in_memory(),
            database: self.stored.database_status(),
            redis: self.redis.as_ref().map(SealedRedis::status),
            handshakes,
        }
    }

    /// Handles a new link to an agent: sends it all seeds.
    pub(crate) fn link_up(&self, shared: &AgentShared, agent: &NodeName) {
        if self.sharing.mode != Mode::Private {
            self.change_agents(shared, |agents| agents.insert(agent.clone()));
        }
        if self.sharing.shares_keys() {
            send_seeds(shared, agent, self.tickets.share());
        }
        self.notify_learned();
    }

    pub(crate) fn link_down(&self, shared: &AgentShared, agent: &NodeName) {
        self.change_agents(shared, |agents| agents.remove(agent));
    }

    fn change_agents(&self, shared: &AgentShared, change: impl FnOnce(&mut BTreeSet<NodeName>) -> bool) {
        let mut state = self.state();
        if change(&mut state.agents) {
            let agents = state.agents.clone();
            drop(state);
            self.stored.set_members(shared, &agents);
        }
    }

    /// Handles another agent's message about stored sessions.
    pub(crate) fn on_session_message(
        &self,
        shared: &Arc<AgentShared>,
        from: &NodeName,
        message: watari_session::Message,
    ) {
        let stored_keys = self.stored.may_be_stored(&message);
        if stored_keys.is_empty() {
            return self.stored.on_message(shared, from, message);
        }
        let (shared, from) = (Arc::clone(shared), from.clone());
        tokio::spawn(async move {
            shared.sessions.stored.restore(&stored_keys).await;
            shared.sessions.stored.on_message(&shared, &from, message);
        });
    }

    /// Waits until keys and sessions are written to their files.
    pub(crate) async fn flush(&self) {
        self.write_keys().await;
        self.stored.flush().await;
    }

    /// Stores the sessions of a handshake, before the client gets their tickets.
    pub(crate) async fn store(&self, shared: &AgentShared, made: Vec<NewSession>) {
        let expires = self.clock.unix_s() + self.sharing.lifetime.as_secs();
        let session = |secret| Session { secret, expires, issuer: shared.name.clone() };
        let sessions: Vec<_> = made.into_iter().map(|new| (new.key, session(new.session))).collect();
        match &self.redis {
            Some(redis) => redis.put(&sessions).await,
            None => self.stored.put(shared, sessions).await,
        }
    }

    /// Handles seeds that another agent sent.
    pub(crate) fn on_seeds(&self, shared: &AgentShared, from: &NodeName, seeds: &[watari_wire::TicketSeed]) {
        if !self.sharing.shares_keys() {
            return;
        }
        // If neither agent has a seed, the first by name makes one. The other waits for a while.
        if seeds.is_empty() && !self.tickets.is_ready() && shared.name < *from {
            self.begin(shared);
        }
        let new = self.tickets.merge(ticket_seeds_from_wire(seeds.to_vec()));
        if new > 0 {
            tracing::info!(%from, new, "ticket keys learned");
            shared.metrics.ticket_seeds_learned.inc_by(new as u64);
        }
        self.notify_learned();
    }

    /// Handles another agent's request for a seed.
    pub(crate) fn on_wanted(&self, shared: &AgentShared, from: &NodeName, seed: TicketSeedId) {
        if self.sharing.shares_keys() {
            send_seeds(shared, from, self.tickets.share_one(seed).into_iter().collect());
        }
    }

    /// Searches for the sessions or seeds that a handshake needs, for a limited time.
    pub(crate) async fn look_for(&self, shared: &AgentShared, wanted: &Wanted) -> Provided {
        if wanted.sessions.is_empty() {
            let miss = self.look_for_seeds(shared, &wanted.ticket_seeds).await;
            return Provided { miss, ..Provided::default() };
        }
        if let Some(redis) = &self.redis {
            let (found, miss) = redis.get(&wanted.sessions).await;
            return provided(found, miss, false);
        }
        let (found, miss) = self.get(shared, &wanted.sessions).await;
        if self.sharing.single_use {
            self.spend_one(shared, wanted, found, miss).await
        } else {
            let early_data = self.approves_early_data(shared, wanted, &found).await;
            provided(found, miss, early_data)
        }
    }

    /// Repeats the search while the agent has just started and links are still missing: the session may be at an agent
    /// without a link yet.
    async fn get(&self, shared: &AgentShared, keys: &[SessionKey]) -> (Vec<FoundSession>, Option<Miss>) {
        let mut learned = self.learned.subscribe();
        loop {
            let (found, miss) = self.stored.get(shared, keys).await;
            if miss.is_none() || !found.is_empty() || !self.is_joining(shared) {
                return (found, miss);
            }
            if !news(&mut learned, self.started + JOIN_MAX).await {
                return (found, miss);
            }
        }
    }

    fn is_joining(&self, shared: &AgentShared) -> bool {
        self.sharing.mode != Mode::Private
            && Instant::now() < self.started + JOIN_MAX
            && shared.mesh.peers().iter().any(|peer| peer.up_for.is_none())
    }

    async fn approves_early_data(&self, shared: &AgentShared, wanted: &Wanted, found: &[FoundSession]) -> bool {
        match found.iter().find(|found| is_for_early_data(wanted, found)) {
            Some(first) => self.stored.spend(shared, first).await == Verdict::Granted,
            None => false,
        }
    }

    /// Returns the first of the found sessions that may still be used. The same approval covers early data.
    async fn spend_one(
        &self,
        shared: &AgentShared,
        wanted: &Wanted,
        found: Vec<FoundSession>,
        miss: Option<Miss>,
    ) -> Provided {
        let mut miss = miss;
        for found in found {
            let early_data = is_for_early_data(wanted, &found);
            match self.stored.spend(shared, &found).await {
                Verdict::Granted => return provided(vec![found], None, early_data),
                Verdict::Denied => miss = Some(Miss::Spent),
                Verdict::Unreachable => miss = Some(Miss::Unreachable),
            }
        }
        provided(Vec::new(), miss, false)
    }

    async fn look_for_seeds(&self, shared: &AgentShared, seeds: &[TicketSeedId]) -> Option<Miss> {
        let deadline = Instant::now() + LOOK_MAX;
        let mut learned = self.learned.subscribe();
        for &seed in seeds {
            if !self.ask(shared, seed) && !self.is_joining(shared) {
                return Some(Miss::NoKey);
            }
            while !self.tickets.knows(seed) {
                if !news(&mut learned, deadline).await {
                    return Some(Miss::Unreachable);
                }
            }
        }
        None
    }

    /// Makes new keys, and sends their seed to all agents.
    pub(crate) fn rotate(&self, shared: &AgentShared) -> Result<(), RotationError> {
        if !self.sharing.has_keys() {
            return Err(RotationError::NoKeys(self.sharing.mode.as_str()));
        }
        let seed = self.tickets.rotate()?;
        tracing::info!("ticket keys rotated");
        for agent in self.state().agents.clone() {
            send_seeds(shared, &agent, self.tickets.share_one(seed).into_iter().collect());
        }
        self.notify_learned();
        Ok(())
    }

    /// Waits for keys for at most [`JOIN_MAX`]. Without keys no client gets a ticket.
    pub(crate) async fn ready(&self) {
        if !self.sharing.has_keys() {
            return;
        }
        let deadline = Instant::now() + JOIN_MAX;
        let mut learned = self.learned.subscribe();
        while !self.tickets.is_ready() {
            if !news(&mut learned, deadline).await {
                return;
            }
        }
    }

    /// Writes the current keys to the file.
    async fn write_keys(&self) {
        let Some(file) = self.keys_file.clone() else { return };
        let seeds = self.tickets.share();
        let written = spawn_blocking(move || file.write(seeds)).await.map_err(io::Error::other);
        if let Err(error) = written.flatten() {
            tracing::warn!(%error, "cannot write the ticket keys to keys_file");
        }
    }

    /// Makes new keys, which the evicted node does not get. A node that restarts receives all old evictions again. It
    /// ignores those that are older than its keys.
    pub(crate) fn on_evicted(&self, shared: &AgentShared, at_unix_s: u64) {
        if !self.tickets.are_newer_than(at_unix_s) {
            // Dropping the oldest seed costs resumptions. That matters less than that the evicted node can open nothing
            // more.
            self.tickets.make_room();
            self.begin(shared);
        }
    }

    /// Makes new keys. Logs a failure.
    fn begin(&self, shared: &AgentShared) {
        if let Err(error) = self.rotate(shared) {
            tracing::warn!(%error, "cannot rotate the ticket keys");
        }
    }

    /// Requests a seed from all agents, unless that was done recently. Returns `false` if no agent has it.
    fn ask(&self, shared: &AgentShared, seed: TicketSeedId) -> bool {
        let now = Instant::now();
        let mut state = self.state();
        if state.agents.is_empty() {
            return false;
        }
        state.asked.retain(|_, asked| now < *asked + ASK_AGAIN);
        match state.asked.get(&seed) {
            Some(asked) => return now < *asked + LOOK_MAX,
            None if state.asked.len() >= ASKED_MAX => return false,
            None => {}
        }
        state.asked.insert(seed, now);
        let agents = state.agents.clone();
        drop(state);
        for agent in &agents {
            shared.send(agent, AgentToAgent::TicketSeedWanted(seed));
        }
        true
    }

    fn notify_learned(&self) {
        self.learned.send_modify(|learned| *learned += 1);
    }

    fn state(&self) -> MutexGuard<'_, SharingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for seeds or agents. Returns `false` at the deadline.
async fn news(learned: &mut watch::Receiver<u64>, deadline: Instant) -> bool {
    matches!(timeout_at(deadline, learned.changed()).await, Ok(Ok(())))
}

/// Whether the session is the one for early data: the first that the client offers (RFC 8446, section 4.2.10).
fn is_for_early_data(wanted: &Wanted, found: &FoundSession) -> bool {
    wanted.early_data && wanted.sessions.first() == Some(&found.key)
}

fn provided(found: Vec<FoundSession>, miss: Option<Miss>, early_data: bool) -> Provided {
    let found = found.into_iter().map(|found| {
        let source = match found.source {
            Source::Own => SessionSource::Here,
            Source::Here => SessionSource::Elsewhere,
            Source::Pulled => SessionSource::Pulled,
        };
        (found.key, Found { session: found.session.secret, source })
    });
    Provided { found: found.collect(), miss, early_data }
}

/// How long a handshake waits for a seed.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// How long a seed that no agent had is not requested again.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// The most requested seeds that are remembered. Forged tickets can name any number of seeds.
const ASKED_MAX: usize = 64;
/// How long an agent that starts waits for others: for their keys, before it makes the first, and for links to agents
/// that may have the sessions that clients offer.
const JOIN_MAX: Duration = Duration::from_secs(2);
/// The interval at which keys are checked.
const LOOK_AFTER: Duration = Duration::from_millis(250);

fn send_seeds(shared: &AgentShared, agent: &NodeName, seeds: Vec<TicketSeed>) {
    // An empty list is also sent: it ends the receiver's wait for seeds.
    shared.send(agent, AgentToAgent::TicketSeeds(ticket_seeds_to_wire(seeds)));
}

/// Repeats messages that other agents have not answered.
pub(crate) async fn run_timer(shared: Arc<AgentShared>, shutdown: CancellationToken) {
    shutdown.run_until_cancelled(shared.sessions.stored.run_timer(&shared)).await;
}

/// Makes the first key if no agent has one, and new keys when they are due. Destroys expired keys.
pub(crate) async fn keep_keys(shared: Arc<AgentShared>, shutdown: CancellationToken) {
    let sessions = &shared.sessions;
    if !sessions.sharing.has_keys() {
        return;
    }
    let mut look = interval(LOOK_AFTER);
    loop {
        tokio::select! {
            _ = look.tick() => {}
            () = shutdown.cancelled() => return,
        }
        sessions.tickets.advance();
        sessions.write_keys().await;
        let is_joined =
            sessions.tickets.is_ready() || sessions.started.elapsed() >= JOIN_MAX || nobody_to_join(&shared);
        if is_joined && sessions.tickets.is_due(sessions.sharing.rotation) {
            sessions.begin(&shared);
        }
    }
}

/// Whether there is no other agent that could have keys.
fn nobody_to_join(shared: &AgentShared) -> bool {
    let peers = shared.mesh.peers();
    // In an open mesh, agents that this node does not know yet may join, and they may have keys.
    let may_be_alone = !peers.is_empty() || !shared.mesh.is_open();
    may_be_alone && peers.iter().all(|peer| peer.up_for.is_some() && !peer.roles.contains(&Role::Agent))
}
