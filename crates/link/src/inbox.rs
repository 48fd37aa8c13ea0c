//! Messages from the peer.

use tokio::io::AsyncRead;
use tokio::sync::mpsc;
use tokio::task::{self, AbortHandle};

use crate::messages::{LinkFrame, TalkError, receive};

/// Reads messages of the peer in a task of its own, so that a partly read message is not lost when the receiver handles
/// another event first. Ends with an error if the peer sends nothing for [`SILENCE_MAX`](crate::SILENCE_MAX).
pub struct Inbox<T> {
    received: mpsc::Receiver<Result<T, TalkError>>,
    reader: AbortHandle,
}

impl<T: LinkFrame + Send + 'static> Inbox<T> {
    pub fn read<R: AsyncRead + Unpin + Send + 'static>(mut from: R) -> Self {
        let (sender, received) = mpsc::channel(1);
        let reader = task::spawn(async move {
            loop {
                let message = receive(&mut from).await;
                let last = message.is_err();
                if sender.send(message).await.is_err() || last {
                    return;
                }
            }
        });
        Self { received, reader: reader.abort_handle() }
    }

    /// The next message. Cancel-safe: no message is lost when the future is dropped.
    pub async fn next(&mut self) -> Result<T, TalkError> {
        self.received.recv().await.unwrap_or(Err(TalkError::Closed))
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
