//! One direction of a connection: bytes that were read from one side and not yet written to the other.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;

use prometheus_client::metrics::gauge::Gauge;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use watari_sys::{Pipe, tcp};

use crate::metrics::InGauge;

/// The most bytes of one read into memory.
const READ_LEN: usize = 64 * 1024;

/// A read of this many bytes suggests that more will follow. The next two reads then go through a pipe (`splice`), which
/// costs more to set up and less per byte. Two, because in a long transfer the last read of a burst is often small.
/// Handshakes and small requests never reach this.
const BULK_LEN: usize = 16 * 1024;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_LEN].into_boxed_slice());
}

/// The bytes that wait in one direction, in the order in which they are written:
///
/// ```text
///   head, not of the stream | bytes of the stream | bytes of the stream in a pipe | parts
/// ```
///
/// * It is filled by one read when it is empty, and that read is either in memory or in a pipe. Further reads
///   ([`Direction::read_behind`]) go into parts: at most [`READ_LEN`] bytes in memory, or one read in a pipe. Each part
///   is freed when it is written. The caller bounds them.
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
    /// Further bytes of the stream. Empty if nothing waits in front of them.
    behind: VecDeque<Part>,
    /// Whether the last read, or the one before it, had at least [`BULK_LEN`] bytes.
    is_bulk: bool,
    /// Whether the last read had so many.
    was_large: bool,
    /// A copy of all bytes read, as long as they may have to be sent to another agent. The caller bounds it.
    copy: Option<Vec<u8>>,
}

/// The waiting bytes of a [`Direction`] on their way to another process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WaitingBytes {
    /// The head, then bytes of the stream.
    #[serde(with = "serde_bytes")]
    bytes: Vec<u8>,
    head_len: usize,
    #[serde(with = "serde_bytes")]
    copy: Option<Vec<u8>>,
}

impl WaitingBytes {
    /// The number of the stream's bytes.
    pub(crate) fn stream_len(&self) -> usize {
        self.bytes.len().saturating_sub(self.head_len)
    }

    /// The bytes of the stream, if there is no head.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.split_off(self.head_len.min(self.bytes.len()))
    }
}

/// Bytes that were read while others waited, in memory or in a pipe, and their count.
#[derive(Debug)]
struct Part {
    bytes: Vec<u8>,
    /// Never an empty pipe.
    pipe: Option<Pipe>,
    held: InGauge,
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
    /// The bytes that were read before wait.
    Writing {
        read: usize,
        error: io::Error,
    },
}

impl Direction {
    /// A flow that holds `bytes` of the stream, which were read elsewhere.
    pub(crate) fn holding(bytes: Vec<u8>) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Keeps a copy of the bytes that wait and of those that are read, until the caller drops it.
    pub(crate) fn keeping_copy(mut self) -> Self {
        let mut copy = Vec::new();
        copy.extend_from_slice(&self.bytes);
        self.copy = Some(copy);
        self
    }

    /// The bytes that wait, for another process. They stay here as well, and none is in a pipe any more. Fails if the
    /// pipe cannot be read.
    pub(crate) fn snapshot(&mut self) -> io::Result<WaitingBytes> {
        let parts = self.behind.iter_mut().map(|part| (&mut part.bytes, &mut part.pipe));
        for (bytes, in_pipe) in [(&mut self.bytes, &mut self.pipe)].into_iter().chain(parts) {
            if let Some(pipe) = in_pipe {
                pipe.read(bytes)?;
                *in_pipe = None;
            }
        }
        let mut bytes = self.bytes[self.taken..].to_vec();
        self.behind.iter().for_each(|part| bytes.extend_from_slice(&part.bytes));
        Ok(WaitingBytes { bytes, head_len: self.head_left, copy: self.copy.clone() })
    }

    /// A flow that holds the waiting bytes of another process.
    pub(crate) fn restore(waiting: WaitingBytes) -> Self {
        let WaitingBytes { bytes, head_len, copy } = waiting;
        Self { head_left: head_len.min(bytes.len()), bytes, copy, ..Self::default() }
    }

    /// Puts bytes of the stream in front, which were written and wait again.
    pub(crate) fn put_back(&mut self, mut bytes: Vec<u8>) {
        bytes.extend_from_slice(&self.bytes[self.taken..]);
        (self.bytes, self.taken) = (bytes, 0);
    }

    pub(crate) fn drop_copy(&mut self) {
        self.copy = None;
    }

    pub(crate) fn take_copy(&mut self) -> Option<Vec<u8>> {
        self.copy.take()
    }

    /// The number of the stream's bytes that wait.
    pub(crate) fn waiting(&self) -> usize {
        let in_pipe = |pipe: &Option<Pipe>| pipe.as_ref().map_or(0, Pipe::len);
        let behind: usize = self.behind.iter().map(|part| part.bytes.len() + in_pipe(&part.pipe)).sum();
        self.bytes.len() - self.taken - self.head_left + in_pipe(&self.pipe) + behind
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
        let may_splice = self.is_bulk && self.copy.is_none();
        match may_splice.then(Pipe::take).flatten() {
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
            self.note_read(read);
            self.copy_too(&scratch[..read]);
            self.bytes.extend_from_slice(&scratch[..read]);
            Ok(read)
        })
    }

    /// Reads once from `from`, at most `max` bytes, behind those that wait, and writes nothing. `held` contains the bytes
    /// until it is their turn. Returns the number of bytes read, 0 at the end of the stream. The flow must not be empty.
    pub(crate) fn read_behind(&mut self, from: &TcpStream, max: usize, held: &Gauge) -> io::Result<usize> {
        debug_assert!(!self.is_empty());
        let read = match self.is_bulk.then(Pipe::take).flatten() {
            Some(mut pipe) => {
                let read = pipe.fill(from, max)?;
                if read > 0 {
                    let held = InGauge::of(held, read);
                    self.behind.push_back(Part { bytes: Vec::new(), pipe: Some(pipe), held });
                }
                read
            }
            None => self.copy_behind(from, max, held)?,
        };
        self.note_read(read);
        Ok(read)
    }

    fn copy_behind(&mut self, from: &TcpStream, max: usize, held: &Gauge) -> io::Result<usize> {
        SCRATCH.with_borrow_mut(|scratch| {
            let read = tcp::try_read(from, &mut scratch[..READ_LEN.min(max)])?;
            match self.behind.back_mut() {
                Some(last) if last.pipe.is_none() && last.bytes.len() + read <= READ_LEN => {
                    last.held.add(read);
                    last.bytes.extend_from_slice(&scratch[..read]);
                }
                _ if read > 0 => {
                    let bytes = scratch[..read].to_vec();
                    self.behind.push_back(Part { bytes, pipe: None, held: InGauge::of(held, read) });
                }
                _ => {}
            }
            Ok(read)
        })
    }

    /// Whether the flow is empty and more bytes are probably ready.
    pub(crate) fn goes_on(&self) -> bool {
        self.was_large && self.is_empty()
    }

    fn note_read(&mut self, read: usize) {
        let is_large = read >= BULK_LEN;
        self.is_bulk = is_large || self.was_large;
        self.was_large = is_large;
    }

    fn splice(&mut self, mut pipe: Pipe, from: &TcpStream, to: &TcpStream) -> Result<(usize, Written), Broken> {
        let read = pipe.fill(from, usize::MAX).map_err(Broken::Reading)?;
        self.note_read(read);
        self.pipe = Some(pipe).filter(|pipe| !pipe.is_empty());
        Ok((read, self.write_to(to).map_err(|error| Broken::Writing { read, error })?))
    }

    /// Copies through the thread's buffer. Only bytes that `to` does not take at once are allocated.
    fn copy(&mut self, from: &TcpStream, to: &TcpStream) -> Result<(usize, Written), Broken> {
        SCRATCH.with_borrow_mut(|scratch| {
            let read = tcp::try_read(from, scratch).map_err(Broken::Reading)?;
            self.note_read(read);
            // A write of 0 bytes also fails if the stream was shut down.
            if read == 0 {
                return Ok((0, Written::default()));
            }
            self.copy_too(&scratch[..read]);
            let written = at_once(to.try_write(&scratch[..read]));
            self.bytes.extend_from_slice(&scratch[*written.as_ref().unwrap_or(&0)..read]);
            let bytes = written.map_err(|error| Broken::Writing { read, error })?;
            Ok((read, Written { bytes, spliced: 0 }))
        })
    }

    fn copy_too(&mut self, read: &[u8]) {
        if let Some(copy) = &mut self.copy {
            copy.extend_from_slice(read);
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

    /// Writes what `to` takes without blocking. Fails only if nothing was written: the next write returns the error.
    pub(crate) fn write_to(&mut self, to: &TcpStream) -> io::Result<Written> {
        let mut written = Written::default();
        match self.write_until_blocked(to, &mut written) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock && written == Written::default() => Err(error),
            _ => Ok(written),
        }
    }

    fn write_until_blocked(&mut self, to: &TcpStream, written: &mut Written) -> io::Result<()> {
        loop {
            while !self.bytes.is_empty() {
                let taken = to.try_write(&self.bytes[self.taken..])?;
                written.bytes += self.take(taken);
            }
            if let Some(pipe) = &mut self.pipe {
                let spliced = pipe.empty(to)?;
                written.spliced += spliced;
                written.bytes += spliced;
                // The other side does not take the rest at once either.
                if !pipe.is_empty() {
                    return Ok(());
                }
                self.pipe = None;
            }
            let Some(next) = self.behind.pop_front() else {
                self.behind = VecDeque::new();
                return Ok(());
            };
            (self.bytes, self.pipe) = (next.bytes, next.pipe);
        }
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
