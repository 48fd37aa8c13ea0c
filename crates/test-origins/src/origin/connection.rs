//! One connection of an origin.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::delivered::delivered;
use super::shared::OriginShared;
use crate::pace::Throttle;
use crate::reply::{Drip, End, Instead, Reply};
use crate::request::Asked;

/// Bytes of a body that are generated and written at a time.
const PIECE_LEN: usize = 64 * 1024;

/// Answers requests until either side closes.
pub(super) async fn serve(mut socket: TcpStream, number: usize, shared: Arc<OriginShared>) {
    socket.set_nodelay(true).ok();
    let mut ahead = Vec::new();
    while let Some(asked) = Asked::read(&mut socket, &mut ahead, number).await {
        let bodiless = asked.method == "HEAD";
        let last = asked.field("content-length").or(asked.field("transfer-encoding")).is_some()
            || asked.field("connection").is_some_and(|options| options.eq_ignore_ascii_case("close"));
        let mut reply = shared.answer(asked);
        if last && matches!(reply.end, End::Whole) {
            reply.end = End::Close;
        }
        let Ok(end) = Sender { socket: &mut socket, reply: &reply, shared: &shared }.send(bodiless).await else {
            return;
        };
        match end {
            End::Whole => {}
            End::Close | End::Fin(_) => return,
            End::Reset(_) => return reset(socket).await,
            End::Death(_) => {
                delivered(&socket).await;
                socket.set_zero_linger().ok();
                shared.death.notify_one();
                // All connections end at once. So when a client sees one end, no other is open.
                return std::future::pending().await;
            }
            End::Stall(_) => return stall(socket).await,
        }
    }
}

/// Resets the connection. Earlier bytes arrive first, unless the other side reads them slowly.
async fn reset(socket: TcpStream) {
    delivered(&socket).await;
    socket.set_zero_linger().ok();
}

/// Reads, so that the connection ends when the other side closes it.
async fn stall(mut socket: TcpStream) {
    while socket.read_u8().await.is_ok() {}
}

struct Sender<'a> {
    socket: &'a mut TcpStream,
    reply: &'a Reply,
    shared: &'a OriginShared,
}

impl<'a> Sender<'a> {
    /// Sends the answer. Returns how the connection has to end, or that it did.
    async fn send(mut self, bodiless: bool) -> io::Result<End> {
        match self.reply.instead {
            Some(Instead::Garbage) => {
                self.socket.write_all(b"\x16\x03\x01 this is not the answer you want\r\n\r\n").await?;
                return Ok(End::Close);
            }
            Some(Instead::EndlessHead) => match self.endless_head().await? {},
            None => self.socket.write_all(self.reply.head().as_bytes()).await?,
        }
        if bodiless {
            return Ok(if matches!(self.reply.end, End::Close) { End::Close } else { End::Whole });
        }
        let _counted = Counted::new(&self.shared.transfers);
        self.body().await
    }

    async fn endless_head(&mut self) -> io::Result<Infallible> {
        self.socket.write_all(b"HTTP/1.1 206 Partial Content\r\n").await?;
        loop {
            self.socket.write_all(b"X-More: and more, and more, and more, and more, and more\r\n").await?;
            tokio::task::yield_now().await;
        }
    }

    async fn body(&mut self) -> io::Result<End> {
        let whole = self.reply.body_len();
        let end = match self.reply.end {
            End::Fin(after) | End::Reset(after) | End::Stall(after) | End::Death(after) if after < whole => after,
            _ => whole,
        };
        self.pieces(end).await?;
        if end < whole {
            return Ok(self.reply.end);
        }
        if self.reply.chunked {
            self.socket.write_all(b"0\r\n\r\n").await?;
        }
        Ok(if matches!(self.reply.end, End::Close) { End::Close } else { End::Whole })
    }

    async fn pieces(&mut self, end: u64) -> io::Result<()> {
        let mut throttle = self.throttle();
        let mut position = 0;
        while position < end {
            let wanted = (end - position).min(PIECE_LEN as u64);
            let piece_len = match self.reply.drip {
                Some(drip) if position < drip.after => wanted.min(drip.after - position) as usize,
                _ => throttle.allowance(wanted as usize).await,
            };
            let piece = self.reply.piece(position, piece_len);
            position += piece.len() as u64;
            self.shared.sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
            self.socket.write_all(&self.reply.framed(piece)).await?;
        }
        Ok(())
    }

    fn throttle(&self) -> Throttle<'a> {
        match (self.reply.drip, self.shared.pace) {
            (Some(Drip { bytes, every, .. }), _) => Throttle::Drip { bytes, every, next: Instant::now() },
            (None, Some(pace)) => Throttle::Share { pace, transfers: &self.shared.transfers, paid: Instant::now() },
            (None, None) => Throttle::None,
        }
    }
}

/// Counts a transfer while this lives.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(transfers: &'a AtomicUsize) -> Self {
        transfers.fetch_add(1, Ordering::Relaxed);
        Self(transfers)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
