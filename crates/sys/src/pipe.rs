//! Moves bytes between two connections without copying them to this process: splice(2) with a pipe.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// The most bytes in a pipe: the most that the buffers of one connection hold.
const HELD_MAX: usize = 256 * 1024;

/// The requested size of a pipe, in bytes. A pipe has one slot per 4 KiB of its size. Each network segment takes a
/// slot, even if it is shorter. So the size gives more slots than [`HELD_MAX`] needs in full pages.
const SIZE: usize = 512 * 1024;

/// The smallest useful size, in bytes. The system gives small pipes to users who have many, and copying is faster then.
const SIZE_MIN: usize = 64 * 1024;

/// The most pipes of a thread, unless [`Pipe::limit`] sets fewer. Without a pipe, bytes are copied.
const PIPES_MAX: usize = 256;

/// File descriptors of a pipe.
pub const FILES_PER_PIPE: usize = 2;

/// The most empty pipes that a thread keeps.
const KEPT_MAX: usize = 16;

/// The pause after the system has refused a thread a pipe.
const PAUSE: Duration = Duration::from_secs(1);

/// The limit set by [`Pipe::limit`]. It is for the whole process, like the limit on open files.
static USED_MAX: AtomicUsize = AtomicUsize::new(PIPES_MAX);

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { kept: Vec::new(), used: 0, none_until: None }) };
}

/// Holds bytes on their way between two connections of this thread. When it is dropped, an empty pipe returns to the
/// thread's pool. Another one is closed, and its bytes are lost.
#[derive(Debug)]
pub struct Pipe {
    /// `None` only during drop.
    ends: Option<Ends>,
    len: usize,
}

#[derive(Debug)]
struct Ends {
    out: OwnedFd,
    into: OwnedFd,
}

struct Pool {
    kept: Vec<Ends>,
    used: usize,
    none_until: Option<Instant>,
}

impl Pipe {
    /// Sets the most pipes of each thread of this process, including empty ones: at most 256.
    pub fn limit(each_thread: usize) {
        USED_MAX.store(each_thread.min(PIPES_MAX), Ordering::Relaxed);
    }

    /// Takes an empty pipe. `None`: the thread is at its limit, or the system refuses.
    pub fn take() -> Option<Self> {
        POOL.with_borrow_mut(Pool::take).map(|ends| Self { ends: Some(ends), len: 0 })
    }

    /// The number of bytes in the pipe.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads what `from` has without blocking, at most `len_max` bytes and the pipe's capacity. Returns 0 at the end of
    /// the stream. The pipe must be empty: a full pipe cannot be distinguished from a connection without data.
    pub fn fill(&mut self, from: &TcpStream, len_max: usize) -> io::Result<usize> {
        debug_assert!(self.is_empty());
        let read = from.try_io(Interest::READABLE, || move_bytes(from, &self.ends().into, HELD_MAX.min(len_max)))?;
        self.len += read;
        Ok(read)
    }

    /// Writes what `to` takes without blocking.
    pub fn empty(&mut self, to: &TcpStream) -> io::Result<usize> {
        let written = to.try_io(Interest::WRITABLE, || move_bytes(&self.ends().out, to, self.len))?;
        self.len -= written;
        Ok(written)
    }

    /// Moves all bytes to the end of `into`. Then the pipe is empty.
    pub fn read(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        let start = into.len();
        into.resize(start + self.len, 0);
        while self.len > 0 {
            let at = into.len() - self.len;
            let read = retry_on_intr(|| rustix::io::read(&self.ends().out, &mut into[at..]));
            match read {
                Ok(0) => unreachable!("this process holds the other end"),
                Ok(read) => self.len -= read,
                Err(error) => {
                    into.truncate(at);
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    fn ends(&self) -> &Ends {
        self.ends.as_ref().expect("a pipe has its ends until it is dropped")
    }
}

fn move_bytes(from: impl AsFd, to: impl AsFd, len: usize) -> io::Result<usize> {
    Ok(retry_on_intr(|| splice(&from, None, &to, None, len, SpliceFlags::NONBLOCK | SpliceFlags::MOVE))?)
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let ends = self.ends.take().filter(|_| self.len == 0);
        // At the end of a thread its pool is already gone.
        let _ = POOL.try_with(|pool| pool.borrow_mut().give_back(ends));
    }
}

impl Pool {
    fn take(&mut self) -> Option<Ends> {
        if self.used >= USED_MAX.load(Ordering::Relaxed) {
            return None;
        }
        let ends = self.kept.pop().or_else(|| self.open())?;
        self.used += 1;
        Some(ends)
    }

    fn open(&mut self) -> Option<Ends> {
        if self.none_until.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let opened = Ends::open();
        self.none_until = opened.is_err().then(|| Instant::now() + PAUSE);
        opened.inspect_err(|error| tracing::warn!(%error, "cannot open a pipe: bytes are copied")).ok()
    }

    fn give_back(&mut self, ends: Option<Ends>) {
        self.used -= 1;
        self.kept.extend(ends.filter(|_| self.kept.len() < KEPT_MAX));
    }
}

impl Ends {
    fn open() -> io::Result<Self> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // The system refuses this to users with many pipes. The default size may suffice.
        let _ = fcntl_setpipe_size(&into, SIZE);
        let size = fcntl_getpipe_size(&into)?;
        if size < SIZE_MIN {
            return Err(io::Error::other(format!("the system allows this user only pipes of {size} bytes")));
        }
        Ok(Self { out, into })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connect = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(connect, listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    async fn fill(pipe: &mut Pipe, from: &TcpStream) -> usize {
        loop {
            from.readable().await.unwrap();
            match pipe.fill(from, usize::MAX) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                filled => return filled.unwrap(),
            }
        }
    }

    #[tokio::test]
    async fn bytes_and_the_end_of_a_stream_go_through() {
        let (mut near, from) = connection().await;
        let (to, mut far) = connection().await;
        let mut pipe = Pipe::take().unwrap();
        assert_eq!(pipe.fill(&from, usize::MAX).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        near.write_all(b"bytes").await.unwrap();
        assert_eq!(fill(&mut pipe, &from).await, 5);
        assert_eq!(pipe.len(), 5);
        to.writable().await.unwrap();
        assert_eq!(pipe.empty(&to).unwrap(), 5);
        assert!(pipe.is_empty());
        let mut read = [0; 5];
        far.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"bytes");
        near.shutdown().await.unwrap();
        assert_eq!(fill(&mut pipe, &from).await, 0);
    }

    #[tokio::test]
    async fn only_empty_pipes_are_used_again() {
        let (mut near, from) = connection().await;
        let mut pipe = Pipe::take().unwrap();
        near.write_all(b"secret of another client").await.unwrap();
        fill(&mut pipe, &from).await;
        drop(pipe);
        assert_eq!(POOL.with_borrow(|pool| (pool.kept.len(), pool.used)), (0, 0));
        drop(Pipe::take().unwrap());
        assert_eq!(POOL.with_borrow(|pool| (pool.kept.len(), pool.used)), (1, 0));
    }

    #[test]
    fn a_thread_has_so_many_pipes_and_no_more() {
        let take_all = || std::iter::from_fn(Pipe::take).collect::<Vec<_>>();
        let pipes = take_all();
        assert_eq!(pipes.len(), PIPES_MAX);
        drop(pipes);
        assert_eq!(POOL.with_borrow(|pool| (pool.kept.len(), pool.used)), (KEPT_MAX, 0));
        assert!(Pipe::take().is_some());
        // The limit applies to all tests of the process, and the others need a pipe.
        Pipe::limit(3);
        assert_eq!(take_all().len(), 3);
        Pipe::limit(usize::MAX);
        assert_eq!(take_all().len(), PIPES_MAX);
    }
}
