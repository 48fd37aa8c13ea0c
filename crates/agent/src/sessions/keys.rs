//! The ticket keys of this agent, and their exchange with other agents.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, interval};
use tokio_util::sync::CancellationToken;
use watari_handshake::Miss;
use watari_session::TicketSeed;
use watari_values::{NodeName, TicketSeedId};
use watari_wire::AgentToAgent;

use super::agents::LinkedAgents;
use super::clock::Clock;
use super::keys_file::KeysFile;
use super::sharing::{Mode, Sharing};
use super::tickets::{RotationError, TicketRing};
use super::wire::{ticket_seeds_from_wire, ticket_seeds_to_wire};
use crate::node::peers::Peers;

/// How long a handshake waits for a seed.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// How long a seed that no agent had is not requested again.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// The most requested seeds that are remembered. Forged tickets can name any number of seeds.
const ASKED_MAX: usize = 64;
/// The interval at which keys are checked.
const LOOK_AFTER: Duration = Duration::from_millis(250);

/// The ticket keys, and the other agents that have the same.
pub(super) struct TicketKeys {
    sharing: Sharing,
    peers: Peers,
    linked: Arc<LinkedAgents>,
    ring: Arc<TicketRing>,
    file: Option<Arc<KeysFile>>,
    /// Requested seeds, and when they were requested.
    asked: Mutex<BTreeMap<TicketSeedId, Instant>>,
    /// Whether this agent serves. Before, a predecessor of this process may have the keys.
    has_begun: AtomicBool,
    /// Counts the seeds that other agents sent.
    seeds_learned: Counter,
}

impl TicketKeys {
    pub(super) fn new(
        peers: Peers,
        linked: Arc<LinkedAgents>,
        sharing: Sharing,
        clock: Clock,
        seeds_learned: Counter,
    ) -> io::Result<Self> {
        let ring = Arc::new(TicketRing::new(sharing.lifetime, clock)?);
        let file = sharing.keys_file.clone().map(KeysFile::new).map(Arc::new);
        if let Some(file) = &file {
            ring.merge(file.read()?);
        }
        Ok(Self {
            sharing,
            peers,
            linked,
            ring,
            file,
            asked: Mutex::default(),
            has_begun: AtomicBool::new(false),
            seeds_learned,
        })
    }

    /// The ticket keys without the other agents.
    pub(super) fn ring(&self) -> &Arc<TicketRing> {
        &self.ring
    }

    /// The agent begins to serve. Makes the first key of an agent that shares none.
    pub(super) fn begin_to_serve(&self) -> Result<(), RotationError> {
        self.has_begun.store(true, Ordering::Relaxed);
        if self.sharing.mode == Mode::Private && !self.ring.is_ready() {
            self.ring.rotate()?;
        }
        Ok(())
    }

    /// A successor of this process has the keys. This one makes and writes none, until [`Self::begin_to_serve`].
    pub(super) fn give_up(&self) {
        self.has_begun.store(false, Ordering::Relaxed);
    }

    /// Sends an agent with a new link all seeds.
    pub(super) fn link_up(&self, agent: &NodeName) {
        if self.sharing.shares_keys() {
            self.send_seeds(agent, self.ring.share());
        }
        self.linked.notify_learned();
    }

    /// Handles seeds that another agent sent.
    pub(super) fn on_seeds(&self, from: &NodeName, seeds: &[watari_wire::TicketSeed]) {
        if !self.sharing.shares_keys() {
            return;
        }
        // If neither agent has a seed, the first by name makes one. The other waits for a while.
        if seeds.is_empty() && !self.ring.is_ready() && self.peers.name() < from {
            self.begin();
        }
        let new = self.ring.merge(ticket_seeds_from_wire(seeds.to_vec()));
        if new > 0 {
            tracing::info!(%from, new, "ticket keys learned");
            self.seeds_learned.inc_by(new as u64);
        }
        self.linked.notify_learned();
    }

    /// Handles another agent's request for a seed.
    pub(super) fn on_wanted(&self, from: &NodeName, seed: TicketSeedId) {
        if self.sharing.shares_keys() {
            self.send_seeds(from, self.ring.share_one(seed).into_iter().collect());
        }
    }

    /// Searches for the seeds of tickets, for a limited time.
    /// Returns the reason if one is not found.
    pub(super) async fn look_for(&self, seeds: &[TicketSeedId]) -> Option<Miss> {
        let deadline = Instant::now() + LOOK_MAX;
        let mut news = self.linked.news();
        for &seed in seeds {
            if !self.ask(seed) && !self.linked.is_joining() {
                return Some(Miss::NoKey);
            }
            while !self.ring.knows(seed) {
                if !news.next(deadline).await {
                    return Some(Miss::Unreachable);
                }
            }
        }
        None
    }

    /// Makes new keys, and sends their seed to all agents.
    pub(super) fn rotate(&self) -> Result<(), RotationError> {
        if !self.sharing.has_keys() {
            return Err(RotationError::NoKeys(self.sharing.mode.as_str()));
        }
        let seed = self.ring.rotate()?;
        tracing::info!("ticket keys rotated");
        for agent in self.linked.all() {
            self.send_seeds(&agent, self.ring.share_one(seed).into_iter().collect());
        }
        self.linked.notify_learned();
        Ok(())
    }

    /// Waits for keys for a limited time. Without keys no client gets a ticket.
    pub(super) async fn ready(&self) {
        if !self.sharing.has_keys() {
            return;
        }
        let deadline = LinkedAgents::wait_deadline();
        let mut news = self.linked.news();
        while !self.ring.is_ready() {
            if !news.next(deadline).await {
                return;
            }
        }
    }

    /// Writes the current keys to the file.
    pub(super) async fn write(&self) {
        let Some(file) = self.file.clone() else { return };
        let seeds = self.ring.share();
        let written = spawn_blocking(move || file.write(seeds)).await.map_err(io::Error::other);
        if let Err(error) = written.flatten() {
            tracing::warn!(%error, "cannot write the ticket keys: the file keeps the previous ones (agent.sessions.keys_file)");
        }
    }

    /// Makes new keys, which the evicted node does not get. A node that restarts receives all old evictions again. It
    /// ignores those that are older than its keys.
    pub(super) fn on_evicted(&self, at_unix_s: u64) {
        if !self.ring.are_newer_than(at_unix_s) {
            // Dropping the oldest seed costs resumptions. That matters less than that the evicted node can open nothing
            // more.
            self.ring.make_room();
            self.begin();
        }
    }

    /// Makes the first key if no agent has one, and new keys when they are due. Destroys expired keys.
    pub(super) async fn keep(&self, shutdown: &CancellationToken) {
        if !self.sharing.has_keys() {
            return;
        }
        let mut look = interval(LOOK_AFTER);
        loop {
            tokio::select! {
                _ = look.tick() => {}
                () = shutdown.cancelled() => return,
            }
            self.ring.advance();
            if !self.has_begun.load(Ordering::Relaxed) {
                continue;
            }
            self.write().await;
            let is_joined = self.ring.is_ready() || self.linked.is_joined();
            if is_joined && self.ring.is_due(self.sharing.rotation) {
                self.begin();
            }
        }
    }

    /// Makes new keys. Logs a failure.
    fn begin(&self) {
        if let Err(error) = self.rotate() {
            tracing::warn!(%error, "cannot rotate the ticket keys");
        }
    }

    /// Requests a seed from all agents, unless that was done recently. Returns `false` if no agent has it.
    fn ask(&self, seed: TicketSeedId) -> bool {
        let now = Instant::now();
        let agents = self.linked.all();
        if agents.is_empty() {
            return false;
        }
        let mut requested = self.asked();
        requested.retain(|_, asked| now < *asked + ASK_AGAIN);
        match requested.get(&seed) {
            Some(asked) => return now < *asked + LOOK_MAX,
            None if requested.len() >= ASKED_MAX => return false,
            None => {}
        }
        requested.insert(seed, now);
        drop(requested);
        for agent in &agents {
            self.peers.send(agent, AgentToAgent::TicketSeedWanted(seed));
        }
        true
    }

    fn send_seeds(&self, agent: &NodeName, seeds: Vec<TicketSeed>) {
        // An empty list is also sent: it ends the receiver's wait for seeds.
        self.peers.send(agent, AgentToAgent::TicketSeeds(ticket_seeds_to_wire(seeds)));
    }

    fn asked(&self) -> MutexGuard<'_, BTreeMap<TicketSeedId, Instant>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
