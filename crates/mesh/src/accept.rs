//! Accepts links from the peers that dial this node.
//!
//! Until a peer has said hello over TLS, its connection has one of a bounded number of places
//! ([`watari_sys::Unidentified`]), and may have to make room for a newer one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tracing::warn;
use watari_sys::{CrowdedOut, Unidentified, UnidentifiedLimits, UnidentifiedPlace};

use crate::hello::Established;
use crate::peer::PeerEntry;
use crate::{LinkError, Shared, hello, link};

/// Where the system has no descriptor left, it has none a moment later either.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

pub(crate) async fn run(shared: Arc<Shared>, listener: TcpListener) {
    let (max, per_address_max) = (shared.limits.unidentified_max, shared.limits.unidentified_per_address_max);
    let unidentified = Unidentified::new(UnidentifiedLimits { known_max: max, max, per_address_max });
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.shutdown.cancelled() => return,
        };
        match accepted {
            Ok((tcp, address)) => {
                let place = unidentified.enter(address.ip(), shared.is_address_of_member(address.ip()));
                shared.tasks.spawn(serve(Arc::clone(&shared), tcp, address, place));
                // Lets the task see the first bytes of the peer before newer connections need its place.
                yield_now().await;
            }
            Err(error) => {
                warn!(%error, "cannot accept a link");
                sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }
}

async fn serve(
    shared: Arc<Shared>,
    tcp: TcpStream,
    address: SocketAddr,
    (place, crowded_out): (UnidentifiedPlace, CrowdedOut),
) {
    let outcome = tokio::select! {
        biased;
        outcome = timeout(shared.limits.handshake_max, identify(&shared, tcp, place)) => {
            outcome.unwrap_or(Err(LinkError::HandshakeTimeout))
        }
        () = crowded_out => Err(LinkError::CrowdedOut),
        () = shared.shutdown.cancelled() => return,
    };
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

/// Identifies the peer. `None`: it is a node that has introduced itself and that this one dials.
async fn identify(
    shared: &Arc<Shared>,
    tcp: TcpStream,
    place: UnidentifiedPlace,
) -> Result<Option<(Arc<PeerEntry>, Established)>, LinkError> {
    // Until its first byte, a connection takes no memory for TLS, and is closed first when a newer one needs its place.
    tcp.readable().await?;
    place.spoke();
    let accepted = hello::accept(shared, tcp).await?;
    place.identified();
    Ok(accepted)
}
