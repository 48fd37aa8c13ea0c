//! The dispatcher: accepts clients, picks an agent for each handshake and another for the data that follows, relays
//! bytes, and decides who owns a connection.
//!
//! It holds no TLS secret and opens no record. It counts bytes, and receives reports from agents over the mesh.
//!
//! * `listen` accepts clients, and `find` finds agents for them.
//! * `Agents` records which agents are available, and selects agents for clients. Clients take slots and wait for them
//!   at its `Scheduler`. `check` does the health checks.
//! * `legs` opens legs to agents, or takes idle ones.
//! * A `RelayDriver` for each connection moves the bytes, as its `watari_relay::Relay` decides.
//! * `Passthrough` selects the connections that the dispatcher relays to backends without opening TLS.
//! * `Table` finds the relay for a message from the mesh, and `messages` handles it.
//!
//! `DispatcherShared` holds the agents, legs, clients and the table, which do not import it. Tasks and connections
//! import it: `check`, `drain`, `find`, `listen`, `messages`, `relay`.

mod agents;
mod alarm;
mod change;
mod check;
mod clients;
mod config;
mod direction;
mod drain;
mod drains;
mod find;
mod legs;
mod listen;
mod listeners;
mod messages;
mod metrics;
mod passthrough;
mod read_ahead;
mod rebalance;
mod relay;
mod scheduler;
mod shared;
mod table;
mod unrelayed;
mod upgrade;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use watari_addresses::{Addresses, LeavingStep, Multipath};
use watari_mesh::{Event, Mesh};
use watari_steering::Primaries;
use watari_sys::Threads;
use watari_values::{ConnectionId, ConnectionStatus, NodeName};
use watari_wire::{DispatcherToAgent, Leave};

use crate::agents::Agents;
pub use crate::agents::{AgentStatus, UnknownAgent};
use crate::change::Changes;
use crate::change::places::Places;
use crate::clients::Clients;
pub use crate::config::{
    AgentConfig, Checks, Config, InvalidNamePattern, Limits, NamePattern, PassthroughRule, Policies, Rebalance,
};
use crate::drains::AskedBy;
use crate::legs::IdleLegs;
use crate::listeners::Accepting;
pub use crate::listeners::Listeners;
use crate::metrics::Metrics;
use crate::shared::DispatcherShared;
use crate::table::Table;
use crate::unrelayed::Unrelayed;
pub use crate::upgrade::{Passing, PassingOn, RestoreError, Restored, SOCKETS_MAX};

/// Connections of another dispatcher that may wait for an order to the kernel.
const COMING_MAX: usize = 1024;

/// A running dispatcher. Clones share it.
#[derive(Clone)]
pub struct Dispatcher {
    shared: Arc<DispatcherShared>,
    threads: Threads,
    accepting: Arc<Accepting>,
}

impl Dispatcher {
    /// Starts `threads` threads, which relay clients until `shutdown`. Accepts none before [`Dispatcher::listen`].
    /// Everything else runs in the tokio runtime of the caller.
    pub fn start(
        config: Config,
        threads: NonZeroUsize,
        mesh: Mesh,
        registry: &mut Registry,
        shutdown: &CancellationToken,
    ) -> io::Result<Self> {
        let metrics = Metrics::register(registry);
        let (legs_idle, legs_reused) = (metrics.legs_idle.clone(), metrics.legs_reused.clone());
        let threads = Threads::start("relay", threads.get(), shutdown)?;
        let (let_in, wanted) = mpsc::channel(COMING_MAX);
        let (released, come) = mpsc::channel(COMING_MAX);
        let shared = Arc::new(DispatcherShared {
            agents: Agents::new(config),
            idle_legs: Arc::new(IdleLegs::new(legs_idle, legs_reused)),
            clients: Arc::new(Clients::new(metrics.connections.clone())),
            table: Table::new()?,
            mesh,
            metrics,
            reloaded: Notify::new(),
            successor: watch::Sender::new(None),
            changes: Changes::default(),
            unrelayed: Unrelayed::default(),
            let_in,
            released,
            runtimes: threads.runtimes().to_vec(),
            restored: AtomicUsize::new(0),
        });
        tokio::spawn(change::taking::let_in(shared.clone(), wanted));
        tokio::spawn(change::taking::deliver(shared.clone(), come));
        tokio::spawn(drain::run(shared.clone(), shutdown.clone()));
        tokio::spawn(rebalance::run(shared.clone(), shutdown.clone()));
        tokio::spawn(check::run(shared.clone(), shutdown.clone()));
        tokio::spawn(legs::keep_tidy(shared.idle_legs.clone(), shutdown.clone()));
        let accepting = Arc::new(Accepting::new(&threads, shutdown));
        Ok(Self { shared, threads, accepting })
    }

    /// Waits until a thread has ended without a shutdown. Its clients are cut off, and the clients that the kernel
    /// still assigns to it are not accepted. Otherwise this never returns.
    pub async fn thread_lost(&self) {
        self.threads.lost().await;
    }

    /// The addresses of `wanted` on which the dispatcher does not accept yet.
    pub async fn not_listened_at(&self, wanted: &Listeners<SocketAddr>) -> Listeners<SocketAddr> {
        self.accepting.missing(wanted).await
    }

    /// Accepts clients on exactly the `wanted` addresses. `added` has the listeners for the addresses that are missing
    /// so far: for each address, one listener for each thread. If this fails, nothing changes. When it returns, no
    /// other address is open any more. Connections stay.
    pub async fn listen(&self, wanted: &Listeners<SocketAddr>, added: Listeners) -> io::Result<()> {
        self.accepting.set(&self.shared, wanted, added).await
    }

    /// Replaces the configuration, except for the node's name. It applies to clients that connect from now on. Live
    /// connections keep the time limits under which they were accepted. An agent that the new configuration does not
    /// list is drained.
    pub async fn reload(&self, config: Config) {
        self.shared.reload(config);
        self.accepting.set_user_timeout(self.shared.limits().user_timeout).await;
    }

    /// Further handles of all listeners, for a successor of this process.
    pub async fn listeners(&self) -> io::Result<Listeners> {
        self.accepting.listeners().await
    }

    /// Begins to pass connections to a successor of this process. The caller must have ended all listening
    /// ([`Dispatcher::listen`]), or new connections come here meanwhile.
    pub fn begin_to_pass_on(&self) -> PassingOn {
        PassingOn::begin(&self.shared)
    }

    /// A connection that the predecessor of this process passed on. It stands still until it is started.
    pub fn restore(&self, state: &[u8], sockets: Vec<OwnedFd>) -> Result<Restored, RestoreError> {
        upgrade::restore(&self.shared, self.shared.next_runtime(), state, sockets)
    }

    /// Sets the service addresses of this node, for [`Dispatcher::leave`] and for connections that other
    /// dispatchers give. Called once at most.
    pub fn use_addresses(&self, addresses: Addresses) {
        self.shared.changes.use_places(Places::Takeover(addresses));
    }

    /// Sets the addresses that this node has together with other dispatchers, and gives connections to their primaries
    /// until `shutdown`. Called once at most, and not with [`Dispatcher::use_addresses`].
    pub fn use_multipath(&self, multipath: Multipath, shutdown: &CancellationToken) {
        self.shared.changes.use_places(Places::Multipath(multipath.clone()));
        tokio::spawn(change::settling::run(self.shared.clone(), multipath, shutdown.clone()));
    }

    /// The connections at shared addresses whose primary, among those of all slots, is another dispatcher than `me`.
    pub fn count_strays(&self, me: &NodeName, addresses: &BTreeSet<IpAddr>, primaries: &Primaries) -> usize {
        self.shared.count_strays(me, addresses, primaries)
    }

    /// How long the first step of [`Dispatcher::leave`] may take.
    pub const LEAVING_MAX: Duration = Duration::from_secs(65);

    /// Gives the connections at an address to the next dispatcher before the address goes there, resets those that are
    /// left, or keeps them.
    ///
    /// Returns whether the address may go to the next dispatcher.
    pub async fn leave(&self, step: LeavingStep) -> bool {
        match step {
            LeavingStep::Prepare { address, to } => return change::giving::give_all(&self.shared, address, &to).await,
            LeavingStep::Leave { address } => change::giving::leave(&self.shared, address).await,
            LeavingStep::Cancel { address } => change::giving::stay(&self.shared, address).await,
        }
        true
    }

    /// The agents that an operator drains.
    pub fn drained(&self) -> Vec<NodeName> {
        self.shared.agents.drains.asked_by(AskedBy::Operator)
    }

    /// The number of client connections, with those that are passed through to backends.
    pub fn clients(&self) -> i64 {
        self.shared.metrics.connections.get()
    }

    /// Handles an event of the mesh. Ignores messages that are not for a dispatcher.
    pub fn handle(&self, event: &Event) {
        match event {
            Event::Down { peer, .. } => {
                self.shared.agents.link_down(peer);
                self.shared.idle_legs.forget(peer);
                self.shared.table.owner_lost(peer);
                self.shared.on_dispatcher_lost(peer);
            }
            // An agent sends a leg key on every new link. An agent that has restarted is not about to end any more.
            Event::Up { peer, .. } => {
                self.shared.agents.drains.link_up(peer);
            }
            // `Down` came before it.
            Event::Evicted { .. } => {}
            Event::Message { peer, message } => self.shared.on_message(peer, message),
        }
    }

    /// Asks the owner of `id` to hand the connection to `to` as soon as it can. [`Dispatcher::connections`] shows
    /// whether it did.
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
        shared
            .send(&owner, DispatcherToAgent::Leave(Leave { connection: id, target: Some(to.clone()), or_end: false }));
        Ok(())
    }

    /// Drains `agent`: it gets no new connections. Its connections move to other agents as soon as they can, or end
    /// where they cannot move. None is cut.
    pub fn drain(&self, agent: &NodeName) -> Result<(), UnknownAgent> {
        self.shared.agents.availability(agent).ok_or(UnknownAgent)?;
        self.shared.drain(agent, AskedBy::Operator);
        Ok(())
    }

    /// Lets `agent` get connections again.
    pub fn undrain(&self, agent: &NodeName) -> Result<(), UnknownAgent> {
        if self.shared.agents.undrain(agent)? {
            tracing::info!(%agent, "drain ended");
        }
        Ok(())
    }

    /// The live connections.
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        self.shared.table.statuses()
    }

    /// Whether clients of this dispatcher would be served, apart from limits on connections: by an available agent, or
    /// by a backend.
    pub fn can_serve(&self) -> bool {
        self.shared.agents.can_serve()
    }

    /// The agents of the configuration, and those that are being drained after they left it.
    pub fn agents(&self) -> Vec<AgentStatus> {
        self.shared.agents.statuses(&self.shared.table)
    }
}

/// Why a connection cannot be asked to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MoveRefused {
    /// No connection has this id, or its handshake is not done.
    #[error("there is no such connection, or its handshake is not done")]
    UnknownConnection,
    /// The configuration does not list the node as an agent.
    #[error("there is no such agent")]
    UnknownAgent,
    /// The link to the agent is down, or its checks fail.
    #[error("the agent is not available")]
    NotAvailable,
    #[error("the agent has the connection already")]
    AlreadyThere,
}
