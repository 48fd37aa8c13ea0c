//! Accepting connections.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long accepting pauses when the process or the system has no file left.
const PAUSE_WITHOUT_FILES: Duration = Duration::from_millis(50);

/// Accepts on `listener` until `shutdown`, in a task of its own, and shows each connection to `admit`, which must not
/// block. `what` names them in the log. When the task has ended, nobody listens there any more. Must be called in a
/// tokio runtime.
pub fn accept_until(
    shutdown: &CancellationToken,
    listener: std::net::TcpListener,
    what: &'static str,
    admit: impl FnMut(TcpStream, SocketAddr) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let shutdown = shutdown.clone();
    Ok(tokio::spawn(async move {
        tokio::select! {
            () = accept_each(&listener, what, admit) => {}
            () = shutdown.cancelled() => {}
        }
    }))
}

async fn accept_each(listener: &TcpListener, what: &str, mut admit: impl FnMut(TcpStream, SocketAddr)) {
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
