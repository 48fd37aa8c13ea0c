//! Received bytes. Records are opened in the buffer that they were received in.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::io::poll_read_buf;
use watari_record::{Connection, OpenError, Opened, RECORD_LEN_MAX};

/// The size of the receive buffer, in bytes: several records.
pub const INPUT_LEN: usize = 64 * 1024;

/// ```text
///  buffer:  | plaintext not read yet | rest of its record | records not opened yet |
///           |<------- opened ------->|<----- spent ------>|
/// ```
#[derive(Default)]
pub(crate) struct Input {
    buffer: BytesMut,
    opened: usize,
    spent: usize,
}

impl Input {
    pub(crate) fn new(opened: &[u8], unopened: &[u8]) -> Self {
        let mut buffer = BytesMut::with_capacity(opened.len() + unopened.len());
        buffer.extend_from_slice(opened);
        buffer.extend_from_slice(unopened);
        Self { buffer, opened: opened.len(), spent: 0 }
    }

    /// The plaintext that was opened and not read, and the bytes that were not opened.
    pub(crate) fn into_parts(mut self) -> (Vec<u8>, Vec<u8>) {
        let opened = self.buffer.split_to(self.opened).to_vec();
        self.buffer.advance(self.spent);
        (opened, self.buffer.into())
    }

    /// The plaintext to read next.
    pub(crate) fn plaintext(&self) -> &[u8] {
        &self.buffer[..self.opened]
    }

    /// Marks the first `len` bytes of the plaintext as read.
    pub(crate) fn consume(&mut self, len: usize) {
        assert!(len <= self.opened, "more consumed than there was to read");
        self.buffer.advance(len);
        self.opened -= len;
        if self.opened == 0 {
            self.buffer.advance(self.spent);
            self.spent = 0;
        }
    }

    /// Opens the next record. `None`: it is incomplete. The caller has read all plaintext.
    pub(crate) fn open_next(&mut self, connection: &mut Connection) -> Result<Option<Opened>, OpenError> {
        debug_assert_eq!(self.opened, 0);
        let Some(header) = connection.header(&self.buffer)? else {
            return Ok(None);
        };
        let Some(record) = self.buffer.get_mut(..header.record_len()) else {
            return Ok(None);
        };
        let opened = connection.open(record)?;
        match &opened {
            Opened::Data(plaintext) => {
                self.opened = plaintext.len();
                self.spent = header.record_len() - plaintext.end;
                self.buffer.advance(plaintext.start);
            }
            _ => self.buffer.advance(header.record_len()),
        }
        Ok(Some(opened))
    }

    /// Reads more from `io`. Returns the number of bytes, 0 at the end. The buffer must not hold a complete record.
    pub(crate) fn poll_receive<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        debug_assert!(self.buffer.len() < RECORD_LEN_MAX);
        if self.buffer.capacity() - self.buffer.len() < RECORD_LEN_MAX {
            if self.buffer.is_empty() {
                return self.poll_receive_first(io, cx);
            }
            self.buffer.reserve(INPUT_LEN - self.buffer.len());
        }
        let received = poll_read_buf(Pin::new(io), cx, &mut self.buffer);
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
        received
    }

    /// Usually no bytes or only a short request have arrived. So the buffer is allocated after the read, with the right
    /// size.
    #[expect(clippy::large_stack_arrays, reason = "only the received bytes are written")]
    fn poll_receive_first<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.buffer = BytesMut::new();
        let mut first = [MaybeUninit::uninit(); RECORD_LEN_MAX];
        let mut first = ReadBuf::uninit(&mut first);
        ready!(Pin::new(io).poll_read(cx, &mut first))?;
        self.buffer = BytesMut::from(first.filled());
        Poll::Ready(Ok(self.buffer.len()))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::duplex;

    use super::*;

    #[test]
    fn an_idle_input_holds_no_memory() {
        let (_peer, mut io) = duplex(100);
        let mut input = Input::default();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(input.poll_receive(&mut io, &mut cx).is_pending());
        assert_eq!(input.buffer.capacity(), 0);
    }

    #[test]
    fn a_long_stream_needs_one_buffer() {
        let mut input = Input::default();
        let mut cx = Context::from_waker(Waker::noop());
        for round in 0..1000 {
            let bytes = vec![7; 1 + round * 37 % 200_000];
            let mut io = &bytes[..];
            while !io.is_empty() {
                assert!(input.poll_receive(&mut io, &mut cx).is_ready());
                assert!((1..=INPUT_LEN).contains(&input.buffer.capacity()));
                // Simulates that all but the start of a record was opened and read.
                let left = round * 41 % RECORD_LEN_MAX;
                input.buffer.advance(input.buffer.len().saturating_sub(left));
            }
        }
    }
}
