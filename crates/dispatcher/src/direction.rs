//! One direction of a connection: bytes that were read from one side and not yet written to the other.

use std::cell::RefCell;
use std::io;

use tokio::net::TcpStream;
use watari_sys::{Pipe, tcp};

/// The most bytes of one read into memory.
const READ_LEN: usize = 64 * 1024;

/// A read of this many bytes suggests that more will follow. The next bytes then go through a pipe (`splice`), which
/// costs more to set up and less per byte. Handshakes and small requests never reach this.
const BULK_LEN: usize = 16 * 1024;

/// The most bytes of the copy of what was read. The start of a handshake is much shorter.
const COPY_LEN_MAX: usize = 16 * 1024;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_LEN].into_boxed_slice());
}

/// The bytes that wait in one direction, in the order in which they are written:
///
/// ```text
///   head, not of the stream | bytes of the stream | bytes of the stream in a pipe
/// ```
///
/// * It is filled only when it is empty, by one read. So it never holds more than one read, and a read is either in
///   memory or in a pipe.
/// * Each byte of the stream is counted once when it is read and once when it is written. `read = written + waiting`
///   holds with any head in front, and with any destination.
/// * The flow owns the bytes that wait. They outlive the connection they were read from, and go to the connection that
///   is current when they are written.
///
/// It holds memory, or a pipe, only while bytes wait.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    /// The head, then bytes of the stream.
    bytes: Vec<u8>,
    taken: usize,
    /// The number of bytes in front that belong to the head.
    head_left: usize,
    /// Never an empty pipe.
    pipe: Option<Pipe>,
    /// Whether the last read had at least [`BULK_LEN`] bytes.
    is_bulk: bool,
    /// A copy of all bytes read, as long as they may have to be sent to another agent.
    copy: Option<Vec<u8>>,
}

/// The bytes of the stream that one call wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) bytes: usize,
    /// How many of them went through a pipe.
    pub(crate) spliced: usize,
}

/// The side that failed, or would block.
#[derive(Debug)]
pub(crate) enum Broken {
    Reading(io::Error),
    Writing(io::Error),
}

impl Direction {
    /// A flow that holds `bytes` of the stream, which were read elsewhere.
    pub(crate) fn holding(bytes: Vec<u8>) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Keeps a copy of the bytes that wait and of those that are read, up to [`COPY_LEN_MAX`], until the caller drops
    /// it.
    pub(crate) fn keeping_copy(mut self) -> Self {
        let mut copy = Vec::new();
        copy.extend_from_slice(&self.bytes);
        self.copy = Some(copy);
        self
    }

    pub(crate) fn has_copy(&self) -> bool {
        self.copy.is_some()
    }

    pub(crate) fn drop_copy(&mut self) {
        self.copy = None;
    }

    pub(crate) fn take_copy(&mut self) -> Option<Vec<u8>> {
        self.copy.take()
    }

    /// Whether bytes of a head wait.
    pub(crate) fn begins_with_head(&self) -> bool {
        self.head_left > 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.pipe.is_none()
    }

    /// Reads once from `from`, and writes what `to` takes without blocking. Returns the number of bytes read, 0 at the
    /// end of the stream, and the number written. The flow must be empty.
    pub(crate) fn pass(&mut self, from: &TcpStream, to: &TcpStream) -> Result<(usize, Written), Broken> {
        debug_assert!(self.is_empty());
        match self.is_bulk.then(Pipe::take).flatten() {
            Some(pipe) => self.splice(pipe, from, to),
            None => self.copy(from, to),
        }
    }

    /// Reads once from `from`, and writes nothing. Returns the number of bytes read, 0 at the end of the stream. The
    /// flow must be empty.
    pub(crate) fn fill(&mut self, from: &TcpStream) -> io::Result<usize> {
        debug_assert!(self.is_empty());
        SCRATCH.with_borrow_mut(|scratch| {
            let read = tcp::try_read(from, scratch)?;
            self.is_bulk = read >= BULK_LEN;
            self.copy_too(&scratch[..read]);
            self.bytes.extend_from_slice(&scratch[..read]);
            Ok(read)
        })
    }

    /// Whether the flow is empty and more bytes are probably ready.
    pub(crate) fn goes_on(&self) -> bool {
        self.is_bulk && self.is_empty()
    }

    fn splice(&mut self, mut pipe: Pipe, from: &TcpStream, to: &TcpStream) -> Result<(usize, Written), Broken> {
        self.copy = None;
        let read = pipe.fill(from).map_err(Broken::Reading)?;
        self.is_bulk = read >= BULK_LEN;
        self.pipe = Some(pipe).filter(|pipe| !pipe.is_empty());
        Ok((read, self.write_to(to).map_err(Broken::Writing)?))
    }

    /// Copies through the thread's buffer. Only bytes that `to` does not take at once are allocated.
    fn copy(&mut self, from: &TcpStream, to: &TcpStream) -> Result<(usize, Written), Broken> {
        SCRATCH.with_borrow_mut(|scratch| {
            let read = tcp::try_read(from, scratch).map_err(Broken::Reading)?;
            self.is_bulk = read >= BULK_LEN;
            // A write of 0 bytes also fails if the stream was shut down.
            if read == 0 {
                return Ok((0, Written::default()));
            }
            self.copy_too(&scratch[..read]);
            let written = at_once(to.try_write(&scratch[..read]));
            self.bytes.extend_from_slice(&scratch[*written.as_ref().unwrap_or(&0)..read]);
            Ok((read, Written { bytes: written.map_err(Broken::Writing)?, spliced: 0 }))
        })
    }

    fn copy_too(&mut self, read: &[u8]) {
        if let Some(copy) = &mut self.copy {
            if copy.len() + read.len() <= COPY_LEN_MAX {
                copy.extend_from_slice(read);
            } else {
                self.copy = None;
            }
        }
    }

    /// Puts `head`, which does not belong to the stream, in front of the bytes that wait. It replaces the rest of an
    /// earlier head.
    pub(crate) fn put_in_front(&mut self, head: Vec<u8>) {
        let head_len = head.len();
        let waiting = std::mem::replace(&mut self.bytes, head);
        self.bytes.extend_from_slice(&waiting[self.taken + self.head_left..]);
        (self.taken, self.head_left) = (0, head_len);
    }

    /// Writes what `to` takes without blocking.
    pub(crate) fn write_to(&mut self, to: &TcpStream) -> io::Result<Written> {
        let mut written = Written::default();
        while !self.bytes.is_empty() {
            match at_once(to.try_write(&self.bytes[self.taken..]))? {
                0 => return Ok(written),
                taken => written.bytes += self.take(taken),
            }
        }
        if let Some(pipe) = &mut self.pipe {
            written.spliced = at_once(pipe.empty(to))?;
            written.bytes += written.spliced;
            if pipe.is_empty() {
                self.pipe = None;
            }
        }
        Ok(written)
    }

    /// Removes `written` bytes. Returns how many of them belonged to the stream.
    fn take(&mut self, written: usize) -> usize {
        let of_head = written.min(self.head_left);
        self.head_left -= of_head;
        self.taken += written;
        if self.taken == self.bytes.len() {
            (self.bytes, self.taken) = (Vec::new(), 0);
        }
        written - of_head
    }
}

/// Returns 0 bytes for a write that would block.
fn at_once(written: io::Result<usize>) -> io::Result<usize> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        written => written,
    }
}

#[cfg(test)]
mod tests;
