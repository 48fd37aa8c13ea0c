//! The handshake of an early connection, from the server's flight until the connection is open.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;
use watari_handshake::{Established, Failed, Handshake, HandshakeError, NewSession, Progress, Stage};
use watari_record::Connection;
use watari_stream::{OUTPUT_LEN_MAX, Parts, TlsStream};

use crate::connection::handshake::{Failure, Handshakes, READ_LEN};
use crate::leg::Leg;

/// A handshake, and HTTP's bytes above it.
pub(super) struct PendingHandshake {
    handshake: Handshake,
    pipe: Pipe,
    /// Set after Finished: waits until the sessions that tickets name are stored.
    keeping: Option<Pin<Box<dyn Future<Output = Opened> + Send>>>,
}

/// The leg, and the bytes on both sides of it.
pub(super) struct Pipe {
    pub(super) leg: Leg,
    /// Received bytes that the handshake has not consumed.
    pub(super) input: Vec<u8>,
    pub(super) received: u64,
    /// Early data that HTTP has not read.
    pub(super) early: Vec<u8>,
    /// Sealed bytes that the leg has not taken.
    pub(super) unsent: Vec<u8>,
    pub(super) sent: u64,
    /// Whether `unsent` ends with an alert.
    pub(super) is_alerted: bool,
}

/// A connection that may seal and open.
pub(super) struct Opened {
    connection: Connection,
    /// Sealed tickets. They precede all that `connection` seals.
    tickets: Vec<u8>,
}

impl PendingHandshake {
    pub(super) fn new(handshake: Handshake, pipe: Pipe) -> Self {
        Self { handshake, pipe, keeping: None }
    }

    pub(super) fn stage(&self) -> Stage {
        self.handshake.stage()
    }

    /// Receives until the handshake is done.
    pub(super) fn poll(&mut self, handshakes: &Arc<Handshakes>, cx: &mut Context<'_>) -> Poll<Result<Opened, Failure>> {
        loop {
            if let Some(keeping) = &mut self.keeping {
                return keeping.as_mut().poll(cx).map(Ok);
            }
            match self.handshake.receive(&self.pipe.input) {
                Ok(progress) => self.take(handshakes, progress)?,
                Err(failed) => return Poll::Ready(Err(self.pipe.fail(failed))),
            }
            if self.keeping.is_none() {
                ready!(self.poll_read(cx))?;
            }
        }
    }

    /// Returns the final stream. Sends nothing.
    pub(super) fn open(self, opened: Opened) -> TlsStream<Leg> {
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

    fn take(&mut self, handshakes: &Arc<Handshakes>, mut progress: Progress) -> Result<(), Failure> {
        self.pipe.input.drain(..progress.consumed);
        self.pipe.early.append(&mut progress.early);
        match progress.established {
            Some(established) => {
                let Established { secrets, .. } = *established;
                let opened = Opened { connection: Connection::new(secrets)?, tickets: progress.output };
                self.keeping = Some(Box::pin(keep(handshakes.clone(), progress.made, opened)));
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

/// The side of HTTP.
impl PendingHandshake {
    /// Reads the early data that has arrived.
    pub(super) fn poll_early(&mut self, buf: &mut ReadBuf<'_>) -> Poll<()> {
        let len = self.pipe.early.len().min(buf.remaining());
        buf.put_slice(&self.pipe.early[..len]);
        self.pipe.early.drain(..len);
        if len > 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Seals, unless too many sealed bytes wait.
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

    /// Writes the sealed bytes to the leg.
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

async fn keep(handshakes: Arc<Handshakes>, made: Vec<NewSession>, opened: Opened) -> Opened {
    handshakes.store(made).await;
    opened
}
