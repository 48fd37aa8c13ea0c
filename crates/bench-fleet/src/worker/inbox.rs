//! Messages from the peer.

use serde::de::DeserializeOwned;
use tokio::io::AsyncRead;
use tokio::sync::mpsc;
use tokio::task::{self, AbortHandle};
use tokio::time::timeout;

use super::wire::{self, SILENCE_MAX, TalkError};

/// Messages from the peer. A task of its own reads them, so that no partial message is lost if the receiver handles
/// another event first. The inbox gives up a peer that sends nothing for [`SILENCE_MAX`].
pub(crate) struct Inbox<T> {
    received: mpsc::Receiver<Result<T, TalkError>>,
    reader: AbortHandle,
}

impl<T: DeserializeOwned + Send + 'static> Inbox<T> {
    pub(crate) fn read<R: AsyncRead + Unpin + Send + 'static>(mut from: R) -> Self {
        let (sender, received) = mpsc::channel(1);
        let reader = task::spawn(async move {
            loop {
                let message = timeout(SILENCE_MAX, wire::receive(&mut from)).await.unwrap_or(Err(TalkError::Silent));
                let last = message.is_err();
                if sender.send(message).await.is_err() || last {
                    return;
                }
            }
        });
        Self { received, reader: reader.abort_handle() }
    }

    /// The next message. Cancel-safe: no message is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<T, TalkError> {
        self.received.recv().await.unwrap_or(Err(TalkError::Closed))
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
