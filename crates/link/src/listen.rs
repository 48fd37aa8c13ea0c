//! The accept loop of a listener for sensors or controllers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;
use tracing::warn;
use watari_sys::{CrowdedOut, Unidentified, UnidentifiedPlace};

/// Accepts connections, and runs `serve` for each in a task of its own, until this future is dropped, which ends all
/// tasks. `whom` names the peers in the log.
pub async fn accept_all<Serving: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    unidentified: &Arc<Unidentified>,
    whom: &str,
    serve: impl Fn(TcpStream, SocketAddr, (UnidentifiedPlace, CrowdedOut)) -> Serving,
) {
    let mut served = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((tcp, address)) => {
                    let place = unidentified.enter(address.ip(), false);
                    served.spawn(serve(tcp, address, place));
                    // Lets the task see the first bytes of the peer before newer connections need its place.
                    yield_now().await;
                }
                Err(error) => {
                    warn!(%error, "cannot accept {whom}");
                    sleep(PAUSE_AFTER_ERROR).await;
                }
            },
            Some(_) = served.join_next() => {}
        }
    }
}

/// If the system has no file descriptor left, an immediate retry would fail too.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);
