//! The agent: terminates TLS, serves HTTP, and hands live connections to other agents.
//!
//! ```text
//!  leg ── preface ──┬─ New ──▶ handshake ──┬──────────────────────────▶ serve ──▶ end
//!          ▲        │                      └─▶ departure ── aborted ──────▲
//!          │        │                             │ committed: destroyed  │
//!          │        └─ Commit ──▶ arrivals ───────┼───── activate ────────┘
//!          │                         ▲            │
//!          │   another agent's Ship ─┘            ├─▶ Ship to another agent
//!          └───── the leg, if it is kept ─────────┴─────────────────────── end
//! ```
//!
//! * `legs` accepts legs and reads their prefaces, several on a leg that is kept.
//! * `sessions` shares session state with the other agents, so that clients can resume at any of them.
//! * `handshake` drives the handshake of a new connection. `early_data` drives the rest of it below `serve_http` if the
//!   client sends early data.
//! * `strict` and `requests` refuse malformed requests.
//! * `departure` gives a connection away and drives `watari_handoff::Source`.
//! * `arrivals` holds shipped connections until the dispatcher decides, and drives `watari_handoff::Target`.
//! * `serve_http` runs HTTP over the connection, and `tunnel` relays after an upgrade. `serve` ends the connection so that
//!   the client can detect an incomplete response, or lets it move.
//! * `ending` announces the end of a connection, and receives whether its leg is kept.

mod activity;
mod arrivals;
mod borrowed_stream;
mod client_end;
mod departure;
mod early_data;
mod ending;
mod handshake;
mod keys;
mod legs;
mod lingering;
mod live;
mod metrics;
mod places;
mod requests;
mod serve;
mod serve_http;
mod sessions;
mod settings;
mod site;
mod stalls;
mod strict;
mod tls;
mod tunnel;

use std::io;
use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, interval, interval_at, sleep};
use tokio_util::sync::CancellationToken;
use watari_handoff::SourceEvent;
use watari_mesh::{Event, Mesh, SendError};
use watari_proxy::Proxy;
use watari_sys::{Unidentified, UnidentifiedLimits};
use watari_values::setting::{As, Span, Within};
use watari_values::{ConnectionStatus, NodeName, Role};
use watari_wire::{AgentToAgent, AgentToDispatcher, DispatcherToAgent, Message};

use crate::arrivals::Arrivals;
use crate::departure::{Departures, DispatcherMessage};
use crate::ending::Endings;
use crate::keys::LegKeys;
use crate::live::LiveTable;
use crate::metrics::Metrics;
use crate::places::Places;
pub use crate::sessions::{
    DatabaseFile, DatabaseStatus, HandshakeCounts, Mode, RedisServer, RedisStatus, RotationError, SessionStatus,
    Sharing, session_message_to_wire, ticket_seeds_to_wire,
};
use crate::sessions::{Sessions, session_message_from_wire};
use crate::settings::Current;
pub use crate::settings::Settings;
pub use crate::site::{NoProxy, Site};
use crate::stalls::{LOOKS_PER_TIMEOUT, Transfers};
pub use crate::tls::{Listener, Tls};
pub use watari_session_stores::{RedisCounters, WriterCounters};

pub struct Config {
    /// The name of this node.
    pub name: NodeName,
    /// The initial settings.
    pub settings: Settings,
    /// How sessions are shared.
    pub sharing: Sharing,
}

/// The limits of an agent. Every wait has a time limit.
// `[agent.limits]` of a configuration file: the documentation of a field is that of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Connections at a time, including those in their handshake or held for a decision. The agent resets further ones,
    /// and refuses further moves to it. The same number of legs from known addresses may wait for their preface. Known
    /// addresses are those of members, and those from which an authenticated preface has come within the last hour.
    #[serde(with = "As::<NonZeroUsize>")]
    pub connections_max: usize,
    /// Legs from unknown addresses that may wait for their preface. For a newer leg, the agent resets the oldest leg of
    /// the address with the most legs.
    #[serde(with = "As::<Within<1, 65_536>>")]
    pub unidentified_max: usize,
    /// Legs from one unknown address (IPv6: a network of 64 bits) that may wait for their preface. For a newer leg, the
    /// agent resets the oldest.
    #[serde(with = "As::<Within<1, 65_536>>")]
    pub unidentified_per_address_max: usize,
    /// Requests in progress at a time, over all connections. The agent answers further ones with 503. A response is in
    /// progress until the client has taken it: each may hold an open file and some 200 KiB.
    #[serde(with = "As::<NonZeroUsize>")]
    pub requests_max: usize,
    /// The longest head of a request in bytes. For HTTP/2 it limits the field section, with 32 bytes of overhead for
    /// each field (RFC 9113, section 6.5.2). The agent answers longer ones with 431.
    #[serde(with = "As::<Within<8_192, 1_048_576>>")]
    pub head_bytes_max: usize,
    /// The most fields of a request. The agent answers requests with more with 431.
    #[serde(with = "As::<Within<1, 1_000>>")]
    pub head_fields_max: usize,
    /// The longest path of a request with its query, in bytes. The agent answers longer ones with 414.
    #[serde(with = "As::<NonZeroUsize>")]
    pub target_bytes_max: usize,
    /// Connections from other agents that are held for a decision at a time. The agent refuses further ones.
    #[serde(with = "As::<NonZeroUsize>")]
    pub held_max: usize,
    /// Idle legs that are kept for other connections. The agent closes further ones.
    pub idle_legs_max: usize,
    /// The time from the preface to the end of the handshake.
    #[serde(with = "As::<Span>")]
    pub handshake_timeout: Duration,
    /// The time without a request on a connection that has none in progress. Also the time for a request's head to be
    /// complete.
    #[serde(with = "As::<Span>")]
    pub keep_alive_timeout: Duration,
    /// The time for the client to take the next piece of a response (at most 64 KiB), or to send the next piece of a
    /// request. After it, the agent cuts the connection. If the connection has other HTTP/2 requests, it cuts it when
    /// these are over.
    #[serde(with = "As::<Span>")]
    pub transfer_timeout: Duration,
    /// The time without a byte in either direction on a connection or HTTP/2 stream that is a tunnel to an origin, as
    /// after an upgrade (WebSocket).
    #[serde(with = "As::<Span>")]
    pub tunnel_timeout: Duration,
    /// The time for the client to take the last bytes, and to end its own stream.
    #[serde(with = "As::<Span>")]
    pub end_timeout: Duration,

    // The rest is not configurable.
    /// Bytes of client data held with connections that are held for a decision.
    #[serde(skip)]
    pub held_bytes_max: usize,
    /// The time from accepting a leg to its preface. It has to be longer than a dispatcher's `move_timeout`, because a
    /// move begins with connecting a leg.
    #[serde(skip)]
    pub preface_timeout: Duration,
    /// How long an idle leg waits for another connection. It has to be much longer than a dispatcher keeps the leg.
    #[serde(skip)]
    pub idle_leg_timeout: Duration,
    /// How long a connection given away waits for the decision before it is destroyed. It has to be longer than a
    /// dispatcher's `move_timeout`.
    #[serde(skip)]
    pub fence_timeout: Duration,
    /// How long a held connection waits for the decision before it is dropped. It has to be longer than
    /// `fence_timeout`: the target may get the connection for as long as the source may get it back.
    #[serde(skip)]
    pub hold_timeout: Duration,
    /// The interval at which the agent repeats a proposal, or the announcement of a stream's end.
    #[serde(skip)]
    pub retry_interval: Duration,
    /// The age at which a leg key is replaced.
    #[serde(skip)]
    pub leg_key_lifetime: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 8_000,
            unidentified_max: 1_024,
            unidentified_per_address_max: 64,
            requests_max: 2_048,
            head_bytes_max: 64 << 10,
            head_fields_max: 100,
            target_bytes_max: 16 << 10,
            held_max: 1_024,
            idle_legs_max: 1_024,
            handshake_timeout: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_mins(1),
            transfer_timeout: Duration::from_mins(2),
            tunnel_timeout: Duration::from_hours(1),
            end_timeout: Duration::from_secs(10),
            held_bytes_max: 64 << 20,
            preface_timeout: Duration::from_secs(10),
            idle_leg_timeout: Duration::from_mins(1),
            fence_timeout: Duration::from_secs(15),
            hold_timeout: Duration::from_secs(30),
            retry_interval: Duration::from_millis(500),
            leg_key_lifetime: Duration::from_mins(1),
        }
    }
}

impl Limits {
    fn unidentified(&self) -> UnidentifiedLimits {
        UnidentifiedLimits {
            // A move connects a leg before it has a preface to send, so dispatchers may need one leg for each
            // connection.
            known_max: self.connections_max,
            max: self.unidentified_max,
            per_address_max: self.unidentified_per_address_max,
        }
    }
}

/// The longest interval at which an agent that is about to end repeats `Draining` and checks whether it is empty.
const DRAIN_LOOK: Duration = Duration::from_millis(50);

/// A running agent. Clones share it.
#[derive(Clone)]
pub struct Agent {
    shared: Arc<AgentShared>,
}

struct AgentShared {
    name: NodeName,
    settings: Current,
    mesh: Mesh,
    metrics: Metrics,
    keys: LegKeys,
    sessions: Sessions,
    /// A slot for each connection.
    places: Arc<Places>,
    /// A slot for each request in progress.
    requests: Arc<Places>,
    /// Bodies in transfer.
    transfers: Arc<Transfers>,
    /// Legs that wait for their preface.
    unidentified: Arc<Unidentified>,
    /// A slot for each idle leg.
    idle_legs: Arc<Places>,
    live: LiveTable,
    departures: Departures,
    endings: Endings,
    arrivals: Arrivals,
    reloaded: Notify,
}

impl Agent {
    /// Starts accepting legs on `legs` until `shutdown`. Requires a tokio runtime.
    pub fn start(
        config: Config,
        legs: TcpListener,
        mesh: Mesh,
        registry: &mut Registry,
        shutdown: &CancellationToken,
    ) -> io::Result<Self> {
        let limits = config.settings.limits;
        config.settings.site.start();
        let shared = Arc::new(AgentShared {
            keys: LegKeys::new(config.name.clone()),
            sessions: Sessions::new(config.name.clone(), config.sharing)?,
            name: config.name,
            settings: Current::new(config.settings),
            arrivals: Arrivals::default(),
            places: Places::new(limits.connections_max),
            requests: Places::new(limits.requests_max),
            transfers: Arc::default(),
            unidentified: Unidentified::new(limits.unidentified()),
            idle_legs: Places::new(limits.idle_legs_max),
            mesh,
            metrics: Metrics::register(registry),
            live: LiveTable::default(),
            departures: Departures::default(),
            endings: Endings::default(),
            reloaded: Notify::new(),
        });
        legs::start(&shared, legs, shutdown)?;
        tokio::spawn(sessions::keep_keys(shared.clone(), shutdown.clone()));
        tokio::spawn(sessions::run_timer(shared.clone(), shutdown.clone()));
        tokio::spawn(keep_in_order(shared.clone(), shutdown.clone()));
        Ok(Self { shared })
    }

    /// Handles an event of the mesh. Ignores messages that are not for an agent.
    pub fn handle(&self, event: &Event) {
        match event {
            Event::Up { peer, roles, .. } => {
                if roles.contains(&Role::Dispatcher) {
                    self.shared.keys.link_up(&self.shared, peer);
                    self.shared.live.announce_all(&self.shared, peer);
                    self.shared.arrivals.on_link_up(&self.shared, peer);
                }
                if roles.contains(&Role::Agent) {
                    self.shared.sessions.link_up(&self.shared, peer);
                }
            }
            Event::Down { peer, .. } => {
                self.shared.keys.link_down(peer);
                self.shared.sessions.link_down(&self.shared, peer);
            }
            Event::Evicted { at, keys_by, .. } => {
                if keys_by.as_ref() == Some(&self.shared.name) {
                    self.shared.sessions.on_evicted(&self.shared, *at);
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
        let look = shared.limits().retry_interval.min(DRAIN_LOOK);
        let emptied = async {
            while {
                shared.keys.send_all(shared, &AgentToDispatcher::Draining);
                // Waits first: until dispatchers have the message, they send new clients here.
                sleep(look).await;
                self.occupied() > 0
            } {}
        };
        // Counts the rest whether or not the time ran out.
        let _ = tokio::time::timeout(grace, emptied).await;
        self.occupied()
    }

    /// The number of connections here: those served, those in their handshake, and those held for a decision.
    pub fn occupied(&self) -> usize {
        self.shared.places.taken()
    }

    /// Replaces the settings. They apply to handshakes that begin from now on. Requires a tokio runtime.
    pub fn reload(&self, settings: Settings) {
        let shared = &self.shared;
        settings.site.start();
        let (limits, shakes_hands) = (settings.limits, settings.tls.is_some());
        let before = shared.settings.set(settings);
        shared.places.set_max(limits.connections_max);
        shared.unidentified.set_limits(limits.unidentified());
        shared.requests.set_max(limits.requests_max);
        shared.idle_legs.set_max(limits.idle_legs_max);
        shared.reloaded.notify_one();
        if shakes_hands != before.tls.is_some() {
            // A leg key also says whether the agent does handshakes.
            shared.keys.rotate(shared);
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

    /// Makes new ticket keys, here and at all other agents. Tickets under older keys stay valid.
    pub fn rotate_ticket_keys(&self) -> Result<(), RotationError> {
        self.shared.sessions.rotate(&self.shared)
    }

    /// Waits until sessions and ticket keys are written to their files, if files are configured.
    pub async fn flush(&self) {
        self.shared.sessions.flush().await;
    }

    /// The number of connections of `dispatcher` that are served here.
    pub fn connections_of(&self, dispatcher: &NodeName) -> usize {
        self.shared.live.of(dispatcher)
    }

    /// The connections served here.
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        self.shared.live.statuses(&self.shared.name)
    }
}

impl AgentShared {
    fn limits(&self) -> Limits {
        self.settings.get().limits
    }

    fn on_message(self: &Arc<Self>, from: &NodeName, message: &Message) {
        match message {
            Message::DispatcherToAgent(message) => self.on_dispatcher_message(from, message),
            Message::AgentToAgent(message) => self.on_agent_message(from, message),
            // For the dispatcher of this node.
            Message::AgentToDispatcher(_) => {}
        }
    }

    fn on_dispatcher_message(self: &Arc<Self>, from: &NodeName, message: &DispatcherToAgent) {
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
                self.arrivals.on_aborted(self, from, aborted);
            }
            DispatcherToAgent::Gone(connection) => {
                self.departures.send(from, *connection, SourceEvent::Gone);
                self.arrivals.on_gone(self, from, *connection);
            }
            DispatcherToAgent::Leave(leave) => self.live.leave(from, leave),
        }
    }

    fn on_agent_message(self: &Arc<Self>, from: &NodeName, message: &AgentToAgent) {
        match message {
            AgentToAgent::Ship(ship) => self.arrivals.on_ship(self, ship),
            AgentToAgent::Rest(rest) => self.arrivals.on_rest(self, rest),
            AgentToAgent::TicketSeeds(seeds) => self.sessions.on_seeds(self, from, seeds),
            AgentToAgent::TicketSeedWanted(seed) => self.sessions.on_wanted(self, from, *seed),
            AgentToAgent::Session(message) => {
                self.sessions.on_session_message(self, from, session_message_from_wire(message.clone()));
            }
        }
    }

    /// Sends a message. Returns `false` if that is not possible now.
    fn send(&self, to: &NodeName, message: impl Into<Message>) -> bool {
        note_unsent(to, self.mesh.send(to, &message.into()))
    }

    /// Sends a message that no peer waits for, without hurry.
    fn send_soon(&self, to: &NodeName, message: impl Into<Message>) {
        note_unsent(to, self.mesh.send_soon(to, &message.into()));
    }
}

fn note_unsent(to: &NodeName, sent: Result<(), SendError>) -> bool {
    if let Err(error) = &sent {
        tracing::debug!(peer = %to, %error, "message not sent");
    }
    sent.is_ok()
}

/// Drops connections that were held too long, replaces leg keys, and checks transfers for stalls.
async fn keep_in_order(shared: Arc<AgentShared>, shutdown: CancellationToken) {
    let limits = shared.limits();
    let mut holds = interval(limits.retry_interval);
    let mut keys = interval(limits.leg_key_lifetime);
    let mut transfers = interval(limits.transfer_timeout / LOOKS_PER_TIMEOUT);
    loop {
        tokio::select! {
            _ = holds.tick() => shared.arrivals.expire(&shared),
            _ = keys.tick() => shared.keys.rotate(&shared),
            _ = transfers.tick() => {
                shared.metrics.transfers_stalled.inc_by(shared.transfers.look() as u64);
            }
            () = shared.reloaded.notified() => {
                let limits = shared.limits();
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
