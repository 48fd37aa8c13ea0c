//! The bytes of a connection, with or without TLS.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::ending::{Ending, EndingKind, Phase, Side};

/// TCP, or TLS over TCP.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// True if it is certain, without a system call, that the peer has closed the connection and everything it sent was
    /// read. A read that returns fewer bytes than there was room for clears the readiness, but never clears the peer's
    /// close.
    pub(crate) fn is_read_to_end(&self) -> bool {
        let Self::Plain(tcp) = self else { return false };
        let any = Interest::READABLE | Interest::WRITABLE | Interest::ERROR;
        let ready = pin!(tcp.ready(any)).poll(&mut Context::from_waker(Waker::noop()));
        let unread = Ready::READABLE | Ready::ERROR;
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed() && (ready & unread).is_empty())
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, data),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, data),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// The ending of an established connection, from the error that a read or write returned.
pub(crate) fn cut(error: &io::Error, phase: Phase) -> Ending {
    let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let kind = match of_tls {
        // With TLS 1.3, this side has established TLS before the server's alert that it requires a certificate arrives.
        Some(rustls::Error::AlertReceived(_)) => EndingKind::Handshake,
        Some(_) => EndingKind::Protocol,
        None => EndingKind::Reset,
    };
    Ending::new(kind, phase, Side::Server)
}
