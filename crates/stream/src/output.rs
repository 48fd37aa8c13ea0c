//! Sealed bytes that wait to be sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

/// No more plaintext is accepted while this many sealed bytes wait.
///
/// While fewer wait, whole records are accepted. So up to one record more can wait.
pub const OUTPUT_LEN_MAX: usize = 64 * 1024;

/// Sealed bytes that the underlying stream has not taken yet.
#[derive(Default)]
pub(crate) struct Output {
    buffer: Vec<u8>,
    /// The bytes of `buffer` that were sent.
    sent: usize,
}

impl Output {
    pub(crate) fn new(unsent: Vec<u8>) -> Self {
        Self { buffer: unsent, sent: 0 }
    }

    /// The bytes that were not sent.
    pub(crate) fn into_unsent(mut self) -> Vec<u8> {
        self.buffer.drain(..self.sent);
        self.buffer
    }

    pub(crate) fn len(&self) -> usize {
        self.buffer.len() - self.sent
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= OUTPUT_LEN_MAX
    }

    /// The buffer to append sealed bytes to.
    pub(crate) fn appender(&mut self) -> &mut Vec<u8> {
        // To move the rest to the front costs at most as much as was sent since the last time.
        if self.sent >= self.len() {
            self.buffer.drain(..self.sent);
            self.sent = 0;
        }
        &mut self.buffer
    }

    /// Writes until nothing is left, or until `io` takes no more (pending). Adds to `total_sent`.
    pub(crate) fn poll_send<IO: AsyncWrite + Unpin>(
        &mut self,
        io: &mut IO,
        total_sent: &mut u64,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.len() > 0 {
            let taken = ready!(Pin::new(&mut *io).poll_write(cx, &self.buffer[self.sent..]))?;
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += taken;
            *total_sent += taken as u64;
        }
        self.buffer.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Frees the memory. No bytes may wait.
    pub(crate) fn release(&mut self) {
        debug_assert_eq!(self.len(), 0);
        self.buffer = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::{AsyncRead, ReadBuf, duplex};

    use super::*;

    /// An output that is never quite empty moves the rest to the front and does not grow.
    #[test]
    fn a_long_stream_needs_one_buffer() {
        const PIPE_LEN: usize = 700;
        let (mut peer, mut io) = duplex(PIPE_LEN);
        let mut cx = Context::from_waker(Waker::noop());
        let mut output = Output::new(vec![0; 5000]);
        let mut sent = 0;
        for round in 1..1000_u16 {
            output.appender().extend_from_slice(&[round as u8; PIPE_LEN]);
            assert!(output.poll_send(&mut io, &mut sent, &mut cx).is_pending());
            let mut taken = [0; PIPE_LEN];
            assert!(Pin::new(&mut peer).poll_read(&mut cx, &mut ReadBuf::new(&mut taken)).is_ready());
            assert_eq!((output.len(), sent), (5000, u64::from(round) * PIPE_LEN as u64));
            assert!(output.buffer.capacity() < 25_000);
        }
        let unsent = output.into_unsent();
        assert_eq!(unsent.len(), 5000);
        assert_eq!(unsent[5000 - PIPE_LEN..], [999_u16 as u8; PIPE_LEN]);
    }
}
