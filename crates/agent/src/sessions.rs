//! What it takes to resume sessions, and how agents share it.

mod clock;
mod kept;
mod tickets;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, interval, timeout_at};
use tokio_util::sync::CancellationToken;
use watari_handshake::{Found, Kept, Miss, Wanted};
use watari_session::{Placement, TooManySeeds};
use watari_wire::{Message, NodeName, Role, SessionKey, TicketSeed, TicketSeedId};

use crate::Shared;
use crate::metrics::{Metrics, VERSIONS};
use clock::Clock;
use kept::KeptSessions;
use tickets::TicketRing;

/// How sessions are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    /// With whom, and in which way.
    pub mode: Mode,
    /// How long a session can be resumed.
    pub lifetime: Duration,
    /// How often keys of tickets begin anew, with new randomness.
    pub rotation: Duration,
    /// So many tickets after each handshake of TLS 1.3.
    pub tickets_per_handshake: usize,
    /// How much the sessions may take that this agent keeps, in bytes.
    pub memory_bytes: usize,
}

/// With whom sessions are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// With nobody.
    Private,
    /// With all agents that there is a link to: any of them opens the tickets of each. Clients that take none are kept as in `Owner`.
    Tickets,
    /// With all agents: each is sent every session (the paper's).
    Push,
    /// With all agents: each session has two that keep it, and the others ask these.
    Owner,
}

impl Mode {
    /// As configurations spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Tickets => "tickets",
            Self::Push => "push",
            Self::Owner => "owner",
        }
    }
}

/// How sessions are resumed at the moment, and what became of those that clients have offered since the agent began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStatus {
    /// How they are shared.
    pub sharing: Sharing,
    /// How many seeds of ticket keys are known.
    pub seeds: usize,
    /// How long ago the newest was made, by its maker's clock.
    pub newest_seed_age: Option<Duration>,
    /// How many sessions are kept here, and how many bytes they take.
    pub kept: (usize, usize),
    /// By version: `"1.2"`, `"1.3"`.
    pub handshakes: Vec<(&'static str, HandshakeCounts)>,
}

/// Handshakes of one version of TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandshakeCounts {
    /// Those that resumed nothing.
    pub full: u64,
    /// Those that resumed a session, by where that was from (`Origin::label`).
    pub resumed: BTreeMap<&'static str, u64>,
    /// Those of `full` whose client offered a session, by why it was not resumed (`Miss::label`).
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
        }
    }
}

/// Keys of tickets were not rotated.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    /// It was done too often.
    #[error(transparent)]
    TooOften(#[from] TooManySeeds),
    /// The system gives none.
    #[error("there is no randomness to be had")]
    NoRandomness,
}

/// What this agent resumes sessions by.
pub(crate) struct Sessions {
    sharing: Sharing,
    offered: Arc<watari_handshake::Sessions>,
    tickets: Arc<TicketRing>,
    kept: KeptSessions,
    state: Mutex<State>,
    /// Counts what was learned of keys, for those who wait for some.
    learned: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    agents: BTreeSet<NodeName>,
    /// Seeds that were asked for, and when.
    asked: BTreeMap<TicketSeedId, Instant>,
}

impl Sessions {
    pub(crate) fn new(name: NodeName, sharing: Sharing) -> io::Result<Self> {
        let clock = Clock::start();
        let tickets = Arc::new(TicketRing::new(&sharing, clock)?);
        let (gives_tickets, placement) = match sharing.mode {
            Mode::Private | Mode::Tickets => (true, Placement::Owner),
            Mode::Push => (false, Placement::Push),
            Mode::Owner => (false, Placement::Owner),
        };
        let kept = KeptSessions::new(name, &sharing, placement, clock);
        let offered = watari_handshake::Sessions {
            tickets: gives_tickets.then(|| Arc::clone(&tickets) as _),
            kept: true,
            tickets_per_handshake: sharing.tickets_per_handshake,
        };
        let (learned, _) = watch::channel(0);
        let offered = Arc::new(offered);
        let sessions = Self { sharing, offered, tickets, kept, state: Mutex::default(), learned };
        if sharing.mode == Mode::Private {
            sessions.tickets.rotate().map_err(io::Error::other)?;
        }
        Ok(sessions)
    }

    /// What handshakes offer.
    pub(crate) fn offered(&self) -> &Arc<watari_handshake::Sessions> {
        &self.offered
    }

    pub(crate) fn status(&self, metrics: &Metrics) -> SessionStatus {
        let (seeds, newest_seed_age) = self.tickets.seeds();
        let handshakes = VERSIONS.map(|version| (version, metrics.handshake_counts(version))).to_vec();
        SessionStatus { sharing: self.sharing, seeds, newest_seed_age, kept: self.kept.kept(), handshakes }
    }

    /// There is a link to another agent: it is told all that is known of keys.
    pub(crate) fn link_up(&self, shared: &Shared, agent: &NodeName) {
        if self.sharing.mode == Mode::Private {
            return;
        }
        self.change_agents(shared, |agents| agents.insert(agent.clone()));
        tell(shared, agent, self.tickets.share());
    }

    pub(crate) fn link_down(&self, shared: &Shared, agent: &NodeName) {
        self.change_agents(shared, |agents| agents.remove(agent));
    }

    fn change_agents(&self, shared: &Shared, change: impl FnOnce(&mut BTreeSet<NodeName>) -> bool) {
        let mut state = self.state();
        if change(&mut state.agents) {
            let agents = state.agents.clone();
            drop(state);
            self.kept.set_members(shared, &agents);
        }
    }

    /// Another agent says something about sessions that are kept.
    pub(crate) fn on_kept(&self, shared: &Shared, from: &NodeName, message: Message) {
        self.kept.on_message(shared, from, message);
    }

    /// Keeps what a handshake has made, before the client learns of it.
    pub(crate) async fn keep(&self, shared: &Shared, made: Vec<Kept>) {
        self.kept.put(shared, made).await;
    }

    /// Another agent tells of keys.
    pub(crate) fn on_seeds(&self, shared: &Shared, from: &NodeName, seeds: &[TicketSeed]) {
        if self.sharing.mode == Mode::Private {
            return;
        }
        // Of those that know nothing, the first by name begins; the others wait for a while.
        if seeds.is_empty() && !self.tickets.is_ready() && shared.name < *from {
            self.begin(shared);
        }
        let new = self.tickets.merge(seeds.to_vec());
        if new > 0 {
            tracing::info!(%from, new, "ticket keys learned");
            shared.metrics.ticket_seeds_learned.inc_by(new as u64);
        }
        self.learned.send_modify(|learned| *learned += 1);
    }

    /// Another agent lacks a key.
    pub(crate) fn on_wanted(&self, shared: &Shared, from: &NodeName, seed: TicketSeedId) {
        if self.sharing.mode != Mode::Private {
            tell(shared, from, self.tickets.share_one(seed).into_iter().collect());
        }
    }

    /// Looks for what a handshake wants, for a while; says what was missed.
    pub(crate) async fn look_for(&self, shared: &Shared, wanted: &Wanted) -> (Vec<(SessionKey, Found)>, Option<Miss>) {
        if wanted.sessions.is_empty() {
            (Vec::new(), self.look_for_seeds(shared, &wanted.ticket_seeds).await)
        } else {
            self.kept.get(shared, &wanted.sessions).await
        }
    }

    async fn look_for_seeds(&self, shared: &Shared, seeds: &[TicketSeedId]) -> Option<Miss> {
        let deadline = Instant::now() + LOOK_MAX;
        let mut learned = self.learned.subscribe();
        for &seed in seeds {
            if !self.ask(shared, seed) {
                return Some(Miss::NoKey);
            }
            while !self.tickets.knows(seed) {
                match timeout_at(deadline, learned.changed()).await {
                    Ok(Ok(())) => {}
                    _ => return Some(Miss::Unreachable),
                }
            }
        }
        None
    }

    /// Has everybody use new keys.
    pub(crate) fn rotate(&self, shared: &Shared) -> Result<(), RotationError> {
        let seed = self.tickets.rotate()?;
        tracing::info!("ticket keys rotated");
        for agent in self.state().agents.clone() {
            tell(shared, &agent, self.tickets.share_one(seed).into_iter().collect());
        }
        self.learned.send_modify(|learned| *learned += 1);
        Ok(())
    }

    /// Waits until there are keys, for a while: without them no client gets a ticket.
    pub(crate) async fn ready(&self) {
        let deadline = Instant::now() + JOIN_MAX;
        let mut learned = self.learned.subscribe();
        while !self.tickets.is_ready() {
            if !matches!(timeout_at(deadline, learned.changed()).await, Ok(Ok(()))) {
                return;
            }
        }
    }

    fn begin(&self, shared: &Shared) {
        if let Err(error) = self.rotate(shared) {
            tracing::warn!(%error, "ticket keys are not rotated");
        }
    }

    /// Asks all agents for a seed, unless that was done a moment ago; `false`: nobody has it.
    fn ask(&self, shared: &Shared, seed: TicketSeedId) -> bool {
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
            shared.tell(agent, &Message::TicketSeedWanted(seed));
        }
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a handshake waits for others.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// What nobody had is not asked for again before.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Seeds that were asked for and did not come: forged tickets name as many as they like.
const ASKED_MAX: usize = 64;
/// How long a node waits for the keys of others before it makes the first.
const JOIN_MAX: Duration = Duration::from_secs(2);
/// How often keys are looked after.
const LOOK_AFTER: Duration = Duration::from_millis(250);

fn tell(shared: &Shared, agent: &NodeName, seeds: Vec<TicketSeed>) {
    // Also where there are none: whoever waits for them need not wait any longer.
    shared.tell(agent, &Message::TicketSeeds(seeds));
}

/// Sends again what other agents have not answered.
pub(crate) async fn keep_time(shared: Arc<Shared>, shutdown: CancellationToken) {
    shutdown.run_until_cancelled(shared.sessions.kept.keep_time(&shared)).await;
}

/// Makes the first key where nobody has any, and new ones in time; destroys those that have expired.
pub(crate) async fn keep_keys(shared: Arc<Shared>, shutdown: CancellationToken) {
    let (sessions, started) = (&shared.sessions, Instant::now());
    let mut look = interval(LOOK_AFTER);
    loop {
        tokio::select! {
            _ = look.tick() => {}
            () = shutdown.cancelled() => return,
        }
        sessions.tickets.advance();
        let is_joined = sessions.tickets.is_ready() || started.elapsed() >= JOIN_MAX || nobody_to_join(&shared);
        if is_joined && sessions.tickets.is_due(sessions.sharing.rotation) {
            sessions.begin(&shared);
        }
    }
}

/// Whether there is no other agent that could know keys.
fn nobody_to_join(shared: &Shared) -> bool {
    shared.mesh.peers().iter().all(|peer| peer.up_for.is_some() && !peer.roles.contains(&Role::Agent))
}
