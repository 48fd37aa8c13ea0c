//! The leg below a connection. A change of the connection's dispatcher replaces it, in whatever state the connection is.
//!
//! ```text
//!                 AttachLeg                        a leg with Continue
//!  Attached <----------------- Detached ----------------------------------> Attached, to the next dispatcher
//!      |                        ^    |
//!      '------- DetachLeg ------'    '--- for DETACHED_MAX, or bytes lost --> Failed
//! ```
//!
//! * **Writing.** A detached leg takes nothing, and a write waits. The new leg is written from `tx_offset` on.
//! * **Reading** goes on in all states. The leg of the previous dispatcher is read up to the offset at which the next one
//!   begins (`rx_offset`), and then the next one. Its end is not the end of the stream while the leg is detached. An end
//!   before that offset, or a byte after it, fails the leg.
//! * **A failed leg** looks like a leg that was reset, and closes by a reset.
//!
//! The task of the connection has the [`Leg`]. Messages and new legs reach its [`LegControl`] by the connection's id, in
//! the [`LegTable`], and do not wait for that task. A leg counts the bytes of both streams from the start of the
//! connection, as `watari_stream::Parts` does.

mod control;
mod dispatcher;
mod forwarded;
mod table;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use watari_sys::tcp;
use watari_values::{ConnectionId, Epoch};

use self::control::{LegControl, LegState, wait};
use self::table::Entry;

pub(crate) use self::control::{ContinueRefusal, Continued};
pub(crate) use self::dispatcher::CurrentDispatcher;
pub use self::forwarded::FORWARDED_LEGS_MAX;
pub(crate) use self::forwarded::{ForwardedLeg, LegsForPredecessor};
pub(crate) use self::table::LegTable;

/// The connection that a leg carries.
pub(crate) struct Carried {
    pub(crate) id: ConnectionId,
    /// The epoch whose commit made this node the owner.
    pub(crate) tenure: Epoch,
    pub(crate) dispatcher: CurrentDispatcher,
    /// The number of the last change of the dispatcher. 0: there was none.
    pub(crate) change: u32,
    /// Bytes of the client's stream that were read before, including those behind the preface.
    pub(crate) received: u64,
    /// Bytes of the stream to the client that were written before.
    pub(crate) sent: u64,
}

/// The bytes of a connection between its dispatcher and this node. See the module.
pub(crate) struct Leg {
    entry: Entry,
    /// The leg that is read.
    read: ReadLeg,
    /// The legs of later dispatchers, in order. The last one is written. Mostly there is none.
    later: Vec<LaterLeg>,
    closes_by_fin: bool,
}

struct ReadLeg {
    stream: TcpStream,
    /// Bytes behind its preface that were not read.
    surplus: Vec<u8>,
    end: Option<LegEnd>,
}

/// A leg that is read when the previous one has ended.
struct LaterLeg {
    stream: TcpStream,
    surplus: Vec<u8>,
    /// The offset of its first byte in the client's stream.
    rx_offset: u64,
}

/// How a leg has ended. The kernel reports a reset only once.
#[derive(Debug, Clone, Copy)]
enum LegEnd {
    Fin,
    Error(io::ErrorKind),
}

impl Leg {
    /// The leg `stream`, which carries the connection from now on.
    pub(crate) fn new(stream: TcpStream, carried: Carried, table: &Arc<LegTable>) -> Self {
        let read = ReadLeg { stream, surplus: Vec::new(), end: None };
        Self { entry: table.enter(LegControl::new(carried)), read, later: Vec::new(), closes_by_fin: false }
    }

    /// The dispatcher of the connection.
    #[cfg(test)]
    pub(crate) fn dispatcher(&self) -> CurrentDispatcher {
        self.control().dispatcher()
    }

    /// Waits until bytes have arrived.
    #[cfg(test)]
    pub(crate) async fn readable(&self) {
        let _ = self.read.stream.readable().await;
    }

    /// Bytes of the client's stream that were read.
    pub(crate) fn received(&self) -> u64 {
        self.control().received()
    }

    /// Bytes of the stream to the client that were written.
    pub(crate) fn sent(&self) -> u64 {
        self.control().lock().sent
    }

    /// Whether a change of the dispatcher is undecided.
    pub(crate) fn is_detached(&self) -> bool {
        !self.control().lock().agent_leg.may_write()
    }

    /// Reads what has arrived.
    pub(crate) fn try_read_buf(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        self.follow()?;
        let is_plain = self.later.is_empty() && self.read.surplus.is_empty() && !self.control().has_news();
        if !is_plain {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let read = self.read.stream.try_read_buf(buffer)?;
        self.control().count_received(read);
        Ok(read)
    }

    /// If this process dies, or drops the leg, all that was written arrives.
    pub(crate) fn fin_on_close(&mut self) {
        self.set_close(true);
    }

    /// A drop resets the leg, and so the client's connection. This is so from the start.
    pub(crate) fn reset_on_close(&mut self) {
        self.set_close(false);
    }

    /// Returns the leg for another connection, if this one has left no byte on it. The caller knows that the dispatcher
    /// keeps it.
    pub(crate) fn into_free(mut self) -> Option<TcpStream> {
        drop(self.settle().ok()?);
        Some(self.read.stream)
    }

    /// Another handle of the leg, for a successor of this process. No change begins until [`Leg::stays`]. `None`: a
    /// change is in progress.
    pub(crate) fn pass(&mut self) -> Option<OwnedFd> {
        self.settle().ok()?.is_passing = true;
        let socket = self.read.stream.as_fd().try_clone_to_owned();
        if socket.is_err() {
            self.stays();
        }
        socket.ok()
    }

    /// The successor has not taken the leg.
    pub(crate) fn stays(&self) {
        self.control().lock().is_passing = false;
    }

    /// The number of the last change of the dispatcher.
    pub(crate) fn last_change(&self) -> u32 {
        self.control().lock().agent_leg.last()
    }

    fn control(&self) -> &LegControl {
        &self.entry.control
    }

    /// Ends a change, if it can end now. Fails if one is in progress.
    fn settle(&mut self) -> io::Result<MutexGuard<'_, LegState>> {
        self.follow()?;
        let state = self.entry.control.lock();
        if self.later.is_empty() && self.read.surplus.is_empty() && state.is_settled() {
            Ok(state)
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    fn set_close(&mut self, by_fin: bool) {
        self.closes_by_fin = by_fin && !self.control().lock().has_failed;
        for stream in self.later.iter().map(|later| &later.stream).chain([&self.read.stream]) {
            if self.closes_by_fin {
                tcp::fin_on_close(stream);
            } else {
                tcp::reset_on_close(stream);
            }
        }
    }

    /// Bytes were lost.
    fn fail(&mut self) -> io::Error {
        tracing::warn!(connection = %self.control().id(), "connection lost: a previous leg did not end where the next one begins");
        self.control().fail();
        self.set_close(false);
        failed()
    }

    /// Takes the legs that have come, and goes over to the next one where the previous one was read up to it.
    fn follow(&mut self) -> io::Result<()> {
        if self.control().has_news() {
            let taken = {
                let mut state = self.entry.control.lock();
                take_arrived(&self.entry.control, &mut state, &mut self.later, self.closes_by_fin)
            };
            taken.inspect_err(|_| self.set_close(false))?;
        }
        while let Some(next) = self.later.first() {
            let received = self.received();
            if received < next.rx_offset && self.read.end.is_none() {
                break;
            }
            if received != next.rx_offset || !self.read.surplus.is_empty() {
                return Err(self.fail());
            }
            let LaterLeg { stream, surplus, .. } = self.later.remove(0);
            // The previous dispatcher has all that was written there.
            tcp::fin_on_close(&self.read.stream);
            self.read = ReadLeg { stream, surplus, end: None };
        }
        Ok(())
    }

    fn count(&mut self, read: usize) -> io::Result<()> {
        self.control().count_received(read);
        if self.later.first().is_some_and(|next| self.received() > next.rx_offset) {
            return Err(self.fail());
        }
        Ok(())
    }

    /// Handles a read without a byte. `end`: how the leg has ended, if it has. Returns whether something has changed, so
    /// that the caller reads again.
    fn poll_change(&mut self, end: Option<LegEnd>, cx: &Context<'_>) -> Poll<bool> {
        self.read.end = end;
        let mut state = self.entry.control.lock();
        if state.has_come() || end.is_some() && !self.later.is_empty() {
            return Poll::Ready(true);
        }
        if end.is_some() && state.agent_leg.may_write() {
            return Poll::Ready(false);
        }
        wait(&mut state.reader, cx);
        Poll::Pending
    }
}

impl ReadLeg {
    fn poll(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.surplus.is_empty() {
            let len = self.surplus.len().min(buf.remaining());
            buf.put_slice(&self.surplus[..len]);
            self.surplus.drain(..len);
            return Poll::Ready(Ok(()));
        }
        match self.end {
            None => Pin::new(&mut self.stream).poll_read(cx, buf),
            Some(LegEnd::Fin) => Poll::Ready(Ok(())),
            Some(LegEnd::Error(kind)) => Poll::Ready(Err(kind.into())),
        }
    }
}

impl AsyncRead for Leg {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let filled = buf.filled().len();
        loop {
            this.follow()?;
            let read = this.read.poll(cx, buf);
            let len = buf.filled().len() - filled;
            if len > 0 {
                return Poll::Ready(this.count(len));
            }
            let end = match &read {
                Poll::Pending => None,
                Poll::Ready(Ok(())) => Some(LegEnd::Fin),
                Poll::Ready(Err(error)) => Some(LegEnd::Error(error.kind())),
            };
            match this.poll_change(end, cx) {
                Poll::Ready(true) => {}
                Poll::Ready(false) => return read,
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl AsyncWrite for Leg {
    /// Writes and counts under the lock, so that an answer to `DetachLeg` has the exact count.
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let Self { entry, read, later, closes_by_fin } = self.get_mut();
        let mut state = entry.control.lock();
        if entry.control.has_news() {
            take_arrived(&entry.control, &mut state, later, *closes_by_fin)?;
        }
        if !state.agent_leg.may_write() {
            wait(&mut state.writer, cx);
            return Poll::Pending;
        }
        let stream = later.last_mut().map_or(&mut read.stream, |later| &mut later.stream);
        let written = Pin::new(stream).poll_write(cx, buf);
        match &written {
            Poll::Ready(Ok(len)) => state.sent += *len as u64,
            Poll::Ready(Err(_)) => {}
            Poll::Pending => wait(&mut state.writer, cx),
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { read, later, .. } = self.get_mut();
        Pin::new(later.last_mut().map_or(&mut read.stream, |later| &mut later.stream)).poll_shutdown(cx)
    }
}

/// Registers new legs with this runtime, which is that of the connection.
fn take_arrived(
    control: &LegControl,
    state: &mut LegState,
    later: &mut Vec<LaterLeg>,
    closes_by_fin: bool,
) -> io::Result<()> {
    if state.has_failed {
        return Err(failed());
    }
    for Continued { stream, surplus, rx_offset, .. } in state.arrived.drain(..) {
        let stream = TcpStream::from_std(stream).inspect_err(|_| state.has_failed = true)?;
        if closes_by_fin {
            tcp::fin_on_close(&stream);
        }
        later.push(LaterLeg { stream, surplus, rx_offset });
    }
    control.note(state);
    Ok(())
}

fn failed() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

#[cfg(test)]
mod tests;
