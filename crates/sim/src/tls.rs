//! The TLS layer of both ends, after a handshake that the simulation leaves out.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use watari_connection::Plaintext;
use watari_record::{CipherSuite, Connection, Direction, DirectionSecret, Secrets, Side};
use watari_stream::TlsStream;
use zeroize::Zeroizing;

use crate::random::mix;
use crate::socket::Socket;

const SUITE: CipherSuite = CipherSuite::TLS_AES_128_GCM_SHA256;

/// The length of its traffic secrets, in bytes.
const SECRET_LEN: u64 = 32;

/// One end's record layer right after the handshake of a client.
pub(crate) fn established(client: u64, side: Side) -> Connection {
    let direction = |sealer: u64| {
        let secret = (0..SECRET_LEN).map(|at| mix(client << 16 | sealer << 8 | at) as u8).collect::<Vec<_>>();
        Direction { sequence: 0, secret: DirectionSecret::Tls13(Zeroizing::new(secret)) }
    };
    let (tx, rx) = match side {
        Side::Client => (direction(0), direction(1)),
        Side::Server => (direction(1), direction(0)),
    };
    Connection::new(Secrets { side, suite: SUITE, tx, rx }).expect("the lengths fit the suite")
}

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
