//! One end of a simulated TCP connection, for code that polls streams.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::network::{EndId, Network, Reset};

/// Closes when it is dropped, as a socket of a process that ends: by a reset, or by a FIN.
pub(crate) struct Socket {
    network: Network,
    end: EndId,
    resets_on_close: bool,
}

impl Socket {
    pub(crate) fn new(network: Network, end: EndId) -> Self {
        Self { network, end, resets_on_close: true }
    }

    /// `None`: it would block. 0 bytes: the stream has ended.
    pub(crate) fn read(&self, max: usize) -> Option<Result<Vec<u8>, Reset>> {
        self.network.read(self.end, max)
    }

    /// Returns the number of bytes taken. 0: it would block.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<usize, Reset> {
        self.network.write(self.end, bytes)
    }

    pub(crate) fn is_reset(&self) -> bool {
        self.network.is_reset(self.end)
    }

    pub(crate) fn shut_down(&self) {
        self.network.shut_down(self.end);
    }

    pub(crate) fn fin_on_close(&mut self) {
        self.resets_on_close = false;
    }

    pub(crate) fn reset_on_close(&mut self) {
        self.resets_on_close = true;
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.network.close(self.end, self.resets_on_close);
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, _cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.read(buf.remaining()) {
            None => Poll::Pending,
            Some(Ok(bytes)) => {
                buf.put_slice(&bytes);
                Poll::Ready(Ok(()))
            }
            Some(Err(Reset)) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, _cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.write(buf) {
            Ok(0) if !buf.is_empty() => Poll::Pending,
            Ok(taken) => Poll::Ready(Ok(taken)),
            Err(Reset) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shut_down();
        Poll::Ready(Ok(()))
    }
}
