//! Accepting clients.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use watari_sys::{accept_each, tcp};
use watari_wire::NodeName;

use crate::Shared;
use crate::relay::{Client, Leg, Relay};

/// How many agents are tried for one client.
const LEGS_TRIED_MAX: usize = 3;

/// Accepts on `listener` until `shutdown`.
pub(crate) fn start(
    shared: &Arc<Shared>,
    listener: std::net::TcpListener,
    shutdown: CancellationToken,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let shared = shared.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = accept_each(&listener, "a client", |client, address| admit(&shared, client, address)) => {}
            () = shutdown.cancelled() => {}
        }
    });
    Ok(())
}

fn admit(shared: &Arc<Shared>, client: TcpStream, address: SocketAddr) {
    tcp::reset_on_close(&client);
    let Ok(place) = shared.places.clone().try_acquire_owned() else {
        return shared.metrics.count_refused("full");
    };
    shared.metrics.count_accepted();
    shared.metrics.connections.inc();
    let shared = shared.clone();
    tokio::spawn(async move {
        match connect(&shared, &client, address).await {
            Ok((server, leg, bulk)) => {
                Relay::new(&shared, Client { stream: client, address, server }, leg).run(bulk).await;
            }
            Err(reason) => {
                tracing::debug!(client = %address, reason, "client refused");
                shared.metrics.count_refused(reason);
            }
        }
        shared.metrics.connections.dec();
        drop(place);
    });
}

/// Finds an agent for a client and connects a leg to it. Returns the address the client connected to, the leg, and the
/// agent its data shall go to if that is another.
async fn connect(
    shared: &Shared,
    client: &TcpStream,
    address: SocketAddr,
) -> Result<(SocketAddr, Leg, Option<NodeName>), &'static str> {
    tcp::prepare(client).map_err(|_| "client_gone")?;
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
