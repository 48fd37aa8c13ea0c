//! An upgrade in place: a new process of this node, the *successor*, goes on with the connections of this one.
//!
//! A connection passes to the successor as its relay's state, the bytes that wait, and its sockets. While it passes, it
//! stands still here. This process gives it up only when the successor has confirmed that it has it, and goes on with
//! it otherwise. The agents see that the dispatcher's link ends and comes up again. Legs stay.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};
use watari_relay::Snapshot;
use watari_values::{ConnectionId, NodeName, StayReason, TlsInfo};

use crate::clients::{Client, Presence};
use crate::direction::WaitingBytes;
use crate::listen::{Relayed, Visit};
use crate::passthrough::PassthroughRelay;
use crate::relay::RelayDriver;
use crate::shared::DispatcherShared;

/// The most sockets of one connection: the client's, the owner's leg, and the leg to the target of a move.
pub const SOCKETS_MAX: usize = 3;

/// How long a connection that needs an agent at once waits until one has linked to this process.
/// It includes the time in which the other connections pass, because links begin after it.
const AGENT_MAX: Duration = Duration::from_secs(30);
/// Clients without an agent that wait until they pass, besides those that wait for room here.
const CLIENTS_MAX: usize = 16;

const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// A connection that stands still until the successor has it.
pub struct Passing {
    state: Vec<u8>,
    sockets: Vec<OwnedFd>,
    taken: oneshot::Sender<()>,
}

/// Where connections pass to the successor.
pub(crate) type ToSuccessor = mpsc::Sender<Passing>;

/// What passes: the form of [`Passing::state`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Passed {
    Connection(Box<PassedConnection>),
    Client(PassedClient),
    Passthrough(Box<PassthroughSnapshot>),
    Relayed(PassedRelayed),
}

/// A connection with a relay. Its sockets: the client's, the owner's leg if `has_leg`, the prepared leg if
/// `has_prepared`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PassedConnection {
    pub(crate) relay: Snapshot,
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) up: WaitingBytes,
    pub(crate) down: WaitingBytes,
    pub(crate) has_leg: bool,
    pub(crate) has_prepared: bool,
    /// Whether another agent is being looked for.
    pub(crate) is_finding: bool,
    pub(crate) entry: PassedEntry,
}

impl PassedConnection {
    /// Whether another dispatcher may have sent this as the state of the connection: the counts fit the bytes, of which
    /// `unacknowledged` are in the client's socket.
    pub(crate) fn fits(&self, id: ConnectionId, unacknowledged: usize) -> bool {
        let waiting = (self.up.stream_len() as u64, self.down.stream_len() as u64);
        self.relay.fits(id, waiting, unacknowledged as u64) && !self.has_leg && !self.has_prepared && !self.is_finding
    }
}

/// The entry of a connection in the table.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PassedEntry {
    pub(crate) tls: Option<TlsInfo>,
    pub(crate) handshake_node: NodeName,
    pub(crate) node: NodeName,
    pub(crate) moves: u32,
    pub(crate) stays: Option<StayReason>,
    /// The agent that gets the connection after its handshake.
    pub(crate) reserved: Option<NodeName>,
}

/// A client without an agent. Its socket is the only one.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PassedClient {
    pub(crate) address: SocketAddr,
    pub(crate) server: SocketAddr,
    #[serde(with = "serde_bytes")]
    pub(crate) read_ahead: Vec<u8>,
}

/// A connection of a relay without its PROXY protocol header. Its socket is the only one.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PassedRelayed {
    pub(crate) relay: SocketAddr,
    #[serde(with = "serde_bytes")]
    pub(crate) read_ahead: Vec<u8>,
    /// What is left of the time for the header.
    pub(crate) left: Duration,
}

/// A connection that is passed through to a backend. Its sockets: the client's and the backend's.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PassthroughSnapshot {
    pub(crate) address: SocketAddr,
    pub(crate) up: WaitingBytes,
    pub(crate) down: WaitingBytes,
    /// Whether the end of each stream was passed on.
    pub(crate) have_ended: [bool; 2],
    pub(crate) idle_timeout: Duration,
    /// What is left of its lifetime.
    pub(crate) left: Duration,
}

/// The successor cannot go on with a connection.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The state is of another form, or has other sockets.
    #[error("the state of a connection has an unknown form")]
    Form,
    /// The system refuses a socket.
    #[error("a socket cannot be used: {0}")]
    Socket(#[from] io::Error),
}

impl Passing {
    /// The state for [`Dispatcher::restore`](crate::Dispatcher::restore).
    pub fn state(&self) -> &[u8] {
        &self.state
    }

    /// The sockets, in the order in which the successor needs them: at most [`SOCKETS_MAX`].
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    /// The successor has the connection. This process gives it up. Without this call, it goes on with it.
    pub fn taken(self) {
        // The connection may have ended here in the meantime.
        let _ = self.taken.send(());
    }
}

/// Passes all connections to a successor. If it is dropped before [`PassingOn::finish`], this process goes on.
pub struct PassingOn {
    shared: Arc<DispatcherShared>,
    /// Clients without an agent, and those of backends. They pass by themselves.
    clients: mpsc::Receiver<Passing>,
    /// Connections that were not asked yet.
    left: Vec<ConnectionId>,
    is_finished: bool,
}

impl PassingOn {
    pub(crate) fn begin(shared: &Arc<DispatcherShared>) -> Self {
        let (to, clients) = mpsc::channel(CLIENTS_MAX);
        shared.successor.send_replace(Some(to));
        Self { shared: shared.clone(), clients, left: Vec::new(), is_finished: false }
    }

    /// The next connections to pass, at most `max`. They stand still until they are taken or dropped. Empty: none can
    /// pass at the moment.
    pub async fn next(&mut self, max: usize) -> Vec<Passing> {
        let mut batch: Vec<_> = std::iter::from_fn(|| self.clients.try_recv().ok()).take(max).collect();
        if self.left.is_empty() {
            self.left = self.shared.table.ids();
        }
        let asked = self.left.split_off(self.left.len().saturating_sub(max - batch.len()));
        let (to, mut passing) = mpsc::channel(max);
        self.shared.table.pass_on(&asked, &to);
        drop(to);
        // Each relay answers at once: by its connection, or by dropping the sender.
        while let Some(connection) = passing.recv().await {
            batch.push(connection);
        }
        batch
    }

    /// The successor has taken over. This process answers nothing more about connections that have passed.
    pub fn finish(mut self) {
        self.is_finished = true;
    }

    /// Whether no connection is left that could pass.
    pub fn is_complete(&self) -> bool {
        self.left.is_empty() && !self.shared.changes.is_any_coming() && self.shared.metrics.connections.get() == 0
    }
}

impl Drop for PassingOn {
    fn drop(&mut self) {
        if !self.is_finished {
            self.shared.successor.send_replace(None);
        }
    }
}

/// Waits for the successors of this process to which a connection may pass.
pub(crate) struct Successors(watch::Receiver<Option<ToSuccessor>>);

impl Successors {
    /// Those from now on, and the present one.
    pub(crate) fn of(shared: &DispatcherShared) -> Self {
        let mut receiver = shared.successor.subscribe();
        receiver.mark_changed();
        Self(receiver)
    }

    /// Waits for the next one. The caller may drop the future, and call this again.
    pub(crate) async fn next(&mut self) -> ToSuccessor {
        while self.0.changed().await.is_ok() {
            if let Some(to) = self.0.borrow_and_update().clone() {
                return to;
            }
        }
        // The dispatcher is gone.
        pending().await
    }
}

/// Passes a connection on. Returns whether the successor has it. If not, this process goes on with it.
pub(crate) async fn pass_on(to: ToSuccessor, passed: &Passed, sockets: &[&TcpStream]) -> bool {
    let duplicates = sockets.iter().map(|socket| socket.as_fd().try_clone_to_owned());
    let (Ok(sockets), Ok(state)) = (duplicates.collect::<io::Result<Vec<_>>>(), postcard::to_stdvec(passed)) else {
        return false;
    };
    let (taken, confirmed) = oneshot::channel();
    let sent = to.send(Passing { state, sockets, taken }).await;
    // The receiver has a batch when all senders are gone.
    drop(to);
    sent.is_ok() && confirmed.await.is_ok()
}

/// A connection of the predecessor, which stands still until [`Restored::start`].
pub struct Restored {
    runtime: Handle,
    serve: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Restored {
    /// Goes on with the connection.
    pub fn start(self) {
        self.runtime.spawn(self.serve);
    }
}

/// Makes the connection of `state`, to be served in `runtime`.
pub(crate) fn restore(
    shared: &Arc<DispatcherShared>,
    runtime: &Handle,
    state: &[u8],
    sockets: Vec<OwnedFd>,
) -> Result<Restored, RestoreError> {
    let _entered = runtime.enter();
    let mut sockets = sockets.into_iter();
    let mut next = || -> Result<TcpStream, RestoreError> {
        let socket = std::net::TcpStream::from(sockets.next().ok_or(RestoreError::Form)?);
        Ok(TcpStream::from_std(socket)?)
    };
    let serve: Pin<Box<dyn Future<Output = ()> + Send>> = match postcard::from_bytes(state) {
        Ok(Passed::Connection(passed)) => {
            let stream = next()?;
            let leg = passed.has_leg.then(&mut next).transpose()?;
            let prepared = passed.has_prepared.then(&mut next).transpose()?;
            let presence = Presence::restore(&shared.clients, passed.client.ip());
            let driver = Box::new(RelayDriver::restore(shared, *passed, (stream, leg, prepared)));
            Box::pin(async move {
                let _presence = presence;
                driver.run().await;
            })
        }
        Ok(Passed::Client(passed)) => {
            let presence = Presence::restore(&shared.clients, passed.address.ip());
            let PassedClient { address, server, read_ahead } = passed;
            let client = Client { stream: next()?, address, server, read_ahead };
            Box::pin(Visit::restore(shared, presence, client).serve())
        }
        Ok(Passed::Passthrough(passed)) => {
            let presence = Presence::restore(&shared.clients, passed.address.ip());
            let (client, backend) = (next()?, next()?);
            let unrelayed = shared.unrelayed(&client);
            let relay = PassthroughRelay::restore(*passed, client, backend);
            let shared = shared.clone();
            Box::pin(async move {
                let _presence = presence;
                relay.run(&shared, unrelayed).await;
            })
        }
        Ok(Passed::Relayed(passed)) => {
            let presence = Presence::enter(&shared.clients, usize::MAX).ok_or(RestoreError::Form)?;
            Box::pin(Relayed::restore(shared, presence, next()?, passed).serve())
        }
        Err(_) => return Err(RestoreError::Form),
    };
    Ok(Restored { runtime: runtime.clone(), serve })
}

impl DispatcherShared {
    /// Waits until `agent`, or any, has linked to this process. Connections of a predecessor come before the links.
    pub(crate) async fn until_available(&self, agent: Option<&NodeName>) {
        let deadline = Instant::now() + AGENT_MAX;
        let is_available = || match agent {
            Some(agent) => self.agents.availability(agent) == Some(true),
            None => self.agents.any_available(),
        };
        while !is_available() && Instant::now() < deadline {
            sleep(LOOK_INTERVAL).await;
        }
    }
}
