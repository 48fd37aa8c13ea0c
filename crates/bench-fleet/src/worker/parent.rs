//! A worker process that the controller started.

use std::io;
use std::os::fd::AsFd;

use tokio::net::unix::pipe;
use watari_link::TalkError;

use super::serve::serve;

/// Serves the process that started this one, over the pipes that are its standard input and output. Returns when the
/// load is over or the parent is gone. Must be called in a tokio runtime.
pub async fn serve_parent() -> io::Result<()> {
    let from = pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
    let to = pipe::Sender::from_owned_fd(io::stdout().as_fd().try_clone_to_owned()?)?;
    match serve(from, to, None, ()).await {
        // The parent is gone and cannot receive an error.
        Ok(()) | Err(TalkError::Closed) => Ok(()),
        Err(error) => Err(io::Error::other(error)),
    }
}
