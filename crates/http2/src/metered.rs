//! A byte stream whose peer's frames are counted.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::Code;
use crate::budget::{Budget, Flood};
use crate::frames::{Frames, goaway};

/// A byte stream to an HTTP/2 server, for a library that does not limit the frames of its peer. If the peer floods it,
/// it sends a GOAWAY, if it can be written at once, and reading fails with [`Flood`].
#[derive(Debug)]
pub struct Metered<IO> {
    io: IO,
    /// Boxed, because the stream is part of futures that are moved.
    meter: Box<Meter>,
}

#[derive(Debug)]
struct Meter {
    received: Frames,
    sent: Frames,
    budget: Budget,
    is_flooded: bool,
}

impl<IO> Metered<IO> {
    /// A stream whose peer is a server.
    pub fn new(io: IO) -> Self {
        let (received, sent) = (Frames::new(), Frames::behind_preface());
        Self { io, meter: Box::new(Meter { received, sent, budget: Budget::new(now()), is_flooded: false }) }
    }
}

/// The clock of tokio, which tests can pause.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}

impl Meter {
    fn received(&mut self, bytes: &[u8]) -> Result<(), Flood> {
        let Self { received, budget, .. } = self;
        received.read(bytes, |frame| budget.received(&frame, true));
        budget.check(now)
    }

    fn sent(&mut self, bytes: &[u8]) {
        let Self { sent, budget, .. } = self;
        sent.read(bytes, |frame| budget.sent(frame.kind, frame.len));
    }
}

impl<IO: AsyncWrite + Unpin> Metered<IO> {
    fn end(&mut self, cx: &mut Context<'_>, flood: Flood) -> io::Error {
        if !std::mem::replace(&mut self.meter.is_flooded, true) && self.meter.sent.is_between_frames() {
            // If the peer does not read, the GOAWAY is lost.
            let _ = Pin::new(&mut self.io).poll_write(cx, &goaway(0, Code::EnhanceYourCalm));
        }
        io::Error::other(flood)
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for Metered<IO> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.meter.is_flooded {
            return Poll::Ready(Err(io::Error::other(Flood)));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        Poll::Ready(this.meter.received(&buf.filled()[before..]).map_err(|flood| {
            // A failed read returns no bytes.
            buf.set_filled(before);
            this.end(cx, flood)
        }))
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
    use crate::frames::kind;
    use crate::frames::tests::frame;

    /// A stream whose peer, a server, floods it after `first` was sent.
    async fn flooded(first: &[u8]) -> Vec<u8> {
        let (ours, mut theirs) = duplex(1 << 20);
        let mut metered = Metered::new(ours);
        metered.write_all(&[b'P'; 24]).await.unwrap();
        metered.write_all(first).await.unwrap();
        theirs.write_all(&frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).repeat(20_000)).await.unwrap();
        let error = metered.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert!(error.get_ref().unwrap().is::<Flood>(), "{error}");
        // Later reads fail as well, without a second GOAWAY.
        metered.read_u8().await.unwrap_err();
        drop(metered);
        let mut read = Vec::new();
        theirs.read_to_end(&mut read).await.unwrap();
        read.split_off(24)
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_ends_reading_and_the_peer_gets_a_goaway() {
        let data = frame(kind::DATA, 0, 1, b"content");
        assert_eq!(flooded(&data).await, [&data[..], &goaway(0, Code::EnhanceYourCalm)].concat());
        assert_eq!(flooded(&data[..11]).await, data[..11]);
    }

    #[tokio::test]
    async fn bytes_go_through_as_they_are() {
        let (ours, mut theirs) = duplex(1 << 20);
        let mut metered = Metered::new(ours);
        // The bytes end within a header.
        let frames = [&[b'P'; 24][..], &frame(kind::DATA, 0, 1, &[7; 1000]), &[0; 5]].concat();
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
}
