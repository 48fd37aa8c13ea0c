//! What all connections and tasks of a dispatcher share.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use watari_addresses::Flow;
use watari_mesh::{Mesh, SendError};
use watari_relay::DispatcherState;
use watari_values::{ConnectionId, NodeName};
use watari_wire::{DispatcherToAgent, DispatcherToDispatcher};

use crate::agents::Agents;
use crate::change::Changes;
use crate::change::taking::LetIn;
use crate::clients::Clients;
use crate::config::{Config, Limits};
use crate::drains::AskedBy;
use crate::legs::{IdleLegs, Leg, LegChoice};
use crate::metrics::Metrics;
use crate::table::Table;
use crate::unrelayed::{Unrelayed, UnrelayedClient};
use crate::upgrade::ToSuccessor;

/// The state of a dispatcher.
pub(crate) struct DispatcherShared {
    pub(crate) agents: Agents,
    pub(crate) idle_legs: Arc<IdleLegs>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) table: Table,
    pub(crate) mesh: Mesh,
    pub(crate) metrics: Metrics,
    /// Notified after each reload.
    pub(crate) reloaded: Notify,
    /// Where clients without an agent, and those of backends, pass to a successor of this process.
    pub(crate) successor: watch::Sender<Option<ToSuccessor>>,
    pub(crate) changes: Changes,
    /// Clients that cannot go to another dispatcher.
    pub(crate) unrelayed: Unrelayed,
    /// Connections whose packets are to pass the gate.
    pub(crate) let_in: mpsc::Sender<LetIn>,
    /// Connections that have come. Packets were held for them.
    pub(crate) released: mpsc::Sender<Flow>,
    /// The runtimes of the threads that relay clients.
    pub(crate) runtimes: Vec<Handle>,
    /// The number of connections that came from another process. They take turns on the threads.
    pub(crate) restored: AtomicUsize,
}

impl DispatcherShared {
    /// The limits for clients that connect now.
    pub(crate) fn limits(&self) -> Limits {
        self.agents.settings().config.limits.clone()
    }

    pub(crate) fn reload(&self, config: Config) {
        let before = self.agents.settings();
        self.agents.reload(config);
        let settings = self.agents.settings();
        for (name, agent) in before.agents() {
            if settings.agent(name).is_none_or(|now| now.is_retired() || now.config.legs != agent.config.legs) {
                self.idle_legs.forget(name);
            }
        }
        self.reloaded.notify_one();
    }

    pub(crate) fn drain(&self, agent: &NodeName, by: AskedBy) {
        if self.agents.drains.begin(agent, by) {
            tracing::info!(%agent, ?by, "drain begun");
            self.idle_legs.forget(agent);
        }
    }

    /// Sends a message. If that fails, the peer repeats its request.
    pub(crate) fn send(&self, to: &NodeName, message: DispatcherToAgent) {
        note_unsent(to, self.mesh.send(to, &message.into()));
    }

    /// Sends a message to another dispatcher.
    pub(crate) fn send_to_dispatcher(&self, to: &NodeName, message: DispatcherToDispatcher) {
        note_unsent(to, self.mesh.send(to, &message.into()));
    }

    /// Counts a client without a relay, until it has one.
    pub(crate) fn unrelayed(&self, stream: &TcpStream) -> UnrelayedClient {
        self.unrelayed.enter(stream, |address| self.changes.is_service(address))
    }

    /// The runtime of the next connection that comes from another process.
    pub(crate) fn next_runtime(&self) -> &Handle {
        &self.runtimes[self.restored.fetch_add(1, Ordering::Relaxed) % self.runtimes.len()]
    }

    /// Sends a message that no peer waits for, without hurry. Returns `false` if it cannot be sent.
    pub(crate) fn send_soon(&self, to: &NodeName, message: DispatcherToAgent) -> bool {
        note_unsent(to, self.mesh.send_soon(to, &message.into()))
    }

    /// Takes or connects a leg to `agent`. The next bytes to write on it are a preface.
    pub(crate) async fn leg_to(&self, agent: &NodeName, which: LegChoice) -> io::Result<Leg> {
        let free = (which == LegChoice::Any).then(|| self.idle_legs.take(agent, Instant::now())).flatten();
        let (reused, stream) = match free {
            Some(stream) => (true, stream),
            None => (false, self.agents.connect(agent).await?),
        };
        Ok(Leg { stream, reused })
    }
}

impl DispatcherState for DispatcherShared {
    fn keeps_legs_to(&self, agent: &NodeName) -> bool {
        self.agents.availability(agent) == Some(true)
            && !self.agents.drains.contains(agent)
            && self.idle_legs.has_room(agent, self.limits().idle_legs_max)
    }

    fn is_established(&self, connection: ConnectionId) -> bool {
        self.table.is_established(connection)
    }
}

fn note_unsent(to: &NodeName, sent: Result<(), SendError>) -> bool {
    if let Err(error) = &sent {
        tracing::debug!(peer = %to, %error, "message not sent");
    }
    sent.is_ok()
}
