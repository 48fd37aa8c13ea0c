//! One direction of a connection: bytes that were read from one side, and that the other has not taken yet.

use std::cell::RefCell;
use std::io;

use tokio::net::TcpStream;
use watari_sys::{Pipe, tcp};

/// The most that is read at once by way of memory, in bytes.
const READ_LEN: usize = 64 * 1024;

/// A read of so much says that more will come: the next bytes go by a pipe, which costs more to set up and less per byte. Handshakes
/// and small requests never get there.
const BULK_LEN: usize = 16 * 1024;

/// The most that is kept of what was read, in bytes. A handshake begins with much less.
const COPY_LEN_MAX: usize = 16 * 1024;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_LEN].into_boxed_slice());
}

/// What waits in one direction, in the order in which it is written:
///
/// ```text
///   head, not of the stream | bytes of the stream | bytes of the stream in a pipe
/// ```
///
/// * It is filled only when it is empty, by one read. So it never holds more than that, and never bytes and a pipe.
/// * Each byte of the stream is counted once when it is read and once when it is written, and
///   `read = written + waiting`, whatever was put in front and whichever connection it is written to.
/// * What waits is the flow's own: it outlives the connection it was read from, and goes to whichever is there when it is written.
///
/// It holds memory, or a pipe, only while something waits.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// The head, and bytes of the stream.
    bytes: Vec<u8>,
    taken: usize,
    /// How many of the bytes ahead are not the stream's own.
    head_left: usize,
    /// Not empty.
    pipe: Option<Pipe>,
    /// Whether the last read was a large one.
    is_bulk: bool,
    /// All that was read, as long as somebody else may have to be told it.
    copy: Option<Vec<u8>>,
}

/// Bytes of the stream that went somewhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) bytes: usize,
    /// How many of them came by a pipe.
    pub(crate) spliced: usize,
}

/// Which side of a flow failed, or would have to be waited for.
#[derive(Debug)]
pub(crate) enum Broken {
    Reading(io::Error),
    Writing(io::Error),
}

impl Flow {
    /// A flow in which `bytes` of the stream wait, which were read elsewhere.
    pub(crate) fn holding(bytes: Vec<u8>) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Keeps a copy of what waits and of what is read, until that is too much or is of no use any more.
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

    /// Whether something that is not of the stream waits.
    pub(crate) fn begins_with_head(&self) -> bool {
        self.head_left > 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.pipe.is_none()
    }

    /// Reads once from `from`, and writes what `to` takes at once. Returns how many bytes were read, 0 at the end of the
    /// stream, and written. Only for a flow that is empty.
    pub(crate) fn pass(&mut self, from: &TcpStream, to: &TcpStream) -> Result<(usize, Written), Broken> {
        debug_assert!(self.is_empty());
        match self.is_bulk.then(Pipe::take).flatten() {
            Some(pipe) => self.splice(pipe, from, to),
            None => self.copy(from, to),
        }
    }

    /// Reads once from `from`, and writes nothing. Returns how many bytes were read, 0 at the end of the stream. Only for a
    /// flow that is empty.
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

    /// Whether it is empty, and more is likely to be there at once.
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

    /// What `to` takes at once never gets a buffer of its own.
    fn copy(&mut self, from: &TcpStream, to: &TcpStream) -> Result<(usize, Written), Broken> {
        SCRATCH.with_borrow_mut(|scratch| {
            let read = tcp::try_read(from, scratch).map_err(Broken::Reading)?;
            self.is_bulk = read >= BULK_LEN;
            // Even nothing cannot be written where the stream was ended already.
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

    /// Puts `head`, which is not of the stream, in front of what waits. It replaces what is left of another.
    pub(crate) fn put_in_front(&mut self, head: Vec<u8>) {
        let head_len = head.len();
        let waiting = std::mem::replace(&mut self.bytes, head);
        self.bytes.extend_from_slice(&waiting[self.taken + self.head_left..]);
        (self.taken, self.head_left) = (0, head_len);
    }

    /// Writes what `to` takes at once.
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

    /// Returns how many of the `written` bytes were the stream's.
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

/// Nothing was written where it would have to be waited.
fn at_once(written: io::Result<usize>) -> io::Result<usize> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        written => written,
    }
}

#[cfg(test)]
mod tests;
