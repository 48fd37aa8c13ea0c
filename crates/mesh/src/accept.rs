//! Accepts links from the peers that dial this node.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::{LinkError, Shared, hello, link};

/// Where the system has no descriptor left, it has none a moment later either.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

pub(crate) async fn run(shared: Arc<Shared>, listener: TcpListener) {
    let strangers = Arc::new(Semaphore::new(shared.limits.strangers_max));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.shutdown.cancelled() => return,
        };
        match accepted {
            Ok((tcp, address)) => welcome(&shared, tcp, address, &strangers),
            Err(error) => {
                warn!(%error, "cannot accept a link");
                sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }
}

fn welcome(shared: &Arc<Shared>, tcp: TcpStream, address: SocketAddr, strangers: &Arc<Semaphore>) {
    if let Ok(permit) = Arc::clone(strangers).try_acquire_owned() {
        shared.tasks.spawn(serve(Arc::clone(shared), tcp, address, permit));
    } else {
        shared.metrics.connection_refused("too_many_strangers");
        warn!(%address, reason = "too_many_strangers", "connection refused");
    }
}

async fn serve(shared: Arc<Shared>, tcp: TcpStream, address: SocketAddr, permit: OwnedSemaphorePermit) {
    let outcome = tokio::select! {
        outcome = timeout(shared.limits.handshake_max, hello::accept(&shared, tcp)) => {
            outcome.unwrap_or(Err(LinkError::HandshakeTimeout))
        }
        () = shared.shutdown.cancelled() => return,
    };
    drop(permit);
    match outcome {
        Ok(Some((peer, established))) => {
            link::run(&shared, &peer, established).await;
        }
        Ok(None) => {}
        Err(error) => {
            shared.metrics.connection_refused(error.label());
            warn!(%address, reason = error.label(), %error, "connection refused");
        }
    }
}
