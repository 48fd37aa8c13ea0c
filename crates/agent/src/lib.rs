//! The agent: terminates TLS, serves HTTP, and hands live connections to other agents.
//!
//! ```text
//!  leg ── preface ──┬─ New ──▶ handshake ──┬──────────────────────────▶ serve ──▶ end
//!          ▲        │                      └─▶ source ──── aborted ───────▲
//!          │        │                             │ committed: destroyed  │
//!          │        └─ Commit ──▶ target ─────────┼───── activate ────────┘
//!          │                         ▲            │
//!          │   another agent's Ship ─┘            ├─▶ Ship to another agent
//!          └───── the leg, if it is kept ─────────┴─────────────────────── end
//! ```
//!
//! * `accept` accepts legs and reads their prefaces, several on a leg that is kept.
//! * `connection::driver` carries a connection from state to state: its table is the map of the rest.
//! * `handoff::source` gives a connection away and drives `watari_handoff::Source`. `handoff::target` holds shipped
//!   connections until the dispatcher decides, and drives `watari_handoff::Target`.
//! * `sessions` shares session state with the other agents, so that clients can resume at any of them.
//!
//! # Layout
//!
//! A folder imports only from folders below it in this list, and no two files import from each other:
//!
//! ```text
//!  lib, upgrade  composition: the agent, its timers, dispatch of the mesh's messages; passing all to a new process
//!  accept        legs, their prefaces, the keys that authenticate these, the threads that serve
//!  connection    one connection: driver, handshake, early data, HTTP, requests, tunnels
//!  handoff       source, target, announced ends, the registry of live connections, anchored streams
//!  leg           the leg below a connection, which a change of its dispatcher replaces
//!  sessions      settings, status, ticket keys, stored sessions, their search
//!  cache         purges of cached responses, requests to the agents that own them
//!  settings      what a reload can change: limits, TLS, content
//!  node          messages to peers, metrics, slots
//! ```
//!
//! Only this file has all parts. Each other part has the capabilities that it uses: `Peers` (send to the mesh),
//! `CurrentSettings`, `Metrics`, `Slots`, `Registry` (live connections), `SessionService`, `Endings`, `Departures`,
//! `Arrivals`, `Anchors`. A module returns what it has reached (`HandshakeOutcome`, `Served`, `Outcome`), and its
//! caller decides the next state.

mod accept;
mod cache;
mod connection;
mod handoff;
mod leg;
mod node;
mod sessions;
mod settings;
mod upgrade;

use std::io;
use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, Interval, interval, interval_at, sleep};
use tokio_util::sync::CancellationToken;
use watari_handoff::SourceEvent;
use watari_mesh::{Event, Mesh};
use watari_proxy::{Proxy, ResponseCache};
use watari_sys::{Threads, Unidentified};
use watari_values::{AbortReason, ConnectionStatus, NodeName, Role};
use watari_wire::{AgentToAgent, AgentToDispatcher, DispatcherToAgent, Message, ShipInResponse};

use crate::accept::accepting::Accepting;
use crate::accept::leg_keys::LegKeys;
use crate::accept::legs::Legs;
use crate::accept::serving_threads::ServingThreads;
use crate::cache::owners::LinkedOwners;
use crate::cache::purges::{PurgeExchange, REPEAT};
use crate::connection::driver::Connections;
use crate::connection::handshake::Handshakes;
use crate::connection::http::Http;
use crate::connection::preparations::{Continuation, Preparations};
use crate::connection::requests::Requests;
use crate::connection::serve::Serving;
use crate::connection::stalls::{LOOKS_PER_TIMEOUT, Transfers};
use crate::handoff::anchors::Anchors;
use crate::handoff::ending::Endings;
use crate::handoff::passing::ToSuccessor;
use crate::handoff::registry::Registry;
use crate::handoff::source::{Departures, DispatcherMessage};
use crate::handoff::target::{Arrivals, InResponse};
use crate::leg::{LegTable, LegsForPredecessor};
use crate::node::metrics::Metrics;
use crate::node::other_process::Addressed;
use crate::node::peers::{Links, Peers};
use crate::node::slots::Slots;
use crate::sessions::service::SessionService;
use crate::sessions::wire::session_message_from_wire;
use crate::settings::current::CurrentSettings;

pub use watari_session_stores::{RedisCounters, WriterCounters};

pub use crate::handoff::passing::{Passing, RestoreError, SOCKETS_MAX};
pub use crate::leg::FORWARDED_LEGS_MAX;
pub use crate::node::metrics::HandshakeCounts;
pub use crate::sessions::database::{DatabaseFile, DatabaseStatus};
pub use crate::sessions::redis::{RedisServer, RedisStatus};
pub use crate::sessions::sharing::{Mode, Sharing};
pub use crate::sessions::status::SessionStatus;
pub use crate::sessions::tickets::RotationError;
pub use crate::sessions::wire::{session_message_to_wire, ticket_seeds_to_wire};
pub use crate::settings::current::Settings;
pub use crate::settings::limits::Limits;
pub use crate::settings::site::{NoProxy, Site};
pub use crate::settings::tls::{Listener, Tls};
pub use crate::upgrade::{CannotPass, PassingOn, Restored};

pub struct Config {
    /// The name of this node.
    pub name: NodeName,
    /// The initial settings.
    pub settings: Settings,
    /// How sessions are shared.
    pub sharing: Sharing,
    /// Whether this process takes over from another one of this node.
    pub has_predecessor: bool,
}

/// The longest interval at which an agent that is about to end repeats `Draining` and checks whether it is empty.
const DRAIN_LOOK: Duration = Duration::from_millis(50);

/// Connections of other agents for cached responses that may wait to be served.
const AGENT_CONNECTIONS_MAX: usize = 64;

/// A running agent. Clones share it.
#[derive(Clone)]
pub struct Agent {
    shared: Arc<AgentShared>,
    threads: Threads,
    accepting: Arc<Accepting>,
}

/// The parts of the agent, as messages, timers and operators reach them. Only this file has it.
struct AgentShared {
    settings: Arc<CurrentSettings>,
    metrics: Arc<Metrics>,
    keys: Arc<LegKeys>,
    sessions: Arc<SessionService>,
    slots: Arc<Slots>,
    request_slots: Arc<Slots>,
    idle_leg_slots: Arc<Slots>,
    transfers: Arc<Transfers>,
    unidentified: Arc<Unidentified>,
    registry: Arc<Registry>,
    /// The legs of the connections.
    leg_table: Arc<LegTable>,
    legs_for_predecessor: Arc<LegsForPredecessor>,
    departures: Arc<Departures>,
    endings: Arc<Endings>,
    anchors: Arc<Anchors>,
    arrivals: Arc<Arrivals<Box<Continuation>>>,
    requests: Arc<Requests>,
    preparations: Arc<Preparations>,
    purges: Arc<PurgeExchange>,
    peers: Peers,
    reloaded: Notify,
    to_successor: Arc<ToSuccessor>,
    /// Messages of the predecessor of this process to nodes without a link yet.
    unsent: Mutex<Vec<Addressed>>,
}

impl Agent {
    /// Starts all but accepting legs on `legs` ([`Agent::accept`]), until `shutdown`. `threads` threads serve the
    /// connections. The tokio runtime of the caller, which has one thread, is the first of them. Everything else runs
    /// there, too.
    pub fn start(
        config: Config,
        (threads, legs): (NonZeroUsize, TcpListener),
        mesh: Mesh,
        registry: &mut prometheus_client::registry::Registry,
        shutdown: &CancellationToken,
    ) -> io::Result<Self> {
        config.settings.site.start();
        let metrics = Metrics::register(registry);
        let shared = Arc::new(AgentShared::new(config, mesh, metrics)?);
        // The caller's thread is one of them.
        let threads = Threads::start("serve", threads.get() - 1, shutdown)?;
        let accepting = Accepting::new(shared.legs(ServingThreads::new(&threads)), legs, shutdown);
        let (sessions, until) = (shared.sessions.clone(), shutdown.clone());
        tokio::spawn(async move { sessions.keep_keys(&until).await });
        let (sessions, until) = (shared.sessions.clone(), shutdown.clone());
        tokio::spawn(async move { sessions.run_timer(&until).await });
        tokio::spawn(keep_in_order(shared.clone(), shutdown.clone()));
        Ok(Self { shared, threads, accepting: Arc::new(accepting) })
    }

    /// Starts accepting legs.
    pub async fn accept(&self) -> io::Result<()> {
        self.shared.sessions.begin()?;
        self.accepting.begin().await
    }

    /// Stops accepting legs, until [`Agent::accept`]. Dispatchers wait meanwhile, because the listener stays.
    pub async fn stop_accepting(&self) {
        self.accepting.end().await;
    }

    /// Another handle of the listener for legs.
    pub fn listener(&self) -> io::Result<TcpListener> {
        self.accepting.listener()
    }

    /// Waits until a thread has ended without a shutdown. Its clients are cut off. Otherwise this never returns.
    pub async fn thread_lost(&self) {
        self.threads.lost().await;
    }

    /// Handles an event of the mesh. Ignores messages that are not for an agent.
    pub fn handle(&self, event: &Event) {
        match event {
            Event::Up { peer, roles, .. } => {
                self.shared.send_unsent(peer);
                if roles.contains(&Role::Dispatcher) {
                    self.shared.keys.link_up(peer);
                    self.shared.registry.announce_all(peer);
                    self.shared.arrivals.on_link_up(peer);
                }
                if roles.contains(&Role::Agent) {
                    self.shared.sessions.link_up(peer);
                    self.shared.purges.link_up(peer);
                }
                self.shared.purges.note_change();
            }
            Event::Down { peer, .. } => {
                self.shared.keys.link_down(peer);
                self.shared.sessions.link_down(peer);
                self.shared.purges.link_down(peer);
            }
            Event::Evicted { at, keys_by, .. } => {
                if keys_by.as_ref() == Some(self.shared.peers.name()) {
                    self.shared.sessions.on_evicted(*at);
                }
            }
            Event::Message { peer, message } => self.shared.on_message(peer, message),
        }
    }

    /// Asks dispatchers to drain this agent, until no connection is left here or `grace` is over. This includes
    /// connections that are in their handshake or on their way here, because their clients would be cut off. Returns
    /// how many are left.
    pub async fn drain(&self, grace: Duration) -> usize {
        let shared = &self.shared;
        let look = shared.settings.limits().retry_interval.min(DRAIN_LOOK);
        let emptied = async {
            while {
                shared.keys.send_all(&AgentToDispatcher::Draining);
                // Waits first: until dispatchers have the message, they send new clients here.
                sleep(look).await;
                self.occupied() > 0
            } {}
        };
        // Counts the rest whether or not the time ran out.
        let _ = tokio::time::timeout(grace, emptied).await;
        let left = self.occupied();
        self.end_anchors();
        left
    }

    /// Ends the streams whose anchor is this agent. Their owners reset their clients.
    pub fn end_anchors(&self) {
        self.shared.anchors.give_up();
    }

    /// The number of connections here: those served, those in their handshake, those held for a decision, and those to
    /// origins whose clients' connections have moved.
    pub fn occupied(&self) -> usize {
        self.shared.slots.taken() + self.shared.anchors.len()
    }

    /// Replaces the settings. They apply to handshakes that begin from now on. Requires a tokio runtime.
    pub fn reload(&self, settings: Settings) {
        let shared = &self.shared;
        settings.site.start();
        let (limits, shakes_hands) = (settings.limits, settings.tls.is_some());
        let before = shared.settings.set(settings);
        shared.slots.set_max(limits.connections_max);
        shared.unidentified.set_limits(limits.unidentified());
        shared.request_slots.set_max(limits.requests_max);
        shared.idle_leg_slots.set_max(limits.idle_legs_max);
        shared.reloaded.notify_one();
        if shakes_hands != before.tls.is_some() {
            // A leg key also says whether the agent does handshakes.
            shared.keys.rotate();
        }
    }

    /// The state of session resumption.
    pub fn sessions(&self) -> SessionStatus {
        self.shared.sessions.status(&self.shared.metrics)
    }

    /// Calls `order` with the proxy. Fails if the agent serves files.
    pub fn with_proxy<T>(&self, order: impl FnOnce(&Proxy) -> T) -> Result<T, NoProxy> {
        match &*self.shared.settings.get().site {
            Site::Proxy(proxy) => Ok(order(proxy)),
            Site::Files(_) => Err(NoProxy),
        }
    }

    /// Sends the purges that this agent has loaded to all others, which wait for them.
    pub fn announce_purges(&self) {
        self.shared.purges.announce();
    }

    /// Waits, for a limited time, until this agent knows the purges of all others.
    pub async fn purges_exchanged(&self) {
        self.shared.purges.exchanged().await;
    }

    /// Makes `cache` a part of the cluster's: its purges go to all other agents, it asks them for responses that they own,
    /// and they ask it, until `shutdown`.
    pub fn share_cache(&self, cache: &ResponseCache, mesh: &Mesh, shutdown: CancellationToken) {
        let shared = &self.shared;
        let exchange = shared.purges.clone();
        cache.announce_by(move |ordered| exchange.send(ordered, None));
        // Requests may have invalidated responses before.
        shared.purges.announce();
        let (name, exchange) = (shared.peers.name().clone(), shared.purges.clone());
        cache.share_with(LinkedOwners { name, mesh: mesh.clone(), exchange });
        let connections = mesh.http_connections(AGENT_CONNECTIONS_MAX);
        tokio::spawn(cache::serving::serve(connections, shared.settings.clone(), shutdown));
    }

    /// Makes new ticket keys, here and at all other agents. Tickets under older keys stay valid.
    pub fn rotate_ticket_keys(&self) -> Result<(), RotationError> {
        self.shared.sessions.rotate()
    }

    /// Waits until sessions and ticket keys are written to their files, if files are configured.
    pub async fn flush(&self) {
        self.shared.sessions.flush().await;
    }

    /// The number of connections of `dispatcher` that are served here.
    pub fn connections_of(&self, dispatcher: &NodeName) -> usize {
        self.shared.registry.of(dispatcher)
    }

    /// The connections served here.
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        self.shared.registry.statuses()
    }
}

impl AgentShared {
    fn new(config: Config, links: impl Links + 'static, metrics: Metrics) -> io::Result<Self> {
        let limits = config.settings.limits;
        let peers = Peers::new(config.name, links);
        let legs_for_predecessor = Arc::<LegsForPredecessor>::default();
        if config.has_predecessor {
            peers.other_processes().begin_predecessor();
            legs_for_predecessor.begin();
        }
        let (settings, metrics) = (Arc::new(CurrentSettings::new(config.settings)), Arc::new(metrics));
        let learned = metrics.ticket_seeds_learned.clone();
        let sessions = Arc::new(SessionService::new(peers.clone(), config.sharing, config.has_predecessor, learned)?);
        let slots = Slots::new(limits.connections_max);
        let registry = Arc::new(Registry::new(peers.clone()));
        let departures = Departures::new(peers.clone(), settings.clone(), metrics.clone(), registry.clone());
        let leg_table = Arc::<LegTable>::default();
        let owned = (registry.clone(), leg_table.clone());
        let arrivals = Arrivals::new(peers.clone(), settings.clone(), metrics.clone(), owned, slots.clone());
        let (request_slots, transfers) = (Slots::new(limits.requests_max), Arc::<Transfers>::default());
        let requests =
            Arc::new(Requests::new(settings.clone(), metrics.clone(), request_slots.clone(), transfers.clone()));
        let anchors = Arc::new(Anchors::new(peers.clone()));
        let preparations =
            Preparations::new(peers.clone(), settings.clone(), metrics.clone(), requests.clone(), anchors.clone());
        Ok(Self {
            keys: Arc::new(LegKeys::new(peers.clone(), settings.clone())),
            sessions,
            slots,
            request_slots,
            idle_leg_slots: Slots::new(limits.idle_legs_max),
            transfers,
            unidentified: Unidentified::new(limits.unidentified()),
            registry,
            leg_table,
            legs_for_predecessor,
            departures: Arc::new(departures),
            endings: Arc::new(Endings::new(peers.clone(), settings.clone())),
            anchors,
            arrivals: Arc::new(arrivals),
            requests,
            preparations: Arc::new(preparations),
            purges: Arc::new(PurgeExchange::new(peers.clone(), settings.clone())),
            settings,
            metrics,
            peers,
            reloaded: Notify::new(),
            to_successor: Arc::default(),
            unsent: Mutex::default(),
        })
    }

    fn unsent(&self) -> MutexGuard<'_, Vec<Addressed>> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part that accepts legs and drives connections.
    fn legs(&self, threads: ServingThreads) -> Legs {
        let (peers, settings, metrics) = (self.peers.clone(), self.settings.clone(), self.metrics.clone());
        let http = Http { peers: peers.clone(), settings: settings.clone(), requests: self.requests.clone() };
        let handshakes = Handshakes::new(peers.clone(), settings.clone(), metrics.clone(), self.sessions.clone());
        let connections = Connections {
            peers: peers.clone(),
            handshakes: Arc::new(handshakes),
            serving: Serving::new(http, settings.clone(), metrics.clone()),
            registry: self.registry.clone(),
            leg_table: self.leg_table.clone(),
            departures: self.departures.clone(),
            endings: self.endings.clone(),
            anchors: self.anchors.clone(),
            to_successor: self.to_successor.clone(),
        };
        Legs {
            peers,
            settings,
            metrics,
            keys: self.keys.clone(),
            slots: self.slots.clone(),
            idle: self.idle_leg_slots.clone(),
            unidentified: self.unidentified.clone(),
            arrivals: self.arrivals.clone(),
            connections,
            for_predecessor: self.legs_for_predecessor.clone(),
            threads,
            without_preface: Arc::default(),
        }
    }

    fn on_message(&self, from: &NodeName, message: &Message) {
        match message {
            Message::DispatcherToAgent(message) => self.on_dispatcher_message(from, message),
            Message::AgentToAgent(message) => self.on_agent_message(from, message),
            // For the dispatcher of this node.
            Message::AgentToDispatcher(_) | Message::DispatcherToDispatcher(_) | Message::Takeover(_) => {}
        }
    }

    fn on_dispatcher_message(&self, from: &NodeName, message: &DispatcherToAgent) {
        self.peers.other_processes().to_predecessor(from, &Message::DispatcherToAgent(message.clone()));
        match message {
            DispatcherToAgent::Freeze(freeze) => {
                let event = SourceEvent::Freeze { epoch: freeze.epoch, rx_offset: freeze.rx_offset };
                self.departures.send(from, freeze.connection, event);
            }
            DispatcherToAgent::Committed(decided) => {
                self.departures.send(from, decided.connection, SourceEvent::Committed(decided.epoch));
            }
            DispatcherToAgent::LegKept(kept) if self.endings.on_leg_kept(from, kept) => {}
            DispatcherToAgent::LegKept(kept) => {
                let message =
                    DispatcherMessage { event: SourceEvent::Committed(kept.epoch), leg_kept: Some(kept.rx_offset) };
                self.departures.send(from, kept.connection, message);
            }
            DispatcherToAgent::Aborted(aborted) => {
                let event = SourceEvent::Aborted(aborted.epoch, aborted.reason);
                self.departures.send(from, aborted.connection, event);
                self.arrivals.on_aborted(from, aborted);
            }
            DispatcherToAgent::Gone(connection) => {
                // A dispatcher that has given a connection up no longer has it, and the connection goes on.
                if !self.leg_table.is_detached(*connection) {
                    self.departures.send(from, *connection, SourceEvent::Gone);
                }
                self.arrivals.on_gone(from, *connection);
            }
            DispatcherToAgent::Leave(leave) => self.registry.leave(from, leave),
            DispatcherToAgent::DetachLeg(detach) => {
                if let Some(detached) = self.leg_table.on_detach(from, detach, Instant::now()) {
                    self.peers.send(from, AgentToDispatcher::LegDetached(detached));
                }
            }
            DispatcherToAgent::AttachLeg(change) => {
                if self.leg_table.on_attach(from, *change) {
                    self.peers.send(from, AgentToDispatcher::LegAttached(*change));
                }
            }
        }
    }

    fn on_ship_in_response(&self, from: &NodeName, shipped: &ShipInResponse) {
        match self.preparations.take(from, shipped) {
            Ok(response) => {
                let within = InResponse { digest: shipped.digest(), len: response.len(), response: Box::new(response) };
                self.arrivals.on_ship(&shipped.ship, Some(within));
            }
            Err(cause) => {
                tracing::warn!(connection = %shipped.ship.connection, source = %from, %cause, "shipped response refused");
                self.arrivals.refuse(&shipped.ship, AbortReason::BadState);
            }
        }
    }

    fn on_agent_message(&self, from: &NodeName, message: &AgentToAgent) {
        match message {
            AgentToAgent::Ship(ship) => self.arrivals.on_ship(ship, None),
            AgentToAgent::Prepare(prepare) => self.preparations.on_prepare(from, prepare),
            AgentToAgent::Prepared(prepared) => self.registry.on_prepared(from, prepared.clone()),
            AgentToAgent::ShipInResponse(shipped) => self.on_ship_in_response(from, shipped),
            AgentToAgent::Rest(rest) => self.arrivals.on_rest(rest),
            AgentToAgent::Anchored(anchored) => {
                if self.peers.other_processes().has_predecessor() && !self.anchors.has_end_for(anchored) {
                    // It answers if the end is not there either.
                    let message = Message::AgentToAgent(message.clone());
                    self.peers.other_processes().to_predecessor(from, &message);
                } else {
                    self.anchors.on_message(from, anchored);
                }
            }
            AgentToAgent::Purges(purges) => self.purges.on_purges(from, purges),
            AgentToAgent::TicketSeeds(seeds) => self.sessions.on_seeds(from, seeds),
            AgentToAgent::TicketSeedWanted(seed) => self.sessions.on_wanted(from, *seed),
            AgentToAgent::Session(message) => {
                self.sessions.on_session_message(from, session_message_from_wire(message.clone()));
            }
        }
    }
}

/// Drops connections that were held too long, fails legs that were detached too long, replaces leg keys, and checks transfers for stalls.
async fn keep_in_order(shared: Arc<AgentShared>, shutdown: CancellationToken) {
    let limits = shared.settings.limits();
    let mut holds = interval(limits.retry_interval);
    let mut keys = interval(limits.leg_key_lifetime);
    let mut anchors = interval(watari_anchor::TICK);
    let mut purges = interval(REPEAT);
    let mut transfers = interval(limits.transfer_timeout / LOOKS_PER_TIMEOUT);
    loop {
        tokio::select! {
            _ = holds.tick() => {
                shared.arrivals.expire();
                shared.preparations.expire();
                shared.leg_table.expire(Instant::now());
            }
            _ = keys.tick() => shared.keys.rotate(),
            _ = purges.tick() => shared.purges.repeat(),
            _ = anchors.tick() => {
                shared.anchors.tick();
                shared.metrics.set_anchored(shared.anchors.len());
            }
            _ = transfers.tick() => {
                shared.metrics.transfers_stalled.inc_by(shared.transfers.look() as u64);
            }
            () = shared.reloaded.notified() => {
                let limits = shared.settings.limits();
                retime(&mut holds, limits.retry_interval);
                retime(&mut keys, limits.leg_key_lifetime);
                retime(&mut transfers, limits.transfer_timeout / LOOKS_PER_TIMEOUT);
            }
            () = shutdown.cancelled() => return,
        }
    }
}

/// Changes the period of an interval. An unchanged one keeps its phase, so that frequent reloads do not delay it.
fn retime(ticks: &mut Interval, period: Duration) {
    if ticks.period() != period {
        *ticks = interval_at(Instant::now() + period, period);
    }
}

#[cfg(test)]
mod tests;
