//! The plaintext of a client's connection, before and after the end of its handshake.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use watari_connection::Plaintext;
use watari_stream::TlsStream;

use super::early_data::opening::{Opening, Unfinished};
use super::early_data::stream::EarlyStream;
use crate::leg::Leg;

/// Bytes of early data that are taken at a time.
const EARLY_LEN: usize = 4096;

/// The stream of a connection. It becomes the final stream by itself when the handshake is done.
pub(super) struct ClientStream {
    stream: Stage,
    /// Early data that was taken and not consumed.
    early: Vec<u8>,
}

enum Stage {
    /// Until the handshake is done. An `Opening` drives it.
    Early(EarlyStream),
    Open(Box<TlsStream<Leg>>),
}

impl ClientStream {
    pub(super) fn open(stream: TlsStream<Leg>) -> Self {
        Self { stream: Stage::Open(Box::new(stream)), early: Vec::new() }
    }

    pub(super) fn early(stream: EarlyStream) -> Self {
        Self { stream: Stage::Early(stream), early: Vec::new() }
    }

    /// The final stream, and the early data that was not consumed. If the handshake is not done, `opening`, its driver,
    /// has the stream and continues.
    pub(super) async fn finish(
        mut self,
        opening: Option<Box<Opening>>,
    ) -> Result<(Box<TlsStream<Leg>>, Vec<u8>), Box<Unfinished>> {
        self.advance();
        let stream = match (self.stream, opening) {
            (Stage::Open(stream), _) => stream,
            (Stage::Early(_), Some(opening)) => opening.finish().await?,
            (Stage::Early(_), None) => unreachable!("a stream that is not open has a driver"),
        };
        Ok((stream, self.early))
    }

    /// Whether the handshake is done.
    pub(super) fn is_open(&mut self) -> bool {
        self.advance();
        matches!(self.stream, Stage::Open(_))
    }

    fn advance(&mut self) {
        if let Stage::Early(early) = &self.stream
            && let Some(open) = early.take_open()
        {
            self.stream = Stage::Open(open);
        }
    }

    fn writer(&mut self) -> Pin<&mut (dyn AsyncWrite + Unpin)> {
        self.advance();
        Pin::new(match &mut self.stream {
            Stage::Early(early) => early,
            Stage::Open(open) => &mut **open,
        })
    }
}

impl Plaintext for ClientStream {
    fn is_close_due(&self) -> bool {
        matches!(&self.stream, Stage::Open(stream) if stream.connection().close_due())
    }
}

impl AsyncBufRead for ClientStream {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        this.advance();
        if !this.early.is_empty() {
            return Poll::Ready(Ok(&this.early));
        }
        match &mut this.stream {
            Stage::Open(open) => Pin::new(&mut **open).poll_fill_buf(cx),
            Stage::Early(stream) => {
                let mut taken = [0; EARLY_LEN];
                let mut taken = ReadBuf::new(&mut taken);
                ready!(Pin::new(stream).poll_read(cx, &mut taken))?;
                this.early = taken.filled().to_vec();
                Poll::Ready(Ok(&this.early))
            }
        }
    }

    fn consume(self: Pin<&mut Self>, len: usize) {
        let this = self.get_mut();
        if !this.early.is_empty() {
            this.early.drain(..len);
        } else if let Stage::Open(open) = &mut this.stream {
            Pin::new(&mut **open).consume(len);
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = ready!(self.as_mut().poll_fill_buf(cx))?;
        let len = read.len().min(buf.remaining());
        buf.put_slice(&read[..len]);
        self.consume(len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().writer().poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().writer().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().writer().poll_shutdown(cx)
    }
}
