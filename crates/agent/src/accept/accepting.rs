//! The listener for legs, while legs are accepted and while they are not.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use watari_sys::Acceptor;

use super::legs::Legs;

/// Legs, and their listener. It stays open while none is accepted, so that dispatchers wait.
pub(crate) struct Accepting {
    legs: Arc<Legs>,
    listener: TcpListener,
    shutdown: CancellationToken,
    /// The accept loop, and what ends it.
    accepts: Mutex<Option<(Acceptor, CancellationToken)>>,
}

impl Accepting {
    pub(crate) fn new(legs: Legs, listener: TcpListener, shutdown: &CancellationToken) -> Self {
        Self { legs: Arc::new(legs), listener, shutdown: shutdown.clone(), accepts: Mutex::default() }
    }

    pub(crate) fn legs(&self) -> &Arc<Legs> {
        &self.legs
    }

    /// Another handle of the listener.
    pub(crate) fn listener(&self) -> io::Result<TcpListener> {
        self.listener.try_clone()
    }

    /// Starts accepting, unless legs are accepted. Requires a tokio runtime.
    pub(crate) async fn begin(&self) -> io::Result<()> {
        let mut accepts = self.accepts.lock().await;
        if accepts.is_none() {
            let until = self.shutdown.child_token();
            *accepts = Some((self.legs.accept(self.listener()?, &until)?, until));
        }
        Ok(())
    }

    /// Stops accepting.
    pub(crate) async fn end(&self) {
        if let Some((acceptor, until)) = self.accepts.lock().await.take() {
            until.cancel();
            acceptor.ended().await;
        }
    }
}
