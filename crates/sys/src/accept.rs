//! Accepting connections.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::tcp;

/// How long accepting pauses when the process or the system has no file left.
const PAUSE_WITHOUT_FILES: Duration = Duration::from_millis(50);

/// A task that accepts on a listener.
pub struct Acceptor {
    task: JoinHandle<()>,
    /// The task's own: when that ends, nobody listens any more.
    listener: Weak<TcpListener>,
}

impl Acceptor {
    /// Waits until the task has ended, and nobody listens there any more.
    pub async fn ended(self) {
        // One that failed listens no more either.
        let _ = self.task.await;
    }

    /// What it accepts from now on inherits this (see [`tcp::prepare_listener`]).
    pub fn set_user_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.listener.upgrade().map_or(Ok(()), |listener| tcp::set_user_timeout(&*listener, Some(timeout)))
    }
}

/// Accepts on `listener` until `shutdown`, in a task of its own, and shows each connection to `admit`, which must not
/// block. `what` names them in the log. Must be called in a tokio runtime.
pub fn accept_until(
    shutdown: &CancellationToken,
    listener: std::net::TcpListener,
    what: &'static str,
    admit: impl FnMut(TcpStream, SocketAddr) + Send + 'static,
) -> io::Result<Acceptor> {
    listener.set_nonblocking(true)?;
    let accepting = Arc::new(TcpListener::from_std(listener)?);
    let listener = Arc::downgrade(&accepting);
    let shutdown = shutdown.clone();
    let task = tokio::spawn(async move {
        tokio::select! {
            () = accept_each(&accepting, what, admit) => {}
            () = shutdown.cancelled() => {}
        }
    });
    Ok(Acceptor { task, listener })
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use socket2::SockRef;
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_listener_changes_its_user_timeout_and_is_closed_at_the_end() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let (shutdown, (show, mut accepted)) = (CancellationToken::new(), mpsc::unbounded_channel());
        let acceptor = accept_until(&shutdown, socket, "a test", move |stream, _| show.send(stream).unwrap()).unwrap();
        for seconds in [5, 7] {
            acceptor.set_user_timeout(Duration::from_secs(seconds)).unwrap();
            let _client = TcpStream::connect(address).await.unwrap();
            let stream = timeout(PATIENCE, accepted.recv()).await.unwrap().unwrap();
            assert_eq!(SockRef::from(&stream).tcp_user_timeout().unwrap(), Some(Duration::from_secs(seconds)));
        }
        shutdown.cancel();
        timeout(PATIENCE, acceptor.ended()).await.unwrap();
        assert_eq!(TcpStream::connect(address).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
