//! Introductions of nodes that do not have each other's address.
//!
//! The node whose name sorts first dials. It cannot if it does not have the other's address. So a node that waits for a
//! peer connects to it and sends its own address. The peer answers with all members, and this connection ends. Then the
//! peer dials the node like any other.
//!
//! ```text
//!   newcomer z                        seed a
//!      | hello, members {z} ------------>|  z is a peer from now on
//!      |<------------------- hello ------|
//!      |<------ members {a, b, z} -------|  end
//!      |<================================|  a dials z, and so does b, to which a passes the news on
//! ```
//! So there is only one way in which links are established. Repeated introductions do not disturb a link. A new process
//! of a node also introduces itself, so that its peers do not wait before they dial again.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};
use tracing::{debug, info};
use watari_values::NodeName;
use watari_wire::LinkMessage;
use watari_wire::frame::Frame;

use crate::backoff::{Backoff, random_u32};
use crate::error::LinkError;
use crate::hello::{self, Established};
use crate::peer::PeerEntry;
use crate::shared::MeshShared;

/// The time after which a peer that has this node's address has usually dialed it.
const AFTER: Duration = Duration::from_secs(1);

/// Introduces this node to a peer that should dial it, each time there is no link for a while.
pub(crate) async fn run(shared: Arc<MeshShared>, peer: Arc<PeerEntry>) {
    let after = AFTER.min(shared.limits.backoff_max);
    let mut backoff = Backoff::new(after, shared.limits.backoff_max);
    loop {
        tokio::select! {
            () = sleep(backoff.pause(random_u32())) => {}
            () = peer.end.cancelled() => return,
        }
        if peer.link().is_some() {
            backoff = Backoff::new(after, shared.limits.backoff_max);
            continue;
        }
        once(Arc::clone(&shared), Arc::clone(&peer)).await;
    }
}

/// Introduces this node to a peer, which then dials it.
pub(crate) async fn once(shared: Arc<MeshShared>, peer: Arc<PeerEntry>) {
    let outcome = tokio::select! {
        outcome = timeout(shared.limits.handshake_max, introduce(&shared, &peer)) => outcome,
        () = peer.end.cancelled() => return,
    };
    if let Err(error) = outcome.unwrap_or(Err(LinkError::HandshakeTimeout)) {
        shared.metrics.attempt_failed(&error);
        peer.set_error(&error);
        debug!(peer = %peer.name, address = %peer.address(), reason = error.label(), %error, "introduction failed");
    }
}

async fn introduce(shared: &Arc<MeshShared>, peer: &PeerEntry) -> Result<(), LinkError> {
    let mut connection = hello::dial(shared, peer).await?;
    hello::send_message(&mut connection.stream, &shared.members_message()).await?;
    receive_members(shared, &peer.name, &mut connection).await
}

/// Adds a certified node as a peer, after it has sent its address. `None`: this node dials it.
pub(crate) async fn welcome(
    shared: &Arc<MeshShared>,
    name: NodeName,
    mut connection: Established,
) -> Result<Option<(Arc<PeerEntry>, Established)>, LinkError> {
    receive_members(shared, &name, &mut connection).await?;
    let Some(peer) = shared.peer(&name) else { return Err(LinkError::NoIntroduction) };
    info!(peer = %name, address = %peer.address(), "introduced");
    if !shared.dials(&name) {
        return Ok(Some((peer, connection)));
    }
    hello::send_message(&mut connection.stream, &shared.members_message()).await?;
    connection.stream.shutdown().await?;
    peer.dial.notify_one();
    Ok(None)
}

/// Receives the members. They are the first message after the hello of an introduction.
async fn receive_members(
    shared: &Arc<MeshShared>,
    from: &NodeName,
    connection: &mut Established,
) -> Result<(), LinkError> {
    match hello::next_frame(&mut connection.stream, &mut connection.inbox).await? {
        Frame::Link(LinkMessage::Members(members)) => {
            shared.learn(from, members);
            Ok(())
        }
        _ => Err(LinkError::NoIntroduction),
    }
}
