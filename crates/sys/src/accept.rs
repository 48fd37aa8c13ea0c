//! Accept loops.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::tcp;

/// The pause of an accept loop after an error, such as a lack of file descriptors.
const PAUSE_WITHOUT_FILES: Duration = Duration::from_millis(50);

/// An accept loop, which runs in a task.
pub struct Acceptor {
    task: JoinHandle<()>,
    /// The task owns the listener: when the task ends, the listener is closed.
    listener: Weak<TcpListener>,
}

impl Acceptor {
    /// Accepts on `listener` in a new task until `shutdown`. Passes each connection to `admit`, which must not block.
    /// `what` describes the peers in the log. Requires a tokio runtime.
    pub fn start(
        shutdown: &CancellationToken,
        listener: TcpListener,
        what: &'static str,
        admit: impl FnMut(TcpStream, SocketAddr) + Send + 'static,
    ) -> Self {
        let accepting = Arc::new(listener);
        let listener = Arc::downgrade(&accepting);
        let shutdown = shutdown.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                () = accept_each(&accepting, what, admit) => {}
                () = shutdown.cancelled() => {}
            }
        });
        Self { task, listener }
    }

    /// Waits until the task has ended and the listener is closed.
    pub async fn ended(self) {
        // A task that panicked has closed its listener too.
        let _ = self.task.await;
    }

    /// Another handle of the listener. `None`: the task has ended.
    pub fn listener(&self) -> Option<io::Result<std::net::TcpListener>> {
        let listener = self.listener.upgrade()?;
        Some(listener.as_fd().try_clone_to_owned().map(std::net::TcpListener::from))
    }

    /// Sets the timeout of connections accepted from now on, which inherit it (see [`tcp::prepare_listener`]).
    pub fn set_user_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.listener.upgrade().map_or(Ok(()), |listener| tcp::set_user_timeout(&*listener, Some(timeout)))
    }
}

/// Starts an [`Acceptor`] on a listener of the standard library.
pub fn accept_until(
    shutdown: &CancellationToken,
    listener: std::net::TcpListener,
    what: &'static str,
    admit: impl FnMut(TcpStream, SocketAddr) + Send + 'static,
) -> io::Result<Acceptor> {
    listener.set_nonblocking(true)?;
    Ok(Acceptor::start(shutdown, TcpListener::from_std(listener)?, what, admit))
}

async fn accept_each(listener: &TcpListener, what: &str, mut admit: impl FnMut(TcpStream, SocketAddr)) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => admit(stream, address),
            // This connection was reset before it was accepted. Others are not affected.
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

    const WAIT_MAX: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_listener_changes_its_user_timeout_and_is_closed_at_the_end() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let (shutdown, (show, mut accepted)) = (CancellationToken::new(), mpsc::unbounded_channel());
        let acceptor = accept_until(&shutdown, socket, "a test", move |stream, _| show.send(stream).unwrap()).unwrap();
        for seconds in [5, 7] {
            acceptor.set_user_timeout(Duration::from_secs(seconds)).unwrap();
            let _client = TcpStream::connect(address).await.unwrap();
            let stream = timeout(WAIT_MAX, accepted.recv()).await.unwrap().unwrap();
            assert_eq!(SockRef::from(&stream).tcp_user_timeout().unwrap(), Some(Duration::from_secs(seconds)));
        }
        shutdown.cancel();
        timeout(WAIT_MAX, acceptor.ended()).await.unwrap();
        assert_eq!(TcpStream::connect(address).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
