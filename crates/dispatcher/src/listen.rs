//! Accepts clients.
//!
//! ```text
//!  accepted ── allowed? ── PROXY header ── a client too many? ──┬── an agent for it ── leg ──▶ relay
//!            (only where connections come from relays)            │   or wait for one
//!                                                                 └── a name that goes to a backend ──▶ passthrough
//! ```
//!
//! At the limits that protect the dispatcher (connections in total, and of one client) it refuses a client at once.
//! Clients in the queue count under both. The queue is only for agents: clients wait in it when all agents are at their
//! limit or none is available.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use watari_sys::{Acceptor, accept_until, tcp};
use watari_wire::proxy::Header;

use crate::clients::{Client, Presence};
use crate::config::Limits;
use crate::find::{Found, find_leg};
use crate::legs::LegChoice;
use crate::passthrough::Route;
use crate::read_ahead::ReadAhead;
use crate::relay::RelayDriver;
use crate::shared::DispatcherShared;
use crate::unrelayed::UnrelayedClient;
use crate::upgrade::{Passed, PassedClient, PassedRelayed, Successors, ToSuccessor, pass_on};

/// The kind of peer that connects to a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AcceptFrom {
    Clients,
    Relays,
}

/// Accepts on `listener` until `shutdown`, in the runtime of the caller. A connection stays there to its end.
pub(crate) fn start(
    shared: &Arc<DispatcherShared>,
    listener: TcpListener,
    from: AcceptFrom,
    shutdown: &CancellationToken,
) -> io::Result<Acceptor> {
    tcp::prepare_listener(&listener, Some(shared.limits().user_timeout))?;
    let shared = shared.clone();
    match from {
        AcceptFrom::Clients => {
            accept_until(shutdown, listener, "a client", move |stream, address| admit_client(&shared, stream, address))
        }
        AcceptFrom::Relays => {
            accept_until(shutdown, listener, "a relay", move |stream, relay| admit_relay(&shared, stream, relay))
        }
    }
}

/// Logs and counts the reason that a client is refused. The caller then drops its socket, which resets the connection.
fn refuse(shared: &DispatcherShared, client: SocketAddr, reason: &'static str) {
    tracing::info!(%client, reason, "client refused");
    shared.metrics.count_refused(reason);
}

fn admit_client(shared: &Arc<DispatcherShared>, stream: TcpStream, address: SocketAddr) {
    let limits = shared.limits();
    let admitted = Presence::enter(&shared.clients, limits.connections_max).ok_or("full").and_then(|mut presence| {
        let server = stream.local_addr().map_err(|_| "client_gone")?;
        admit(shared, &mut presence, address, &limits)?;
        Ok((presence, server))
    });
    match admitted {
        Ok((presence, server)) => {
            let unrelayed = shared.unrelayed(&stream);
            let (shared, read_ahead) = (shared.clone(), ReadAhead::default());
            tokio::spawn(
                Visit { shared, presence, stream, address, server, read_ahead, waits: false, unrelayed }.serve(),
            );
        }
        Err(reason) => refuse(shared, address, reason),
    }
}

/// Admits a client, unless its address is at its limit.
fn admit(
    shared: &DispatcherShared,
    presence: &mut Presence,
    address: SocketAddr,
    limits: &Limits,
) -> Result<(), &'static str> {
    if !presence.comes_from(address.ip(), limits.connections_per_client_max) {
        return Err("client_full");
    }
    shared.metrics.count_accepted();
    Ok(())
}

/// Admits a relay in `proxy_from`, which may report client addresses. Refuses others before reading from them.
fn admit_relay(shared: &Arc<DispatcherShared>, stream: TcpStream, relay: SocketAddr) {
    let settings = shared.agents.settings();
    let ip = relay.ip().to_canonical();
    if !settings.config.proxy_from.iter().any(|network| network.contains(&ip)) {
        return refuse(shared, relay, "proxy_from");
    }
    let Some(presence) = Presence::enter(&shared.clients, settings.config.limits.connections_max) else {
        return refuse(shared, relay, "full");
    };
    let (read_ahead, left) = (ReadAhead::default(), settings.config.limits.proxy_header_timeout);
    tokio::spawn(
        Relayed {
            shared: shared.clone(),
            unrelayed: shared.unrelayed(&stream),
            presence,
            stream,
            relay,
            read_ahead,
            deadline: Instant::now() + left,
            waits: false,
        }
        .serve(),
    );
}

/// A connection of a relay whose PROXY protocol header has not come yet.
pub(crate) struct Relayed {
    shared: Arc<DispatcherShared>,
    presence: Presence,
    stream: TcpStream,
    relay: SocketAddr,
    read_ahead: ReadAhead,
    /// When the header has to be complete.
    deadline: Instant,
    /// As in [`Visit`].
    waits: bool,
    unrelayed: UnrelayedClient,
}

impl Relayed {
    /// A connection of this process's predecessor.
    pub(crate) fn restore(
        shared: &Arc<DispatcherShared>,
        presence: Presence,
        stream: TcpStream,
        passed: PassedRelayed,
    ) -> Self {
        let PassedRelayed { relay, read_ahead, left } = passed;
        let (read_ahead, deadline) = (ReadAhead::from(read_ahead), Instant::now() + left);
        let unrelayed = shared.unrelayed(&stream);
        Self { shared: shared.clone(), presence, stream, relay, read_ahead, deadline, waits: true, unrelayed }
    }

    /// Reads the client's address from the header, and serves the client.
    pub(crate) async fn serve(mut self) {
        let (mut successors, mut leaves) = (Successors::of(&self.shared), pin!(self.unrelayed.leaves()));
        let identified = loop {
            tokio::select! {
                identified = self.identify() => break identified,
                () = &mut leaves => return,
                to = successors.next() => if self.pass_on(to).await {
                    return;
                }
            }
        };
        let Self { shared, mut presence, stream, relay, read_ahead, deadline: _, waits, unrelayed } = self;
        let limits = shared.limits();
        let admitted = identified.and_then(|(address, server)| {
            admit(&shared, &mut presence, address, &limits)?;
            Ok((address, server))
        });
        match admitted {
            Ok((address, server)) => {
                Visit { shared, presence, stream, address, server, read_ahead, waits, unrelayed }.serve().await;
            }
            Err(reason) => refuse(&shared, relay, reason),
        }
    }

    /// Returns the client's address and the address it connected to.
    async fn identify(&mut self) -> Result<(SocketAddr, SocketAddr), &'static str> {
        let header = match timeout_at(self.deadline, self.read_ahead.proxy_header(&self.stream)).await {
            Ok(Ok(header)) => header,
            Ok(Err(error)) => {
                tracing::info!(relay = %self.relay, cause = %error, "cannot read the PROXY protocol header");
                return Err("proxy_header");
            }
            Err(_) => return Err("proxy_header_slow"),
        };
        match header {
            Header::Tcp { client, server, .. } => Ok((client, server)),
            // The relay opened the connection for itself, or has no address to report.
            Header::Local | Header::Unspecified => {
                Ok((self.relay, self.stream.local_addr().map_err(|_| "client_gone")?))
            }
        }
    }

    /// Passes the connection to a successor of this process. Returns whether the successor has it.
    async fn pass_on(&self, to: ToSuccessor) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let passed = PassedRelayed { relay: self.relay, read_ahead: self.read_ahead.bytes().to_vec(), left };
        pass_on(to, &Passed::Relayed(passed), &[&self.stream]).await
    }
}

/// A client that was admitted and is not yet connected to an agent or backend.
pub(crate) struct Visit {
    shared: Arc<DispatcherShared>,
    presence: Presence,
    stream: TcpStream,
    address: SocketAddr,
    /// The address that the client connected to.
    server: SocketAddr,
    read_ahead: ReadAhead,
    /// Whether this process has just begun, and agents link to it soon.
    waits: bool,
    /// Behind the stream: the gate closes when no client is left.
    unrelayed: UnrelayedClient,
}

enum Destination {
    Agent(Found),
    Backend(Arc<Route>, TcpStream),
}

impl Visit {
    /// A client of this process's predecessor.
    pub(crate) fn restore(shared: &Arc<DispatcherShared>, presence: Presence, client: Client) -> Self {
        let Client { stream, address, server, read_ahead } = client;
        let (read_ahead, unrelayed) = (ReadAhead::from(read_ahead), shared.unrelayed(&stream));
        Self { shared: shared.clone(), presence, stream, address, server, read_ahead, waits: true, unrelayed }
    }

    pub(crate) async fn serve(mut self) {
        let (mut successors, mut leaves) = (Successors::of(&self.shared), pin!(self.unrelayed.leaves()));
        let destination = loop {
            tokio::select! {
                connected = self.connect() => break connected,
                // The drop of the socket resets the connection.
                () = &mut leaves => return,
                to = successors.next() => if self.pass_on(to).await {
                    return;
                }
            }
        };
        let destination = match destination {
            Ok(destination) => destination,
            Err(reason) => return refuse(&self.shared, self.address, reason),
        };
        let Self { shared, stream, address, server, read_ahead, presence: _presence, waits: _, unrelayed } = self;
        let client = Client { stream, address, server, read_ahead: read_ahead.into_bytes() };
        match destination {
            Destination::Agent(found) => {
                let driver = Box::new(RelayDriver::new(&shared, client, found));
                // The table has it from here on.
                drop(unrelayed);
                driver.run().await;
            }
            Destination::Backend(route, backend) => {
                shared.metrics.passed_through.inc();
                let relay = Box::new(route.relay(client, backend, &shared.limits()));
                Box::pin(relay.run(&shared, unrelayed)).await;
            }
        }
    }

    /// Passes the client to a successor of this process. Returns whether the successor has it.
    async fn pass_on(&self, to: ToSuccessor) -> bool {
        let read_ahead = self.read_ahead.bytes().to_vec();
        let passed = PassedClient { address: self.address, server: self.server, read_ahead };
        pass_on(to, &Passed::Client(passed), &[&self.stream]).await
    }

    async fn connect(&mut self) -> Result<Destination, &'static str> {
        if let Some(route) = self.route().await? {
            let backend = route.connect(&self.shared.limits()).await.ok_or("no_backend")?;
            return Ok(Destination::Backend(route, backend));
        }
        if self.waits {
            self.shared.until_available(None).await;
        }
        self.connect_to_agent().await.map(Destination::Agent)
    }

    /// The passthrough route for the server name that the client sends, if there is one. Without any routes, the
    /// dispatcher does not wait for a name.
    async fn route(&mut self) -> Result<Option<Arc<Route>>, &'static str> {
        let passthrough = self.shared.agents.settings().passthrough.clone();
        if passthrough.is_empty() {
            return Ok(None);
        }
        let limit = self.shared.limits().handshake_timeout;
        match timeout(limit, self.read_ahead.server_name(&self.stream)).await {
            Ok(Ok(name)) => Ok(name.and_then(|name| passthrough.route(&name).cloned())),
            Ok(Err(_)) => Err("client_gone"),
            Err(_) => Err("hello_slow"),
        }
    }

    /// Finds an agent for the client, and waits in the queue if there is one.
    async fn connect_to_agent(&mut self) -> Result<Found, &'static str> {
        let client = self.address.ip();
        let assignment = tokio::select! {
            biased;
            assigned = self.shared.agents.place(client, &self.shared.metrics) => assigned?,
            () = self.read_ahead.until_gone(&self.stream) => return Err("client_gone"),
        };
        find_leg(&self.shared, client, assignment, LegChoice::Any).await
    }
}
