//! The TLS stream: plaintext above, records below.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use watari_record::{AlertDescription, Connection, FRAGMENT_LEN_MAX, OpenError, Opened, SealError};

use crate::input::Input;
use crate::output::{OUTPUT_LEN_MAX, Output};

/// A stream of plaintext over a stream of TLS records.
///
/// * **Reading** ends cleanly only with the peer's `close_notify`. If `io` ends without one, reading fails with
///   [`UnexpectedEof`](io::ErrorKind::UnexpectedEof). [`TlsStream::read_end`] returns the cause.
/// * **Shutdown** sends `close_notify` and flushes. It does not shut `io` down. The owner takes `io` from
///   [`TlsStream::into_parts`] and decides how it continues.
/// * Answers that the peer requests (new keys) are also sent while reading.
/// * Different tasks may poll the halves made by [`tokio::io::split`].
pub struct TlsStream<IO> {
    io: IO,
    connection: Connection,
    input: Input,
    output: Output,
    received: u64,
    sent: u64,
    read_end: Option<ReadEnd>,
    /// The output contains an answer or alert that must not wait for a flush.
    urgent: bool,
    /// A task waits in a write, flush or shutdown, so `io` wakes it to send more.
    writer_waits: bool,
}

/// The parts of a [`TlsStream`].
pub struct Parts<IO> {
    /// The stream of records.
    pub io: IO,
    /// The record layer.
    pub connection: Connection,
    /// Plaintext that was opened and not read, at most of one record.
    pub opened: Vec<u8>,
    /// Received bytes that are not opened.
    pub unopened: Vec<u8>,
    /// Sealed bytes that `io` has not taken.
    pub unsent: Vec<u8>,
    /// Bytes that `io` has delivered, including `unopened` and the records of `opened`.
    pub received: u64,
    /// Bytes that `io` has taken, without `unsent`.
    pub sent: u64,
}

/// The end of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadEnd {
    /// The peer sent `close_notify`.
    #[error("the peer closed the connection")]
    CloseNotify,
    /// The stream of records ended without `close_notify`: data may be missing.
    #[error("the peer closed the connection without close_notify")]
    Truncated,
    /// The peer ended the connection with an alert.
    #[error("the peer sent the alert {0}")]
    PeerAlert(AlertDescription),
    /// A record could not be opened. The stream sends the peer an alert.
    #[error("a record could not be opened")]
    Failed(#[source] OpenError),
}

impl<IO> TlsStream<IO> {
    /// A stream that has received nothing and has nothing to send.
    pub fn new(io: IO, connection: Connection) -> Self {
        Self::from_parts(Parts::new(io, connection))
    }

    /// Continues from `parts`. The counts continue from [`Parts::received`] and [`Parts::sent`].
    pub fn from_parts(parts: Parts<IO>) -> Self {
        let read_end = parts.connection.is_read_closed().then_some(ReadEnd::CloseNotify);
        Self {
            io: parts.io,
            connection: parts.connection,
            input: Input::new(&parts.opened, &parts.unopened),
            output: Output::new(parts.unsent),
            received: parts.received,
            sent: parts.sent,
            read_end,
            urgent: false,
            writer_waits: false,
        }
    }

    /// Takes the stream apart, at any time. Does not seal, open, send or receive.
    pub fn into_parts(self) -> Parts<IO> {
        let (opened, unopened) = self.input.into_parts();
        Parts {
            io: self.io,
            connection: self.connection,
            opened,
            unopened,
            unsent: self.output.into_unsent(),
            received: self.received,
            sent: self.sent,
        }
    }

    pub fn io(&self) -> &IO {
        &self.io
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The end of reading. `None` while the stream can be read.
    pub fn read_end(&self) -> Option<ReadEnd> {
        self.read_end
    }

    /// Seals a `KeyUpdate`, which the next flush sends. See [`Connection::update_keys`].
    pub fn update_keys(&mut self, request_peer: bool) -> Result<(), SealError> {
        self.connection.update_keys(request_peer, self.output.appender())
    }
}

impl<IO> Parts<IO> {
    /// The parts of a stream that has received nothing and has nothing to send.
    pub fn new(io: IO, connection: Connection) -> Self {
        Self { io, connection, opened: Vec::new(), unopened: Vec::new(), unsent: Vec::new(), received: 0, sent: 0 }
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncBufRead for TlsStream<IO> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        ready!(this.poll_plaintext(cx))?;
        Poll::Ready(Ok(this.input.plaintext()))
    }

    fn consume(self: Pin<&mut Self>, len: usize) {
        self.get_mut().input.consume(len);
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<IO> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_plaintext(cx))?;
        let plaintext = this.input.plaintext();
        let len = plaintext.len().min(buf.remaining());
        buf.put_slice(&plaintext[..len]);
        this.input.consume(len);
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_room(cx))?;
        let room = OUTPUT_LEN_MAX - this.output.len();
        let len_max = room.next_multiple_of(FRAGMENT_LEN_MAX);
        let sealed = match this.connection.seal(parts, len_max, this.output.appender()) {
            Ok(sealed) => sealed,
            Err(error) => return Poll::Ready(Err(this.fail_sealing(error, cx))),
        };
        // If `io` does not take all of it now, the next write or flush waits for that.
        if this.output.is_full()
            && let Poll::Ready(Err(error)) = this.poll_send(cx)
        {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(sealed))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.seal_answers();
        let flushed = this.poll_send_all(cx);
        this.writer_waits = flushed.is_pending();
        flushed
    }

    /// Sends `close_notify`, unless the write side is closed already, and flushes. Does not shut `io` down.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.connection.is_write_closed() {
            let sealed = this.connection.seal_close_notify(this.output.appender());
            debug_assert_eq!(sealed, Ok(()));
        }
        Pin::new(this).poll_flush(cx)
    }
}

/// Reading.
impl<IO: AsyncRead + AsyncWrite + Unpin> TlsStream<IO> {
    /// Waits for plaintext, or for a clean end.
    fn poll_plaintext(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.send_urgent(cx);
            if !self.input.plaintext().is_empty() {
                return Poll::Ready(Ok(()));
            }
            if let Some(end) = self.read_end {
                return Poll::Ready(end.into_result());
            }
            match self.input.open_next(&mut self.connection) {
                Ok(Some(opened)) => self.handle(&opened),
                Ok(None) => ready!(self.poll_receive(cx))?,
                Err(error) => self.fail_opening(error),
            }
        }
    }

    fn handle(&mut self, opened: &Opened) {
        match *opened {
            Opened::Data(_) | Opened::KeyUpdate | Opened::Ignored => {}
            Opened::CloseNotify => self.read_end = Some(ReadEnd::CloseNotify),
            Opened::FatalAlert(description) => {
                self.read_end = Some(ReadEnd::PeerAlert(description));
            }
        }
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let received = ready!(self.input.poll_receive(&mut self.io, cx))?;
        self.received += received as u64;
        if received == 0 {
            self.read_end = Some(ReadEnd::Truncated);
        }
        Poll::Ready(Ok(()))
    }

    fn fail_opening(&mut self, error: OpenError) {
        self.read_end = Some(ReadEnd::Failed(error));
        self.seal_alert(error.alert());
    }

    /// Sends answers and alerts although no task writes. Reading never waits for this.
    ///
    /// If a task waits to write, its write sends them too. To poll `io` here would replace that task's waker. An error
    /// of `io` is left to the next write or read.
    fn send_urgent(&mut self, cx: &mut Context<'_>) {
        if self.connection.answers_due() && !self.output.is_full() {
            self.seal_answers();
            self.urgent = true;
        }
        if self.urgent && !self.writer_waits {
            let _ = self.poll_send(cx);
        }
    }
}

/// Writing.
impl<IO: AsyncWrite + Unpin> TlsStream<IO> {
    /// Waits until more may be sealed.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.output.is_full()
            && let Poll::Ready(Err(error)) = self.poll_send(cx)
        {
            return Poll::Ready(Err(error));
        }
        self.writer_waits = self.output.is_full();
        if self.writer_waits { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn poll_send_all(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        self.output.release();
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.output.poll_send(&mut self.io, &mut self.sent, cx))?;
        self.urgent = false;
        Poll::Ready(Ok(()))
    }

    /// An exhausted key cannot seal answers. Then the next write fails and ends the connection.
    fn seal_answers(&mut self) {
        let _ = self.connection.seal_answers(self.output.appender());
    }

    fn seal_alert(&mut self, description: AlertDescription) {
        // If the write side is closed, no alert can be sent.
        if self.connection.seal_alert(description, self.output.appender()).is_ok() {
            self.urgent = true;
        }
    }

    fn fail_sealing(&mut self, error: SealError, cx: &mut Context<'_>) -> io::Error {
        if let Some(description) = error.alert() {
            self.seal_alert(description);
            let _ = self.poll_send(cx);
        }
        let kind = match error {
            SealError::Closed => io::ErrorKind::BrokenPipe,
            SealError::Exhausted | SealError::NoKeyUpdate => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

impl ReadEnd {
    fn into_result(self) -> io::Result<()> {
        let kind = match self {
            Self::CloseNotify => return Ok(()),
            Self::Truncated => io::ErrorKind::UnexpectedEof,
            Self::PeerAlert(_) => io::ErrorKind::ConnectionAborted,
            Self::Failed(_) => io::ErrorKind::InvalidData,
        };
        Err(io::Error::new(kind, self))
    }
}

impl<IO> fmt::Debug for TlsStream<IO> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream")
            .field("connection", &self.connection)
            .field("received", &self.received)
            .field("sent", &self.sent)
            .field("read_end", &self.read_end)
            .finish_non_exhaustive()
    }
}
