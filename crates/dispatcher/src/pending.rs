//! Bytes that were read from one side and that the other has not taken yet.

use std::io;

use tokio::net::TcpStream;

/// A buffer that holds memory only while there is something in it. It is filled only when empty, so it never holds more
/// than one read and what was put in front of it.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    bytes: Vec<u8>,
    taken: usize,
    /// How many of the bytes ahead are not the stream's own.
    head_left: usize,
}

impl Pending {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends bytes of the stream.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Puts `head`, which is not of the stream, in front of what waits.
    pub(crate) fn put_in_front(&mut self, head: Vec<u8>) {
        let waiting = std::mem::replace(self, Self { head_left: head.len(), bytes: head, taken: 0 });
        self.push(&waiting.bytes[waiting.taken + waiting.head_left..]);
    }

    /// Writes what `to` takes at once; returns how many bytes of the stream that were.
    pub(crate) fn write_to(&mut self, to: &TcpStream) -> io::Result<usize> {
        let mut of_stream = 0;
        while !self.is_empty() {
            match to.try_write(&self.bytes[self.taken..]) {
                Ok(written) => of_stream += self.take(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(of_stream)
    }

    fn take(&mut self, written: usize) -> usize {
        let of_head = written.min(self.head_left);
        self.head_left -= of_head;
        self.taken += written;
        if self.taken == self.bytes.len() {
            *self = Self::default();
        }
        written - of_head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_not_counted_as_of_the_stream() {
        let mut pending = Pending::default();
        pending.push(b"stream");
        pending.put_in_front(b"head".to_vec());
        assert_eq!(pending.take(3), 0);
        assert_eq!(pending.take(3), 2);
        assert_eq!(pending.take(4), 4);
        assert!(pending.is_empty());
    }

    #[test]
    fn another_head_replaces_what_is_left_of_the_first() {
        let mut pending = Pending::default();
        pending.put_in_front(b"first".to_vec());
        pending.push(b"stream");
        assert_eq!(pending.take(2), 0);
        pending.put_in_front(b"second".to_vec());
        assert_eq!(pending.bytes, b"secondstream");
        assert_eq!(pending.head_left, 6);
    }
}
