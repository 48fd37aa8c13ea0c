//! A client that stores its sessions.
//!
//! The crate `openssl` can offer a session only by an `unsafe` function, because its types do not tie a session to its
//! context. `hyper-openssl` does: it stores the sessions of one context. It is made for asynchronous streams. The
//! streams here block, so that every future is ready at its first poll.

use std::future::{Ready, ready};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use http::Uri;
use hyper::rt::{self, ReadBuf, ReadBufCursor};
use hyper_openssl::SslStream;
use hyper_openssl::client::legacy::{HttpsLayer, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{Connected as HyperConnected, Connection};
use openssl::error::ErrorStack;
use openssl::ssl::SslConnectorBuilder;
use tower_layer::Layer;
use tower_service::Service;

use crate::loopback::{Channel, Connected};

/// A client with the sessions of earlier connections. It offers the oldest one (in TLS 1.3 each session once).
pub(super) struct StoredSessions(HttpsLayer);

impl StoredSessions {
    pub(super) fn new(context: SslConnectorBuilder) -> Result<Self, ErrorStack> {
        HttpsLayer::with_connector(context).map(Self)
    }

    /// Performs the handshake of a connection.
    pub(super) fn connect(&self, tcp: TcpStream) -> io::Result<Connected> {
        // The name is `certificates::HOST`.
        let mut connecting = self.0.layer(Given(Some(tcp))).call(Uri::from_static("https://localhost/"));
        let MaybeHttpsStream::Https(stream) = at_once(|context| connecting.as_mut().poll(context))? else {
            return Err(io::Error::other("connected without TLS"));
        };
        let (resumed, version) = (stream.ssl().session_reused(), stream.ssl().version_str());
        Ok(Connected { channel: Box::new(ResumableChannel(stream)), resumed, version })
    }
}

/// Hands out the connection that it was created with.
struct Given(Option<TcpStream>);

impl Service<Uri> for Given {
    type Response = Blocking;
    type Error = io::Error;
    type Future = Ready<io::Result<Blocking>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        ready(self.0.take().map(Blocking).ok_or_else(|| io::ErrorKind::NotConnected.into()))
    }
}

/// A blocking socket with the interface of an asynchronous one.
struct Blocking(TcpStream);

impl rt::Read for Blocking {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let mut bytes = [0; 4096];
        let room = buffer.remaining().min(bytes.len());
        let len = self.0.read(&mut bytes[..room])?;
        buffer.put_slice(&bytes[..len]);
        Poll::Ready(Ok(()))
    }
}

impl rt::Write for Blocking {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.0.write(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.shutdown(std::net::Shutdown::Write))
    }
}

impl Connection for Blocking {
    fn connected(&self) -> HyperConnected {
        HyperConnected::new()
    }
}

/// The TLS connection with a blocking interface.
struct ResumableChannel(SslStream<Blocking>);

impl Read for ResumableChannel {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(bytes);
        at_once(|context| rt::Read::poll_read(Pin::new(&mut self.0), context, buffer.unfilled()))?;
        Ok(buffer.filled().len())
    }
}

impl Write for ResumableChannel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        at_once(|context| rt::Write::poll_write(Pin::new(&mut self.0), context, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        at_once(|context| rt::Write::poll_flush(Pin::new(&mut self.0), context))
    }
}

impl Channel for ResumableChannel {
    fn finish(&mut self) -> io::Result<()> {
        at_once(|context| rt::Write::poll_shutdown(Pin::new(&mut self.0), context))
    }
}

/// Polls once. If the operation is not ready, the socket's timeout has expired.
fn at_once<T, E>(poll: impl FnOnce(&mut Context<'_>) -> Poll<Result<T, E>>) -> io::Result<T>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result.map_err(io::Error::other),
        Poll::Pending => Err(io::ErrorKind::TimedOut.into()),
    }
}
