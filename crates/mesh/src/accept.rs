//! Accepts links from the peers that dial this node, and connections for HTTP.
//!
//! Until a peer has completed TLS and sent its hello, its connection is unidentified. For HTTP, there is no hello: TLS
//! is enough. An unidentified connection has one of a limited number of places ([`watari_sys::Unidentified`]), and may
//! be closed to make room for a newer one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};
use watari_sys::{CrowdedOut, Unidentified, UnidentifiedLimits, UnidentifiedPlace};

use crate::error::LinkError;
use crate::hello::Established;
use crate::http_setup::is_http;
use crate::peer::PeerEntry;
use crate::shared::MeshShared;
use crate::{hello, http, introduce, link};

/// The pause after a failed accept. If the process has no file descriptor left, an immediate retry fails too.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

pub(crate) async fn run(shared: Arc<MeshShared>, listener: TcpListener) {
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
                // Lets the task read the peer's first bytes before newer connections need its place.
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
    shared: Arc<MeshShared>,
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
        Err(error) => refused(&shared, address, &error),
    }
}

/// A full handler is usual under load: its peers go on without this node.
fn refused(shared: &MeshShared, address: SocketAddr, error: &LinkError) {
    shared.metrics.connection_refused(error.label());
    if matches!(error, LinkError::HttpFull | LinkError::NoHttpHandler) {
        debug!(%address, reason = error.label(), %error, "HTTP connection refused");
    } else {
        warn!(%address, reason = error.label(), %error, "connection refused");
    }
}

/// Identifies the peer. `None`: the connection is for HTTP, or the peer has introduced itself and this node dials it.
async fn identify(
    shared: &Arc<MeshShared>,
    tcp: TcpStream,
    place: UnidentifiedPlace,
) -> Result<Option<(Arc<PeerEntry>, Established)>, LinkError> {
    let (found, known) = hello::identify(shared, tcp, &place).await?;
    if is_http(&found) {
        http::serve(shared, found, known)?;
        place.identified();
        return Ok(None);
    }
    let (name, known, established) = hello::accept(shared, found, known).await?;
    let accepted = match known {
        Some(peer) => Some((peer, established)),
        None => introduce::welcome(shared, name, established).await?,
    };
    place.identified();
    Ok(accepted)
}
