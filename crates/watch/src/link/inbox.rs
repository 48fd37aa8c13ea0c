//! Messages from the judge.

use tokio::io::AsyncRead;
use tokio::sync::mpsc;
use tokio::task::{self, AbortHandle};

use super::wire::{self, FromJudge, TalkError};

/// Reads messages of the judge in a task of its own, so that a partly read message is not lost when another event comes
/// first.
pub(super) struct Inbox {
    received: mpsc::Receiver<Result<FromJudge, TalkError>>,
    reader: AbortHandle,
}

impl Inbox {
    pub(super) fn read<R: AsyncRead + Unpin + Send + 'static>(mut from: R) -> Self {
        let (sender, received) = mpsc::channel(1);
        let reader = task::spawn(async move {
            loop {
                let message = wire::receive(&mut from).await;
                let last = message.is_err();
                if sender.send(message).await.is_err() || last {
                    return;
                }
            }
        });
        Self { received, reader: reader.abort_handle() }
    }

    /// The next message. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<FromJudge, TalkError> {
        self.received.recv().await.unwrap_or(Err(TalkError::Closed))
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
