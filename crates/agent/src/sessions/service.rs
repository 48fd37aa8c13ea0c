//! The session service: what handshakes, other agents and operators ask of the sessions of this agent.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use tokio_util::sync::CancellationToken;
use watari_handshake::{Found, Miss, NewSession, Provided, SessionSource, Wanted};
use watari_session::{FoundSession, Session, Source, Verdict};
use watari_values::{NodeName, SessionKey, TicketSeedId};

use super::agents::LinkedAgents;
use super::clock::Clock;
use super::keys::TicketKeys;
use super::redis::SealedRedis;
use super::sharing::{Mode, Sharing};
use super::status::SessionStatus;
use super::stored::{PassedSession, StoredSessions};
use super::tickets::RotationError;
use super::wire::{ticket_seeds_from_wire, ticket_seeds_to_wire};
use crate::node::metrics::{Metrics, VERSIONS};
use crate::node::peers::Peers;

/// The sessions of this agent: ticket keys, stored sessions, and the search for what a client offers.
pub(crate) struct SessionService {
    sharing: Sharing,
    clock: Clock,
    issuer: NodeName,
    offered: Arc<watari_handshake::Sessions>,
    linked: Arc<LinkedAgents>,
    keys: TicketKeys,
    stored: Arc<StoredSessions>,
    redis: Option<SealedRedis>,
}

impl SessionService {
    /// `seeds_learned` counts the seeds of ticket keys that other agents send. With a predecessor of this process, the
    /// file of sessions is opened later ([`Self::begin`]).
    pub(crate) fn new(
        peers: Peers,
        sharing: Sharing,
        has_predecessor: bool,
        seeds_learned: Counter,
    ) -> io::Result<Self> {
        let clock = Clock::start();
        let issuer = peers.name().clone();
        let linked = Arc::new(LinkedAgents::new(peers.clone(), sharing.mode != Mode::Private));
        let keys = TicketKeys::new(peers.clone(), linked.clone(), sharing.clone(), clock, seeds_learned)?;
        let tickets = keys.ring();
        let redis = match &sharing.redis {
            Some(server) => {
                let settings = server.settings().map_err(io::Error::other)?;
                Some(SealedRedis::new(settings, Arc::clone(tickets), issuer.clone(), clock, sharing.single_use))
            }
            None => None,
        };
        let stored = Arc::new(StoredSessions::new(peers, &sharing, tickets, clock));
        if !has_predecessor {
            stored.database_file().open()?;
        }
        let offered = Arc::new(watari_handshake::Sessions {
            tickets: sharing.seals_tickets().then(|| Arc::clone(tickets) as _),
            kept: true,
            lifetime: sharing.lifetime,
            tickets_per_handshake: sharing.tickets_per_handshake,
            early_data: sharing.early_data,
        });
        Ok(Self { sharing, clock, issuer, offered, linked, keys, stored, redis })
    }

    /// The settings that handshakes use.
    pub(crate) fn offered(&self) -> &Arc<watari_handshake::Sessions> {
        &self.offered
    }

    pub(crate) fn status(&self, metrics: &Metrics) -> SessionStatus {
        let (seeds, newest_seed_age) = self.keys.ring().seeds();
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
    pub(crate) fn link_up(&self, agent: &NodeName) {
        if self.sharing.mode != Mode::Private {
            self.change_agents(|agents| agents.insert(agent.clone()));
        }
        self.keys.link_up(agent);
    }

    pub(crate) fn link_down(&self, agent: &NodeName) {
        self.change_agents(|agents| agents.remove(agent));
    }

    fn change_agents(&self, change: impl FnOnce(&mut BTreeSet<NodeName>) -> bool) {
        if let Some(agents) = self.linked.change(change) {
            self.stored.set_members(&agents);
        }
    }

    /// Handles another agent's message about stored sessions.
    pub(crate) fn on_session_message(&self, from: &NodeName, message: watari_session::Message) {
        let stored_keys = self.stored.may_be_stored(&message);
        if stored_keys.is_empty() {
            return self.stored.on_message(from, message);
        }
        let (stored, from) = (Arc::clone(&self.stored), from.clone());
        tokio::spawn(async move {
            stored.restore(&stored_keys).await;
            stored.on_message(&from, message);
        });
    }

    /// Handles seeds that another agent sent.
    pub(crate) fn on_seeds(&self, from: &NodeName, seeds: &[watari_wire::TicketSeed]) {
        self.keys.on_seeds(from, seeds);
    }

    /// Handles another agent's request for a seed.
    pub(crate) fn on_wanted(&self, from: &NodeName, seed: TicketSeedId) {
        self.keys.on_wanted(from, seed);
    }

    /// Makes new keys, which the node evicted at `at_unix_s` does not get.
    pub(crate) fn on_evicted(&self, at_unix_s: u64) {
        self.keys.on_evicted(at_unix_s);
    }

    /// Makes new keys, and sends their seed to all agents.
    pub(crate) fn rotate(&self) -> Result<(), RotationError> {
        self.keys.rotate()
    }

    /// The agent begins to serve. It has the keys of a predecessor, if there was one.
    pub(crate) fn begin(&self) -> io::Result<()> {
        self.stored.database_file().open_soon();
        self.keys.begin_to_serve().map_err(io::Error::other)
    }

    /// The seeds of the ticket keys, for a successor of this process.
    pub(crate) fn seeds(&self) -> Vec<watari_wire::TicketSeed> {
        ticket_seeds_to_wire(self.keys.ring().share())
    }

    pub(crate) fn take_over_seeds(&self, seeds: Vec<watari_wire::TicketSeed>) {
        self.keys.ring().merge(ticket_seeds_from_wire(seeds));
        self.linked.notify_learned();
    }

    /// The sessions in memory, for a successor of this process, which approves their uses from now on. Closes the file
    /// of sessions.
    pub(crate) async fn give_up(&self) -> Vec<PassedSession> {
        self.keys.give_up();
        self.stored.database_file().close().await;
        self.stored.give_up()
    }

    /// The successor has failed after [`Self::give_up`].
    pub(crate) fn keep(&self) {
        self.stored.keep();
        if let Err(error) = self.begin() {
            tracing::warn!(%error, "cannot make the first ticket key");
        }
    }

    pub(crate) fn take_over(&self, sessions: Vec<PassedSession>) {
        self.stored.take_over(sessions);
    }

    /// Waits for ticket keys for a limited time. Without keys no client gets a ticket.
    pub(crate) async fn ready(&self) {
        self.keys.ready().await;
    }

    /// Waits until keys and sessions are written to their files.
    pub(crate) async fn flush(&self) {
        self.keys.write().await;
        self.stored.flush().await;
    }

    /// Makes the first key if no agent has one, and new keys when they are due. Destroys expired keys.
    pub(crate) async fn keep_keys(&self, shutdown: &CancellationToken) {
        self.keys.keep(shutdown).await;
    }

    /// Repeats messages that other agents have not answered.
    pub(crate) async fn run_timer(&self, shutdown: &CancellationToken) {
        shutdown.run_until_cancelled(self.stored.run_timer()).await;
    }

    /// Stores the sessions of a handshake, before the client gets their tickets.
    pub(crate) async fn store(&self, made: Vec<NewSession>) {
        let expires = self.clock.unix_s() + self.sharing.lifetime.as_secs();
        let session = |secret| Session { secret, expires, issuer: self.issuer.clone() };
        let sessions: Vec<_> = made.into_iter().map(|new| (new.key, session(new.session))).collect();
        match &self.redis {
            Some(redis) => redis.put(&sessions).await,
            None => self.stored.put(sessions).await,
        }
    }

    /// Searches for the sessions or seeds that a handshake needs, for a limited time.
    pub(crate) async fn look_for(&self, wanted: &Wanted) -> Provided {
        if wanted.sessions.is_empty() {
            let miss = self.keys.look_for(&wanted.ticket_seeds).await;
            return Provided { miss, ..Provided::default() };
        }
        if let Some(redis) = &self.redis {
            let (found, miss) = redis.get(&wanted.sessions).await;
            return provided(found, miss, false);
        }
        let (found, miss) = self.get(&wanted.sessions).await;
        if self.sharing.single_use {
            self.spend_one(wanted, found, miss).await
        } else {
            let early_data = self.approves_early_data(wanted, &found).await;
            provided(found, miss, early_data)
        }
    }

    /// Repeats the search while the agent has just started and links are still missing: the session may be at an agent
    /// without a link yet.
    async fn get(&self, keys: &[SessionKey]) -> (Vec<FoundSession>, Option<Miss>) {
        let mut news = self.linked.news();
        loop {
            let (found, miss) = self.stored.get(keys).await;
            if miss.is_none() || !found.is_empty() || !self.linked.is_joining() {
                return (found, miss);
            }
            if !news.next(self.linked.join_deadline()).await {
                return (found, miss);
            }
        }
    }

    async fn approves_early_data(&self, wanted: &Wanted, found: &[FoundSession]) -> bool {
        match found.iter().find(|found| is_for_early_data(wanted, found)) {
            Some(first) => self.stored.spend(first).await == Verdict::Granted,
            None => false,
        }
    }

    /// Returns the first of the found sessions that may still be used. The same approval covers early data.
    async fn spend_one(&self, wanted: &Wanted, found: Vec<FoundSession>, miss: Option<Miss>) -> Provided {
        let mut miss = miss;
        for found in found {
            let early_data = is_for_early_data(wanted, &found);
            match self.stored.spend(&found).await {
                Verdict::Granted => return provided(vec![found], None, early_data),
                Verdict::Denied => miss = Some(Miss::Spent),
                Verdict::Unreachable => miss = Some(Miss::Unreachable),
            }
        }
        provided(Vec::new(), miss, false)
    }
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
