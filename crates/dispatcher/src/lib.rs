//! The dispatcher: accepts clients, picks an agent for each handshake and another for the data that follows, relays bytes,
//! and decides who owns a connection.
//!
//! It holds no TLS secret and opens no record: it knows byte counts, and what agents tell it over the mesh.
//!
//! * `Agents` knows which agents can take connections, and opens legs to them.
//! * One `Relay` a connection moves the bytes and drives its `watari_handoff::Arbiter`.
//! * `Table` finds the relay that a message from the mesh is for.

mod agents;
mod alarm;
mod drain;
mod flow;
mod listen;
mod listeners;
mod metrics;
mod relay;
mod table;
mod threads;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use watari_balance::{BulkPolicy, HandshakePolicy};
use watari_handoff::{ArbiterEvent, Offer};
use watari_mesh::{Event, Mesh};
use watari_wire::{ConnectionId, ConnectionStatus, Leave, Message, NodeName};

pub use crate::agents::AgentStatus;
use crate::agents::Agents;
use crate::drain::AskedBy;
use crate::listen::Clients;
use crate::listeners::Listeners;
use crate::metrics::Metrics;
use crate::table::Table;
use crate::threads::Threads;

/// How a dispatcher works.
#[derive(Debug, Clone)]
pub struct Config {
    /// This node.
    pub name: NodeName,
    /// The agents it may give connections to.
    pub agents: Vec<AgentAddress>,
    /// Who does handshakes.
    pub handshake: HandshakePolicy,
    /// Who gets the data.
    pub bulk: BulkPolicy,
    /// What bounds it.
    pub limits: Limits,
}

/// Where an agent takes legs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentAddress {
    /// The agent.
    pub name: NodeName,
    /// Its listener for legs.
    pub legs: SocketAddr,
}

/// What bounds a dispatcher; every wait has an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Clients at the same time; further ones are reset.
    pub connections_max: usize,
    /// Clients of one address at the same time; further ones are reset.
    pub connections_per_client_max: usize,
    /// From accepting a client until its handshake is announced.
    pub handshake_timeout: Duration,
    /// For a client to acknowledge what it was sent, or to make room for more.
    pub user_timeout: Duration,
    /// Without a byte in either direction.
    pub idle_timeout: Duration,
    /// In all.
    pub lifetime_max: Duration,
    /// For connecting to an agent.
    pub leg_timeout: Duration,
    /// From a proposal to the decision.
    pub move_timeout: Duration,
    /// From the end of an agent's leg to the announcement that its stream was complete; and from the end of the stream
    /// to a client to the end of the client's own.
    pub final_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 8_000,
            connections_per_client_max: 2_000,
            handshake_timeout: Duration::from_secs(15),
            user_timeout: Duration::from_mins(2),
            idle_timeout: Duration::from_mins(5),
            lifetime_max: Duration::from_hours(24),
            leg_timeout: Duration::from_secs(2),
            move_timeout: Duration::from_secs(3),
            final_timeout: Duration::from_secs(5),
        }
    }
}

/// A running dispatcher.
#[derive(Clone)]
pub struct Dispatcher {
    shared: Arc<Shared>,
    threads: Threads,
    listeners: Arc<Listeners>,
}

struct Shared {
    agents: Agents,
    /// One for each client that may be connected.
    places: Arc<Semaphore>,
    clients: Clients,
    table: Table,
    mesh: Mesh,
    metrics: Metrics,
    limits: Limits,
}

impl Dispatcher {
    /// Starts `threads` threads, which accept clients and relay them, until `shutdown`. `listeners` has for each address
    /// a listener for each of them. All else happens in the tokio runtime that this is called in.
    pub fn start(
        config: Config,
        (threads, listeners): (NonZeroUsize, Vec<Vec<TcpListener>>),
        mesh: Mesh,
        registry: &mut Registry,
        shutdown: &CancellationToken,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            agents: Agents::new(&config),
            clients: Clients::default(),
            table: Table::new()?,
            mesh,
            metrics: Metrics::register(registry),
            places: Arc::new(Semaphore::new(config.limits.connections_max.min(Semaphore::MAX_PERMITS))),
            limits: config.limits,
        });
        tokio::spawn(drain::run(shared.clone(), shutdown.clone()));
        let threads = Threads::start(threads, shutdown)?;
        let listeners = Arc::new(Listeners::start(&shared, &threads, listeners, shutdown)?);
        Ok(Self { shared, threads, listeners })
    }

    /// Waits until one of the threads has ended, though it was not asked to: its clients are cut off, and nobody
    /// accepts those that the system still gives it. Never ends by itself otherwise.
    pub async fn thread_lost(&self) {
        self.threads.lost().await;
    }

    /// The addresses among `wanted` that no clients are accepted at yet.
    pub async fn not_listened_at(&self, wanted: &[SocketAddr]) -> Vec<SocketAddr> {
        self.listeners.missing(wanted).await
    }

    /// Accepts clients at `wanted` and nowhere else, with `added` for what is missing of it, for each address a
    /// listener for each thread; where that fails, all is as it was. When this returns, nobody listens elsewhere any
    /// more. Connections stay.
    pub async fn listen(&self, wanted: &[SocketAddr], added: Vec<Vec<TcpListener>>) -> io::Result<()> {
        self.listeners.set(&self.shared, wanted, added).await
    }

    /// Takes what the mesh reports. What is not for a dispatcher is passed over.
    pub fn handle(&self, event: &Event) {
        match event {
            Event::Down { peer, .. } => self.shared.agents.link_down(peer),
            // An agent hands out a leg key on every new link. One that has started anew is not about to end any more.
            Event::Up { peer, .. } => {
                self.shared.agents.drains.link_up(peer);
            }
            Event::Message { peer, message } => self.shared.on_message(peer, message),
        }
    }

    /// Asks the owner of `id` to hand it to `to` as soon as it can. Whether it happens is seen in
    /// [`Dispatcher::connections`].
    pub fn move_connection(&self, id: ConnectionId, to: &NodeName) -> Result<(), MoveRefused> {
        let shared = &self.shared;
        match shared.agents.availability(to) {
            None => return Err(MoveRefused::UnknownAgent),
            Some(false) => return Err(MoveRefused::NotAvailable),
            Some(true) => {}
        }
        let owner = shared.table.owner(id).ok_or(MoveRefused::UnknownConnection)?;
        if owner == *to {
            return Err(MoveRefused::AlreadyThere);
        }
        shared.table.asked(id, Instant::now());
        shared.tell(&owner, &Message::Leave(Leave { connection: id, target: Some(to.clone()), or_end: false }));
        Ok(())
    }

    /// Empties `agent`: it gets no new connections, and those it has move to the others as soon as they can, or end where they
    /// cannot. Nothing is cut.
    pub fn drain(&self, agent: &NodeName) -> Result<(), UnknownAgent> {
        self.shared.agents.availability(agent).ok_or(UnknownAgent)?;
        self.shared.drain(agent, AskedBy::Operator);
        Ok(())
    }

    /// Lets `agent` have connections again.
    pub fn undrain(&self, agent: &NodeName) -> Result<(), UnknownAgent> {
        self.shared.agents.availability(agent).ok_or(UnknownAgent)?;
        if self.shared.agents.drains.end(agent) {
            tracing::info!(%agent, "drain ended");
        }
        Ok(())
    }

    /// The connections of the moment.
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        self.shared.table.statuses()
    }

    /// The agents of the configuration.
    pub fn agents(&self) -> Vec<AgentStatus> {
        self.shared.agents.statuses(&self.shared.table)
    }
}

/// Why a connection is not asked to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MoveRefused {
    /// There is none of this name, or its handshake is not done.
    #[error("there is no such connection, or its handshake is not done")]
    UnknownConnection,
    /// The node is none of the configured agents.
    #[error("there is no such agent")]
    UnknownAgent,
    /// There is no link to the agent.
    #[error("the agent is not available")]
    NotAvailable,
    /// The agent owns the connection already.
    #[error("the connection is there already")]
    AlreadyThere,
}

/// The node is none of the configured agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no such agent")]
pub struct UnknownAgent;

impl Shared {
    fn drain(&self, agent: &NodeName, by: AskedBy) {
        if self.agents.drains.begin(agent, by) {
            tracing::info!(%agent, ?by, "drain begun");
        }
    }

    fn on_message(&self, from: &NodeName, message: &Message) {
        let name = || from.clone();
        let (connection, event) = match message {
            Message::LegKey(key) => return self.agents.set_key(from, key),
            Message::Established(established) => return self.on_established(from, established),
            Message::Propose(propose) => {
                let offer = Offer {
                    target: propose.target.clone(),
                    epoch: propose.epoch,
                    rx_offset: propose.rx_offset,
                    tail_offset: propose.tail_offset,
                    digest: propose.digest,
                };
                (propose.connection, ArbiterEvent::Proposed { from: name(), offer })
            }
            Message::Held(held) => {
                let offer = Offer {
                    target: name(),
                    epoch: held.epoch,
                    rx_offset: held.rx_offset,
                    tail_offset: held.tail_offset,
                    digest: held.digest,
                };
                (held.connection, ArbiterEvent::Held(offer))
            }
            Message::Refused(refused) => {
                let (epoch, reason) = (refused.epoch, refused.reason);
                (refused.connection, ArbiterEvent::Refused { from: name(), epoch, reason })
            }
            Message::Cancel(cancel) => {
                let (epoch, reason) = (cancel.epoch, cancel.reason);
                (cancel.connection, ArbiterEvent::Cancelled { from: name(), epoch, reason })
            }
            Message::Final(end) => {
                let (epoch, tx_offset) = (end.epoch, end.tx_offset);
                (end.connection, ArbiterEvent::Final { from: name(), epoch, tx_offset })
            }
            Message::Freeze(_)
            | Message::Ship(_)
            | Message::Rest(_)
            | Message::Committed(_)
            | Message::Aborted(_)
            | Message::Gone(_)
            | Message::Leave(_) => return,
            Message::Stays(stays) => return self.table.stays(from, stays.connection, stays.reason),
            Message::Draining => return self.drain(from, AskedBy::Itself),
        };
        if !self.table.send(connection, event) {
            self.answer_for_unknown(from, connection, message);
        }
    }

    fn on_established(&self, from: &NodeName, established: &watari_wire::Established) {
        if self.table.establish(from, established) {
            self.metrics.count_handshake(&established.tls);
        }
    }

    /// Who waits for a decision about a connection that is over must not wait on.
    fn answer_for_unknown(&self, from: &NodeName, connection: ConnectionId, message: &Message) {
        if matches!(message, Message::Propose(_) | Message::Held(_)) {
            self.tell(from, &Message::Gone(connection));
        }
    }

    /// Sends, and leaves what cannot be sent to the other side's asking again.
    fn tell(&self, to: &NodeName, message: &Message) {
        if let Err(error) = self.mesh.send(to, message) {
            tracing::debug!(peer = %to, %error, "message not sent");
        }
    }
}
