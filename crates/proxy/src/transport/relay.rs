//! Exchanges whose response begins before the request is complete. Each direction then has to go on while the other one
//! waits, so a task owns the connection, and relays the content of the response. Such exchanges are rare.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::exchange::error::ExchangeError;
use crate::transport::connections::Lease;
use crate::transport::http1::Exchange;

/// The content of a response that a task relays. Dropping it before its end closes the connection.
pub(crate) struct Relayed {
    /// `None`: the end.
    frames: mpsc::Receiver<Option<Result<Frame<Bytes>, ExchangeError>>>,
    remaining: Option<u64>,
    is_over: bool,
}

impl Relayed {
    /// Starts the task. After the end of the response, the rest of the request may take as long as `rest_max`. Then the
    /// connection is released.
    pub(crate) fn start(exchange: Box<Exchange>, lease: Lease, rest_max: Duration) -> Self {
        let (sender, frames) = mpsc::channel(1);
        let remaining = exchange.remaining();
        tokio::spawn(relay(exchange, sender, lease, rest_max));
        Self { frames, remaining, is_over: false }
    }

    /// The data to come, in bytes, if its length is known.
    pub(crate) fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        // A task that ended without an end was aborted.
        let aborted = || Some(Err(ExchangeError::Closed(std::io::ErrorKind::ConnectionAborted.into())));
        let frame = ready!(self.frames.poll_recv(cx)).unwrap_or_else(aborted);
        self.is_over = !matches!(frame, Some(Ok(_)));
        if let Some(Ok(frame)) = &frame {
            let len = frame.data_ref().map_or(0, Bytes::len) as u64;
            self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(len));
        }
        Poll::Ready(frame)
    }
}

async fn relay(
    mut exchange: Box<Exchange>,
    frames: mpsc::Sender<Option<Result<Frame<Bytes>, ExchangeError>>>,
    lease: Lease,
    rest_max: Duration,
) {
    while !exchange.is_end_stream() {
        let room = tokio::select! {
            room = frames.reserve() => room,
            () = exchange.send_rest(), if !exchange.is_sent() => continue,
        };
        let Ok(room) = room else { return };
        let frame = tokio::select! {
            frame = exchange.frame() => frame,
            () = frames.closed() => return,
        };
        let is_failure = matches!(frame, Some(Err(_)));
        if frame.is_some() {
            room.send(frame);
        }
        if is_failure {
            return;
        }
    }
    let rest = timeout(rest_max, exchange.send_rest());
    // The receiver may be gone, because it counts the data.
    let (_, _) = tokio::join!(frames.send(None), rest);
    lease.release(exchange.into_connection());
}
