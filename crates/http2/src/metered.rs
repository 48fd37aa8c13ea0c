//! A byte stream with a meter.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::trailers::Trailers;
use crate::{Flood, Meter};

/// A byte stream that carries HTTP/2. If the peer floods it, it sends a GOAWAY, if it can be written at once, and
/// reading fails with [`Flood`].
#[derive(Debug)]
pub struct Metered<IO> {
    io: IO,
    /// Boxed, because the stream is part of futures that are moved.
    meter: Box<Meter>,
    /// Set if the peer is a client.
    trailers: Option<Trailers>,
    /// Bytes that were read and that the next reads return.
    rest: Vec<u8>,
    verdict: Verdict,
}

/// Whether the peer of a [`Metered`] stream has flooded it. For an owner that has given the stream to a library.
#[derive(Debug, Clone, Default)]
pub struct Verdict(Arc<AtomicBool>);

impl Verdict {
    /// Whether reading has failed with [`Flood`].
    pub fn is_flood(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl<IO> Metered<IO> {
    /// A stream whose peer is a client.
    pub fn of_client(io: IO) -> Self {
        Self::new(io, Meter::of_client(now()), Some(Trailers::new()))
    }

    /// A stream whose peer is a server.
    pub fn of_server(io: IO) -> Self {
        Self::new(io, Meter::of_server(now()), None)
    }

    fn new(io: IO, meter: Meter, trailers: Option<Trailers>) -> Self {
        Self { io, meter: Box::new(meter), trailers, rest: Vec::new(), verdict: Verdict::default() }
    }

    /// A handle that shows a flood also after a library has taken the stream.
    pub fn verdict(&self) -> Verdict {
        self.verdict.clone()
    }
}

/// The clock of tokio, which tests can pause.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}

impl<IO> Metered<IO> {
    /// Returns whether any byte was passed on.
    fn pass_rest(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let len = self.rest.len().min(buf.remaining());
        buf.put_slice(&self.rest[..len]);
        self.rest.drain(..len);
        len > 0
    }
}

impl<IO: AsyncWrite + Unpin> Metered<IO> {
    fn end(&mut self, cx: &mut Context<'_>, flood: Flood) -> io::Error {
        if !self.verdict.0.swap(true, Ordering::AcqRel)
            && let Some(goaway) = self.meter.goaway()
        {
            // If the peer does not read, the GOAWAY is lost.
            let _ = Pin::new(&mut self.io).poll_write(cx, &goaway);
        }
        io::Error::other(flood)
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for Metered<IO> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.verdict.is_flood() {
            return Poll::Ready(Err(io::Error::other(Flood)));
        }
        let before = buf.filled().len();
        while buf.remaining() > 0 && !this.pass_rest(buf) {
            ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
            let read = &buf.filled()[before..];
            if let Err(flood) = this.meter.received(read, now) {
                // A failed read returns no bytes.
                buf.set_filled(before);
                return Poll::Ready(Err(this.end(cx, flood)));
            }
            let Some(trailers) = &mut this.trailers else { break };
            this.rest = match trailers.pass(read) {
                _ if read.is_empty() => trailers.end(),
                None => break,
                Some(passed) => passed,
            };
            let is_end = read.is_empty();
            buf.set_filled(before);
            if is_end {
                this.pass_rest(buf);
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Metered<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.io).poll_write(cx, buf))?;
        this.meter.sent(&buf[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.io).poll_write_vectored(cx, parts))?;
        let mut left = written;
        for part in parts {
            let taken = part.len().min(left);
            this.meter.sent(&part[..taken]);
            left -= taken;
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::frames::tests::frame;
    use crate::frames::{CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, goaway};

    const WINDOW_UPDATE: u8 = 8;

    /// A stream whose peer, a server, floods it after `first` was sent.
    async fn flooded(first: &[u8]) -> Vec<u8> {
        let (ours, mut theirs) = duplex(1 << 20);
        let mut metered = Metered::of_server(ours);
        let verdict = metered.verdict();
        metered.write_all(&[b'P'; 24]).await.unwrap();
        metered.write_all(first).await.unwrap();
        theirs.write_all(&frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).repeat(20_000)).await.unwrap();
        let error = metered.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert!(error.get_ref().unwrap().is::<Flood>(), "{error}");
        assert!(verdict.is_flood());
        // Later reads fail as well, without a second GOAWAY.
        metered.read_u8().await.unwrap_err();
        drop(metered);
        let mut read = Vec::new();
        theirs.read_to_end(&mut read).await.unwrap();
        read.split_off(24)
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_ends_reading_and_the_peer_gets_a_goaway() {
        let data = frame(DATA, 0, 1, b"content");
        assert_eq!(flooded(&data).await, [&data[..], &goaway(0, ENHANCE_YOUR_CALM)].concat());
        assert_eq!(flooded(&data[..11]).await, data[..11]);
    }

    #[tokio::test]
    async fn bytes_go_through_as_they_are() {
        let (ours, mut theirs) = duplex(1 << 20);
        let mut metered = Metered::of_client(ours);
        // The bytes end within a header.
        let frames = [&[b'P'; 24][..], &frame(DATA, 0, 1, &[7; 1000]), &[0; 5]].concat();
        theirs.write_all(&frames).await.unwrap();
        let mut read = vec![0; frames.len() - 5];
        metered.read_exact(&mut read).await.unwrap();
        assert_eq!(read, frames[..read.len()]);
        let taken = metered.write_vectored(&[IoSlice::new(b"one"), IoSlice::new(b"two")]).await.unwrap();
        assert!(taken > 0);
        metered.shutdown().await.unwrap();
        theirs.shutdown().await.unwrap();
        read.clear();
        metered.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, [0; 5]);
        drop(metered);
        let mut written = Vec::new();
        theirs.read_to_end(&mut written).await.unwrap();
        assert!(b"onetwo".starts_with(&written) && !written.is_empty(), "{written:?}");
    }

    #[tokio::test]
    async fn trailers_are_passed_on_with_a_field_in_front() {
        let head = frame(HEADERS, END_HEADERS, 1, b"head");
        let trailers = frame(HEADERS, END_STREAM | END_HEADERS, 1, b"trailers");
        let frames = [&[b'P'; 24][..], &head, &trailers].concat();
        for len_max in [1, 5, 1000] {
            let ((ours, mut theirs), frames) = (duplex(len_max), frames.clone());
            let writing = tokio::spawn(async move {
                theirs.write_all(&frames).await.unwrap();
                theirs
            });
            let (mut metered, mut read) = (Metered::of_client(ours), vec![0; 24 + 13 + 12 + 9 + 8]);
            metered.read_exact(&mut read).await.unwrap();
            assert!(read.ends_with(&frame(CONTINUATION, END_HEADERS, 1, b"trailers")), "{read:?}");
            drop(writing.await.unwrap());
            assert_eq!(metered.read(&mut [0]).await.unwrap(), 0);
        }
    }
}
