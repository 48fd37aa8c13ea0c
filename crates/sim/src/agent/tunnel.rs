//! Tunnels to origins, and what an anchor goes on relaying after the client's connection has left. Mirrors
//! `connection/tunnel.rs` of `crates/agent` and `transport/tunnel.rs` of `crates/proxy`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::Body as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::anchors::AnchoredStream;
use super::site::SiteBody;
use crate::socket::Socket;

/// A tunnel that an origin has accepted.
pub(crate) struct Tunnel {
    origin: OriginSide,
    up: Direction,
    down: Direction,
}

/// The side of a tunnel away from the client.
enum OriginSide {
    Here(OriginStream),
    /// The connection of another agent.
    Anchored(AnchoredStream),
}

/// A connection to an origin after its response, with the bytes that came with it.
pub(super) struct OriginStream {
    pub(super) socket: Socket,
    pub(super) ahead: Bytes,
}

/// One direction of a tunnel.
#[derive(Default)]
struct Direction {
    phase: Phase,
    /// Bytes that were read and not written.
    piece: Bytes,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Relaying,
    /// The source has ended.
    Ending,
    Ended,
}

/// The most bytes that are read at a time.
const PIECE_LEN: usize = 16 << 10;

impl Tunnel {
    pub(super) fn new(origin: OriginStream) -> Self {
        Self { origin: OriginSide::Here(origin), up: Direction::default(), down: Direction::default() }
    }

    /// A tunnel whose origin is at the other end of `stream`. `to_client` precedes the bytes of the stream.
    pub(super) fn anchored(stream: AnchoredStream, to_client: Bytes) -> Self {
        let down = Direction { piece: to_client, ..Direction::default() };
        Self { origin: OriginSide::Anchored(stream), up: Direction::default(), down }
    }

    /// The stream to the anchor, and the bytes on their way to the origin and to the client. `None`: this agent has the
    /// connection to the origin.
    pub(super) fn anchor(&self) -> Option<(&AnchoredStream, [&Bytes; 2])> {
        match &self.origin {
            OriginSide::Here(_) => None,
            OriginSide::Anchored(stream) => Some((stream, [&self.up.piece, &self.down.piece])),
        }
    }

    /// Whether the client's connection can move.
    pub(super) fn can_leave(&self) -> bool {
        let is_open = [&self.up, &self.down].iter().all(|direction| direction.phase == Phase::Relaying);
        is_open && self.anchor().is_none_or(|(stream, _)| stream.is_within_window())
    }

    /// Relays as far as possible. Ready when both sides have ended.
    pub(super) fn poll<C>(&mut self, client: &mut C, cx: &mut Context<'_>) -> Poll<io::Result<()>>
    where
        C: AsyncRead + AsyncWrite + Unpin,
    {
        let Self { origin, up, down } = self;
        let (up, down) = match origin {
            OriginSide::Here(origin) => (up.poll(client, origin, cx)?, down.poll(origin, client, cx)?),
            OriginSide::Anchored(origin) => (up.poll(client, origin, cx)?, down.poll(origin, client, cx)?),
        };
        if up.is_ready() && down.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

impl Direction {
    fn poll<R, W>(&mut self, from: &mut R, to: &mut W, cx: &mut Context<'_>) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        loop {
            match self.phase {
                Phase::Ended => return Poll::Ready(Ok(())),
                Phase::Ending => {
                    ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                    self.phase = Phase::Ended;
                }
                Phase::Relaying if !self.piece.is_empty() => {
                    let written = ready!(Pin::new(&mut *to).poll_write(cx, &self.piece))?;
                    self.piece.advance(written);
                }
                Phase::Relaying => {
                    let _ = Pin::new(&mut *to).poll_flush(cx)?;
                    let mut buffer = vec![0; PIECE_LEN];
                    let mut read = ReadBuf::new(&mut buffer);
                    ready!(Pin::new(&mut *from).poll_read(cx, &mut read))?;
                    self.piece = Bytes::copy_from_slice(read.filled());
                    self.phase = if self.piece.is_empty() { Phase::Ending } else { Phase::Relaying };
                }
            }
        }
    }
}

/// What this agent relays between an origin and the owner of the client's connection.
pub(crate) enum AnchorRelay {
    Tunnel(Box<Tunnel>, AnchoredStream),
    /// The rest of a body, and a piece of it that was read.
    Body(SiteBody, AnchoredStream, Bytes),
}

impl AnchorRelay {
    /// Relays as far as possible. Ready when it has ended, or failed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Tunnel(tunnel, stream) => tunnel.poll(stream, cx).map(drop),
            Self::Body(body, stream, piece) => poll_body(body, stream, piece, cx),
        }
    }
}

/// If the body fails, so does the stream, when it is dropped.
fn poll_body(body: &mut SiteBody, stream: &mut AnchoredStream, piece: &mut Bytes, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        if stream.has_failed() {
            return Poll::Ready(());
        }
        if !piece.is_empty() {
            let Ok(written) = ready!(Pin::new(&mut *stream).poll_write(cx, piece)) else { return Poll::Ready(()) };
            piece.advance(written);
            continue;
        }
        if body.is_end_stream() {
            return Pin::new(&mut *stream).poll_shutdown(cx).map(drop);
        }
        match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            Some(Ok(frame)) => *piece = frame.into_data().unwrap_or_default(),
            Some(Err(_)) => return Poll::Ready(()),
            None => return Pin::new(&mut *stream).poll_shutdown(cx).map(drop),
        }
    }
}

impl AsyncRead for OriginStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.socket).poll_read(cx, buf);
        }
        let len = self.ahead.len().min(buf.remaining());
        buf.put_slice(&self.ahead.split_to(len));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for OriginStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
