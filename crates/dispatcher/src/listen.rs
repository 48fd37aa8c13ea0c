//! Accepting clients.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watari_sys::{accept_until, tcp};
use watari_wire::NodeName;

use crate::Shared;
use crate::relay::{Client, Leg, Relay};

/// How many agents are tried for one client.
const LEGS_TRIED_MAX: usize = 3;

/// Accepts on `listener` until `shutdown`, in the runtime that this is called in: a connection stays there to its end.
pub(crate) fn start(
    shared: &Arc<Shared>,
    listener: std::net::TcpListener,
    shutdown: &CancellationToken,
) -> io::Result<JoinHandle<()>> {
    tcp::prepare_listener(&listener, Some(shared.limits.user_timeout))?;
    let shared = shared.clone();
    accept_until(shutdown, listener, "a client", move |client, address| admit(&shared, client, address))
}

fn admit(shared: &Arc<Shared>, client: TcpStream, address: SocketAddr) {
    let Ok(place) = shared.places.clone().try_acquire_owned() else {
        return refuse(shared, address, "full");
    };
    let Some(share) = Clients::admit(shared, address.ip()) else {
        return refuse(shared, address, "client_full");
    };
    shared.metrics.count_accepted();
    let shared = shared.clone();
    tokio::spawn(async move {
        let _places = (place, share);
        match connect(&shared, &client, address).await {
            Ok((server, leg, bulk)) => {
                Relay::new(&shared, Client { stream: client, address, server }, leg).run(bulk).await;
            }
            Err(reason) => refuse(&shared, address, reason),
        }
    });
}

/// Says why a client is not served. Its socket is reset when it is dropped.
fn refuse(shared: &Shared, client: SocketAddr, reason: &'static str) {
    tracing::info!(%client, reason, "client refused");
    shared.metrics.count_refused(reason);
}

/// How many connections each client address has.
#[derive(Default)]
pub(crate) struct Clients {
    connections: Mutex<HashMap<IpAddr, usize>>,
}

/// One of the connections of a client address.
struct Share {
    shared: Arc<Shared>,
    client: IpAddr,
}

impl Clients {
    /// One more for `client`, unless it has as many as one may have.
    fn admit(shared: &Arc<Shared>, client: IpAddr) -> Option<Share> {
        let client = client.to_canonical();
        let mut connections = shared.clients.connections();
        let count = connections.entry(client).or_default();
        if *count >= shared.limits.connections_per_client_max {
            return None;
        }
        *count += 1;
        shared.metrics.connections.inc();
        Some(Share { shared: shared.clone(), client })
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shared.metrics.connections.dec();
        let mut connections = self.shared.clients.connections();
        if let Some(count) = connections.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                connections.remove(&self.client);
            }
        }
    }
}

/// Finds an agent for a client and connects a leg to it. Returns the address the client connected to, the leg, and the
/// agent its data shall go to if that is another.
async fn connect(
    shared: &Shared,
    client: &TcpStream,
    address: SocketAddr,
) -> Result<(SocketAddr, Leg, Option<NodeName>), &'static str> {
    let server = client.local_addr().map_err(|_| "client_gone")?;
    let mut failed = Vec::new();
    while failed.len() < LEGS_TRIED_MAX {
        let assignment = shared.agents.assign(address.ip(), &failed).ok_or("no_agent")?;
        match shared.agents.connect(&assignment.handshake).await {
            Ok(stream) => return Ok((server, Leg { agent: assignment.handshake, stream }, assignment.bulk)),
            Err(error) => {
                tracing::warn!(agent = %assignment.handshake, %error, "no leg");
                failed.push(assignment.handshake);
            }
        }
    }
    Err("no_leg")
}
