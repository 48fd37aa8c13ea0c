//! The handshake itself, from the server's flight to a connection that is open.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::io::poll_read_buf;
use watari_handshake::{Established, Failed, Handshake, HandshakeError, Kept, Progress, Stage};
use watari_record::Connection;
use watari_stream::{OUTPUT_LEN_MAX, Parts, TlsStream};

use crate::Shared;
use crate::handshake::{Failure, READ_LEN};

/// A handshake, and the bytes of HTTP above it.
pub(super) struct Shaking {
    handshake: Handshake,
    pipe: Pipe,
    /// When Finished has come: waits until the sessions are kept that tickets name.
    keeping: Option<Pin<Box<dyn Future<Output = Opened> + Send>>>,
}

/// The leg, and the bytes on both sides of it.
pub(crate) struct Pipe {
    pub(crate) leg: TcpStream,
    /// What was received and is not the handshake's, or not yet.
    pub(crate) input: Vec<u8>,
    pub(crate) received: u64,
    /// Early data that nobody has read yet.
    pub(crate) early: Vec<u8>,
    /// Sealed bytes that the leg has not taken yet.
    pub(crate) unsent: Vec<u8>,
    pub(crate) sent: u64,
    /// Whether they end with an alert.
    pub(crate) is_alerted: bool,
}

/// A connection that may seal and open.
pub(super) struct Opened {
    connection: Connection,
    /// Sealed before.
    tickets: Vec<u8>,
}

impl Shaking {
    pub(super) fn new(handshake: Handshake, pipe: Pipe) -> Self {
        Self { handshake, pipe, keeping: None }
    }

    pub(super) fn stage(&self) -> Stage {
        self.handshake.stage()
    }

    /// Takes what comes until the handshake is done.
    pub(super) fn poll(&mut self, shared: &Arc<Shared>, cx: &mut Context<'_>) -> Poll<Result<Opened, Failure>> {
        loop {
            if let Some(keeping) = &mut self.keeping {
                return keeping.as_mut().poll(cx).map(Ok);
            }
            match self.handshake.receive(&self.pipe.input) {
                Ok(progress) => self.take(shared, progress)?,
                Err(failed) => return Poll::Ready(Err(self.pipe.fail(failed))),
            }
            if self.keeping.is_none() {
                ready!(self.poll_read(cx))?;
            }
        }
    }

    /// The stream that goes on. Nothing is sent by this.
    pub(super) fn open(self, opened: Opened) -> TlsStream<TcpStream> {
        let mut parts = Parts::new(self.pipe.leg, opened.connection);
        parts.opened = self.pipe.early;
        parts.unopened = self.pipe.input;
        parts.unsent = [self.pipe.unsent, opened.tickets].concat();
        parts.received = self.pipe.received;
        parts.sent = self.pipe.sent;
        TlsStream::from_parts(parts)
    }

    pub(super) fn into_pipe(self) -> Pipe {
        self.pipe
    }

    fn take(&mut self, shared: &Arc<Shared>, mut progress: Progress) -> Result<(), Failure> {
        self.pipe.input.drain(..progress.consumed);
        self.pipe.early.append(&mut progress.early);
        match progress.established {
            Some(established) => {
                let Established { secrets, .. } = *established;
                let opened = Opened { connection: Connection::new(secrets)?, tickets: progress.output };
                self.keeping = Some(Box::pin(keep(shared.clone(), progress.made, opened)));
            }
            None => self.pipe.unsent.append(&mut progress.output),
        }
        Ok(())
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let pipe = &mut self.pipe;
        pipe.input.reserve(READ_LEN);
        match ready!(poll_read_buf(Pin::new(&mut pipe.leg), cx, &mut pipe.input))? {
            0 => Poll::Ready(Err(HandshakeError::ClosedEarly(self.handshake.stage()).into())),
            read => {
                pipe.received += read as u64;
                Poll::Ready(Ok(()))
            }
        }
    }
}

/// For HTTP.
impl Shaking {
    /// Early data, as far as it has come.
    pub(super) fn poll_early(&mut self, buf: &mut ReadBuf<'_>) -> Poll<()> {
        let len = self.pipe.early.len().min(buf.remaining());
        buf.put_slice(&self.pipe.early[..len]);
        self.pipe.early.drain(..len);
        if len > 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Seals, as long as not too much waits.
    pub(super) fn poll_seal(&mut self, parts: &[IoSlice<'_>], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.pipe.unsent.len() >= OUTPUT_LEN_MAX
            && let Poll::Ready(Err(error)) = self.pipe.poll_send(cx)
        {
            return Poll::Ready(Err(error));
        }
        if self.keeping.is_some() || self.pipe.unsent.len() >= OUTPUT_LEN_MAX {
            return Poll::Pending;
        }
        Poll::Ready(Ok(self.handshake.seal(parts, &mut self.pipe.unsent)))
    }

    /// Has the leg take what was sealed.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pipe.poll_send(cx)
    }
}

impl Pipe {
    fn fail(&mut self, mut failed: Failed) -> Failure {
        self.is_alerted = !failed.output.is_empty();
        self.unsent.append(&mut failed.output);
        failed.cause.into()
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let taken = ready!(Pin::new(&mut self.leg).poll_write(cx, &self.unsent))?;
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent.drain(..taken);
            self.sent += taken as u64;
        }
        Poll::Ready(Ok(()))
    }
}

async fn keep(shared: Arc<Shared>, made: Vec<Kept>, opened: Opened) -> Opened {
    shared.sessions.keep(&shared, made).await;
    opened
}
