//! The TLS layer of an agent after the handshake.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use watari_connection::Plaintext;
use watari_stream::TlsStream;

use crate::socket::Socket;

/// The stream of a connection at its agent.
pub(crate) struct LegStream {
    pub(crate) tls: TlsStream<Socket>,
}

impl LegStream {
    pub(crate) fn new(tls: TlsStream<Socket>) -> Self {
        Self { tls }
    }

    fn tls(self: Pin<&mut Self>) -> Pin<&mut TlsStream<Socket>> {
        Pin::new(&mut self.get_mut().tls)
    }
}

impl Plaintext for LegStream {
    fn is_close_due(&self) -> bool {
        self.tls.connection().close_due()
    }
}

impl AsyncRead for LegStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.tls().poll_read(cx, buf)
    }
}

impl AsyncBufRead for LegStream {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.tls().poll_fill_buf(cx)
    }

    fn consume(self: Pin<&mut Self>, len: usize) {
        self.tls().consume(len);
    }
}

impl AsyncWrite for LegStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.tls().poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.tls().poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tls().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tls().poll_shutdown(cx)
    }
}
