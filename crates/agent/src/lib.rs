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
//! * `legs` accepts legs and reads their prefaces, again and again where a leg is kept.
//! * `sessions` shares what it takes to resume sessions with the other agents.
//! * `handshake` drives the handshake of a new connection; `early` the rest of it where the client sends early data, below
//!   `speak`.
//! * `departure` gives a connection away, driving `watari_handoff::Source`.
//! * `arrivals` holds connections shipped here until the dispatcher decides, driving `watari_handoff::Target`.
//! * `speak` runs HTTP over the connection, and `tunnel` what follows an upgrade; `serve` ends it so that the client can tell how, or has it leave.
//! * `ending` announces the end of a connection, and learns whether its leg is kept.

mod activity;
mod arrivals;
mod client_end;
mod departure;
mod early;
mod ending;
mod handshake;
mod keys;
mod legs;
mod lent;
mod lingering;
mod live;
mod metrics;
mod places;
mod requests;
mod serve;
mod sessions;
mod settings;
mod site;
mod speak;
mod stalls;
mod strict;
mod tls;
mod tunnel;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, interval, interval_at, sleep};
use tokio_util::sync::CancellationToken;
use watari_handoff::SourceEvent;
use watari_mesh::{Event, Mesh, SendError};
use watari_proxy::Proxy;
use watari_sys::{Unidentified, UnidentifiedLimits};
use watari_wire::{ConnectionStatus, Message, NodeName, Role};

use crate::arrivals::Arrivals;
use crate::departure::{Departures, Told};
use crate::ending::Endings;
use crate::keys::LegKeys;
use crate::live::LiveTable;
use crate::metrics::Metrics;
use crate::places::Places;
use crate::sessions::Sessions;
pub use crate::sessions::{
    DatabaseFile, DatabaseStatus, HandshakeCounts, Mode, RedisServer, RedisStatus, RotationError, SessionStatus,
    Sharing,
};
use crate::settings::Current;
pub use crate::settings::Settings;
pub use crate::site::{NoProxy, Site};
use crate::stalls::{LOOKS_PER_TIMEOUT, Transfers};
pub use crate::tls::{Listener, Tls};
pub use watari_session_stores::{RedisCounters, WriterCounters};

/// How an agent works.
pub struct Config {
    /// This node.
    pub name: NodeName,
    /// What it begins with.
    pub settings: Settings,
    /// How sessions are shared.
    pub sharing: Sharing,
}

/// What bounds an agent; every wait has an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at the same time, those in their handshake or held for a decision included. Further ones are reset, and further
    /// moves to this agent refused. As many legs from known addresses may wait for their preface. Known are addresses of members,
    /// and those that an authenticated preface has come from within the last hour.
    pub connections_max: usize,
    /// Legs from unknown addresses whose preface is to come. For a newer one, the oldest of the most crowded address is reset.
    pub unidentified_max: usize,
    /// Legs whose preface is to come, from one unknown address. For a newer one, the oldest is reset.
    pub unidentified_per_address_max: usize,
    /// Connections held for a decision at the same time; further ones are refused.
    pub held_max: usize,
    /// Bytes of client data held with them.
    pub held_bytes_max: usize,
    /// Legs that moves and ended connections have left behind, kept for other connections at the same time; further ones are closed.
    pub idle_legs_max: usize,
    /// Requests in progress at the same time, over all connections; further ones are answered with 503. A response is in
    /// progress until the client has taken it: each may hold an open file and some 200 KiB.
    pub requests_max: usize,
    /// The longest head of a request, in bytes, 8,192 at least; in HTTP/2 the longest list of its fields, each with 32 bytes more
    /// (RFC 9113, section 6.5.2). Longer ones are answered with 431.
    pub head_bytes_max: usize,
    /// Fields of a request; those that have more are answered with 431.
    pub head_fields_max: usize,
    /// The longest path of a request, with its query, in bytes; longer ones are answered with 414.
    pub target_bytes_max: usize,
    /// From accepting a leg to its preface. Longer than a dispatcher's time for a move, which begins with connecting a leg.
    pub preface_timeout: Duration,
    /// How long a leg that was left behind waits for another connection. Much longer than a dispatcher keeps it.
    pub idle_leg_timeout: Duration,
    /// From the preface to the end of the handshake.
    pub handshake_timeout: Duration,
    /// Without a request, on a connection that has none in progress; and for the head of a request to be complete.
    pub keep_alive_timeout: Duration,
    /// For the client to take the next piece of a response, of 64 KiB at most, or to send the next of a request. Then
    /// the connection is cut; one that has other HTTP/2 requests, when these are over.
    pub transfer_timeout: Duration,
    /// Without a byte either way, through a connection, or a stream of HTTP/2, that has become a tunnel to an origin.
    pub tunnel_timeout: Duration,
    /// How long a connection given away waits for the decision before it is destroyed. Longer than a dispatcher's time
    /// for a move.
    pub fence_timeout: Duration,
    /// How long a connection taken over waits for the decision before it is dropped. Longer than `fence_timeout`: as
    /// long as the source may still get the connection back, the target may still get it.
    pub hold_timeout: Duration,
    /// How often a decision, or the end of a stream, is asked for or told again.
    pub retry_interval: Duration,
    /// For the client to take the last bytes, and to end its own stream.
    pub end_timeout: Duration,
    /// How long a leg key is handed out.
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
            held_bytes_max: 64 << 20,
            idle_legs_max: 1_024,
            preface_timeout: Duration::from_secs(10),
            idle_leg_timeout: Duration::from_mins(1),
            handshake_timeout: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_mins(1),
            transfer_timeout: Duration::from_mins(2),
            tunnel_timeout: Duration::from_hours(1),
            fence_timeout: Duration::from_secs(15),
            hold_timeout: Duration::from_secs(30),
            retry_interval: Duration::from_millis(500),
            end_timeout: Duration::from_secs(10),
            leg_key_lifetime: Duration::from_mins(1),
        }
    }
}

impl Limits {
    fn unidentified(&self) -> UnidentifiedLimits {
        UnidentifiedLimits {
            // A move opens a leg before its preface is due, so dispatchers may need one for each connection.
            known_max: self.connections_max,
            max: self.unidentified_max,
            per_address_max: self.unidentified_per_address_max,
        }
    }
}

/// How often an agent that is about to end looks whether it is empty, and says that it wants to be.
const DRAIN_LOOK: Duration = Duration::from_millis(50);

/// A running agent.
#[derive(Clone)]
pub struct Agent {
    shared: Arc<Shared>,
}

struct Shared {
    name: NodeName,
    settings: Current,
    mesh: Mesh,
    metrics: Metrics,
    keys: LegKeys,
    sessions: Sessions,
    /// One for each connection that may be here.
    places: Arc<Places>,
    /// One for each request that may be in progress.
    requests: Arc<Places>,
    /// Bodies on their way.
    transfers: Arc<Transfers>,
    /// Legs whose preface is to come.
    unidentified: Arc<Unidentified>,
    /// Legs that moves and ended connections have left behind.
    idle_legs: Arc<Places>,
    live: LiveTable,
    departures: Departures,
    endings: Endings,
    arrivals: Arrivals,
    reloaded: Notify,
}

impl Agent {
    /// Starts taking legs on `legs`, until `shutdown`. Inside a tokio runtime.
    pub fn start(
        config: Config,
        legs: TcpListener,
        mesh: Mesh,
        registry: &mut Registry,
        shutdown: &CancellationToken,
    ) -> io::Result<Self> {
        let limits = config.settings.limits;
        config.settings.site.start();
        let shared = Arc::new(Shared {
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
        tokio::spawn(sessions::keep_time(shared.clone(), shutdown.clone()));
        tokio::spawn(keep_in_order(shared.clone(), shutdown.clone()));
        Ok(Self { shared })
    }

    /// Takes what the mesh reports. What is not for an agent is passed over.
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

    /// Tells dispatchers that this agent is about to end, so that they empty it, until no connection is left here or
    /// `grace` is over. One that is in its handshake, or on its way here, is waited for like the others: its client
    /// would be cut off. Returns how many are left.
    pub async fn drain(&self, grace: Duration) -> usize {
        let shared = &self.shared;
        let look = shared.limits().retry_interval.min(DRAIN_LOOK);
        let emptied = async {
            while {
                shared.keys.tell_all(shared, &Message::Draining);
                // Only then it is looked: until they are told, dispatchers have clients begin here.
                sleep(look).await;
                self.occupied() > 0
            } {}
        };
        // What is left is counted, whichever way the waiting ended.
        let _ = tokio::time::timeout(grace, emptied).await;
        self.occupied()
    }

    /// How many connections are here at the moment: those served, those in their handshake, and those held for a
    /// decision.
    pub fn occupied(&self) -> usize {
        self.shared.places.taken()
    }

    /// Works by other `settings` from now on: handshakes that begin after this see them. Inside a tokio runtime.
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
            // Keys say whether the agent does handshakes.
            shared.keys.rotate(shared);
        }
    }

    /// How sessions are resumed.
    pub fn sessions(&self) -> SessionStatus {
        self.shared.sessions.status(&self.shared.metrics)
    }

    /// Asks the proxy something, or orders it to do something.
    pub fn with_proxy<T>(&self, order: impl FnOnce(&Proxy) -> T) -> Result<T, NoProxy> {
        match &*self.shared.settings.get().site {
            Site::Proxy(proxy) => Ok(order(proxy)),
            Site::Files(_) => Err(NoProxy),
        }
    }

    /// Has new keys made for tickets, here and at all other agents. Tickets of before stay good.
    pub fn rotate_ticket_keys(&self) -> Result<(), RotationError> {
        self.shared.sessions.rotate(&self.shared)
    }

    /// Returns when what shall outlive the process is where it does: sessions and keys, as far as there are files for them.
    pub async fn flush(&self) {
        self.shared.sessions.flush().await;
    }

    /// How many connections of `dispatcher` are served here at the moment.
    pub fn connections_of(&self, dispatcher: &NodeName) -> usize {
        self.shared.live.of(dispatcher)
    }

    /// The connections served here at the moment.
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        self.shared.live.statuses(&self.shared.name)
    }
}

impl Shared {
    fn limits(&self) -> Limits {
        self.settings.get().limits
    }

    fn on_message(self: &Arc<Self>, from: &NodeName, message: &Message) {
        match message {
            Message::Ship(ship) => self.arrivals.on_ship(self, ship),
            Message::Rest(rest) => self.arrivals.on_rest(self, rest),
            Message::Freeze(freeze) => {
                let event = SourceEvent::Freeze { epoch: freeze.epoch, rx_offset: freeze.rx_offset };
                self.departures.send(from, freeze.connection, event);
            }
            Message::Committed(decided) => {
                self.departures.send(from, decided.connection, SourceEvent::Committed(decided.epoch));
            }
            Message::LegKept(kept) if self.endings.on_leg_kept(from, kept) => {}
            Message::LegKept(kept) => {
                let told = Told { event: SourceEvent::Committed(kept.epoch), leg_kept: Some(kept.rx_offset) };
                self.departures.send(from, kept.connection, told);
            }
            Message::Aborted(aborted) => {
                let event = SourceEvent::Aborted(aborted.epoch, aborted.reason);
                self.departures.send(from, aborted.connection, event);
                self.arrivals.on_aborted(self, from, aborted);
            }
            Message::Gone(connection) => {
                self.departures.send(from, *connection, SourceEvent::Gone);
                self.arrivals.on_gone(self, from, *connection);
            }
            Message::Leave(leave) => self.live.leave(from, leave),
            Message::TicketSeeds(seeds) => self.sessions.on_seeds(self, from, seeds),
            Message::SessionPut(_)
            | Message::SessionStored(_)
            | Message::SessionGet(_)
            | Message::SessionFound(_)
            | Message::SessionSpend(_)
            | Message::SessionSpent(_) => {
                self.sessions.on_kept(self, from, message.clone());
            }
            Message::TicketSeedWanted(seed) => self.sessions.on_wanted(self, from, *seed),
            Message::LegKey(_)
            | Message::Stays(_)
            | Message::Tunnel(_)
            | Message::Draining
            | Message::Established(_)
            | Message::Propose(_)
            | Message::Held(_)
            | Message::Refused(_)
            | Message::Cancel(_)
            | Message::Final(_) => {}
        }
    }

    /// Sends; `false` where that is not possible at the moment.
    fn tell(&self, to: &NodeName, message: &Message) -> bool {
        note_unsent(to, self.mesh.send(to, message))
    }

    /// The same, for what nobody waits for.
    fn tell_soon(&self, to: &NodeName, message: &Message) {
        note_unsent(to, self.mesh.send_soon(to, message));
    }
}

fn note_unsent(to: &NodeName, sent: Result<(), SendError>) -> bool {
    if let Err(error) = &sent {
        tracing::debug!(peer = %to, %error, "message not sent");
    }
    sent.is_ok()
}

/// Drops what was held too long, replaces keys in time, and looks after transfers that stall.
async fn keep_in_order(shared: Arc<Shared>, shutdown: CancellationToken) {
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

/// An interval that stays as it was goes on, so that reloads put nothing off.
fn retime(ticks: &mut Interval, period: Duration) {
    if ticks.period() != period {
        *ticks = interval_at(Instant::now() + period, period);
    }
}
