//! Nodes that do not know each other yet.
//!
//! The node whose name sorts first dials, and cannot where it does not know the other. So who waits for a peer in vain
//! connects to it and says where it listens; it is told who else there is, and that connection ends. Then it is dialed
//! as by any other peer.
//!
//! ```text
//!   newcomer z                        seed a
//!      | hello, members {z} ------------>|  z is a peer from now on
//!      |<------------------- hello ------|
//!      |<------ members {a, b, z} -------|  end
//!      |<================================|  a dials z, and so does b, which a tells
//! ```
//! So there is one way only in which links come to be, and however often who introduces itself, no link is disturbed.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};
use tracing::{debug, info};
use watari_wire::frame::Frame;
use watari_wire::{LinkMessage, NodeName};

use crate::backoff::{Backoff, random_u32};
use crate::hello::{self, Established};
use crate::peer::PeerEntry;
use crate::{LinkError, Shared};

/// Who knows this node has mostly dialed it by then.
const AFTER: Duration = Duration::from_secs(1);

/// Introduces this node to a peer that should dial it, whenever that has not for a while.
pub(crate) async fn run(shared: Arc<Shared>, peer: Arc<PeerEntry>) {
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
        let outcome = tokio::select! {
            outcome = timeout(shared.limits.handshake_max, introduce(&shared, &peer)) => outcome,
            () = peer.end.cancelled() => return,
        };
        if let Err(error) = outcome.unwrap_or(Err(LinkError::HandshakeTimeout)) {
            shared.metrics.attempt_failed(&error);
            peer.set_error(&error);
            debug!(peer = %peer.name, address = %peer.address(), reason = error.label(), %error, "not introduced");
        }
    }
}

async fn introduce(shared: &Arc<Shared>, peer: &PeerEntry) -> Result<(), LinkError> {
    let mut connection = hello::dial(shared, peer).await?;
    hello::say(&mut connection.stream, &shared.told()).await?;
    hear(shared, &peer.name, &mut connection).await
}

/// Makes a node a peer that has a certificate and says where it listens; `None`: it is the one to be dialed.
pub(crate) async fn welcome(
    shared: &Arc<Shared>,
    name: NodeName,
    mut connection: Established,
) -> Result<Option<(Arc<PeerEntry>, Established)>, LinkError> {
    hear(shared, &name, &mut connection).await?;
    let Some(peer) = shared.peer(&name) else { return Err(LinkError::NoIntroduction) };
    info!(peer = %name, address = %peer.address(), "introduced");
    if !shared.dials(&name) {
        return Ok(Some((peer, connection)));
    }
    hello::say(&mut connection.stream, &shared.told()).await?;
    connection.stream.shutdown().await?;
    peer.dial.notify_one();
    Ok(None)
}

/// The first that is said behind a hello is who is a member.
async fn hear(shared: &Arc<Shared>, from: &NodeName, connection: &mut Established) -> Result<(), LinkError> {
    match hello::next_frame(&mut connection.stream, &mut connection.inbox).await? {
        Frame::Link(LinkMessage::Members(told)) => {
            shared.learn(from, told);
            Ok(())
        }
        _ => Err(LinkError::NoIntroduction),
    }
}
