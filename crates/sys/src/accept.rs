//! Accepting connections.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

/// How long accepting pauses when the process or the system has no file left.
const PAUSE_WITHOUT_FILES: Duration = Duration::from_millis(50);

/// Accepts for ever; shows each connection to `admit`, which must not block. `what` names them in the log.
pub async fn accept_each(listener: &TcpListener, what: &str, mut admit: impl FnMut(TcpStream, SocketAddr)) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => admit(stream, address),
            // One that is gone again harms nobody else.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::warn!(%error, what, "cannot accept");
                tokio::time::sleep(PAUSE_WITHOUT_FILES).await;
            }
        }
    }
}
