//! Keeps up the link to a peer that this node dials.

use std::sync::Arc;

use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use crate::backoff::{Backoff, random_u32};
use crate::error::LinkError;
use crate::hello::{self, Established};
use crate::link;
use crate::peer::PeerEntry;
use crate::shared::MeshShared;

pub(crate) async fn run(shared: Arc<MeshShared>, peer: Arc<PeerEntry>) {
    let mut backoff = Backoff::new(shared.limits.backoff_min, shared.limits.backoff_max);
    while !peer.end.is_cancelled() {
        match attempt(&shared, &peer).await {
            Ok(established) => backoff.after_link(link::run(&shared, &peer, established).await),
            Err(LinkError::Shutdown) => return,
            Err(error) => failed(&shared, &peer, &error),
        }
        tokio::select! {
            () = sleep(backoff.pause(random_u32())) => {}
            () = peer.dial.notified() => {}
            () = peer.end.cancelled() => {}
        }
    }
}

async fn attempt(shared: &MeshShared, peer: &PeerEntry) -> Result<Established, LinkError> {
    tokio::select! {
        outcome = timeout(shared.limits.handshake_max, hello::dial(shared, peer)) => {
            outcome.unwrap_or(Err(LinkError::HandshakeTimeout))
        }
        () = peer.end.cancelled() => Err(LinkError::Shutdown),
    }
}

/// Logs a failed attempt. Only a new error is a warning, because a peer may be down for long.
fn failed(shared: &MeshShared, peer: &PeerEntry, error: &LinkError) {
    shared.metrics.attempt_failed(error);
    if peer.set_error(error) {
        warn!(peer = %peer.name, address = %peer.address(), reason = error.label(), %error, "cannot establish a link");
    } else {
        debug!(peer = %peer.name, address = %peer.address(), reason = error.label(), %error, "still cannot establish a link");
    }
}
