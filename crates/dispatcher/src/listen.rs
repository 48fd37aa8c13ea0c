//! Accepting clients.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use watari_wire::NodeName;

use crate::relay::{Client, Leg, Relay};
use crate::{Shared, socket};

/// How long accepting pauses when the process or the system has no file left.
const PAUSE_WITHOUT_FILES: Duration = Duration::from_millis(50);

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
            () = accept(&shared, &listener) => {}
            () = shutdown.cancelled() => {}
        }
    });
    Ok(())
}

async fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    loop {
        match listener.accept().await {
            Ok((client, address)) => {
                socket::reset_on_close(&client);
                admit(shared, client, address);
            }
            // A client that is gone again harms nobody else.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept a client");
                tokio::time::sleep(PAUSE_WITHOUT_FILES).await;
            }
        }
    }
}

fn admit(shared: &Arc<Shared>, client: TcpStream, address: SocketAddr) {
    let connections = usize::try_from(shared.metrics.connections.get()).unwrap_or(0);
    if connections >= shared.limits.connections_max {
        shared.metrics.count_refused("full");
        return;
    }
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
    });
}

/// Finds an agent for a client and connects a leg to it. Returns the address the client connected to, the leg, and the
/// agent its data shall go to if that is another.
async fn connect(
    shared: &Shared,
    client: &TcpStream,
    address: SocketAddr,
) -> Result<(SocketAddr, Leg, Option<NodeName>), &'static str> {
    socket::prepare(client).map_err(|_| "client_gone")?;
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
