//! Tunnels: bytes relayed in both directions after an upgrade.
//!
//! ```text
//!            client ends                        origin ends
//!   Open ---------------> to the client only ----------------> over
//!    |  \                                                       ^
//!    |   '-- origin ends -> to the origin only -- client ends --'
//!    '-- either fails, or the idle timeout ends: broken
//! ```
//! When one direction ends, the proxy ends its other side, and the other direction continues. An error names the side
//! at fault.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::{Extensions, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};
use tokio_util::io::poll_read_buf;

use crate::transport::http1::Switched;

/// The origin's side of a tunnel. Dropping it closes the connection to the origin.
pub struct Tunnel {
    origin: Switched,
    relay: TunnelRelay,
    /// The slot of a request in flight to the origin.
    _permit: OwnedSemaphorePermit,
    /// What the request holds until the tunnel has ended.
    guard: Option<Box<dyn TunnelGuard>>,
}

/// What a request holds until its tunnel has ended. If the tunnel is dropped before, so is this.
pub(crate) trait TunnelGuard: Send {
    /// Counts bytes that the tunnel has relayed to the client.
    fn relayed(&mut self, bytes: usize);

    /// The tunnel has ended.
    fn ended(self: Box<Self>, result: &Result<(), TunnelBroken>);
}

/// Why a tunnel ended before both sides had ended it.
#[derive(Debug, thiserror::Error)]
pub enum TunnelBroken {
    /// The client's connection failed, or was cut.
    #[error("the client aborted a tunnel")]
    Client(#[source] io::Error),
    /// The origin's connection failed, or was reset.
    #[error("the origin aborted a tunnel")]
    Origin(#[source] io::Error),
    /// Neither side sent a byte for this long.
    #[error("a tunnel was idle for {0:?}")]
    Silent(Duration),
}

impl Tunnel {
    pub(crate) fn new(origin: Switched, permit: OwnedSemaphorePermit) -> Self {
        Self { origin, relay: TunnelRelay::default(), _permit: permit, guard: None }
    }

    /// Attaches the tunnel to the response that announces it.
    pub(crate) fn lay<B>(self, response: &mut Response<B>) {
        response.extensions_mut().insert(Laid(Arc::new(Mutex::new(Some(self)))));
    }

    /// Whether a tunnel comes with a response that has these extensions.
    pub(crate) fn is_in(extensions: &Extensions) -> bool {
        extensions.get::<Laid>().is_some()
    }

    /// Holds `guard` until the tunnel has ended that comes with a response of these extensions.
    pub(crate) fn keep(extensions: &Extensions, guard: Box<dyn TunnelGuard>) {
        if let Some(tunnel) = extensions.get().map(Laid::lock).as_deref_mut().and_then(Option::as_mut) {
            tunnel.guard = Some(guard);
        }
    }

    /// Takes the tunnel that comes with a response, if there is one.
    pub fn take<B>(response: &mut Response<B>) -> Option<Self> {
        response.extensions_mut().remove::<Laid>()?.lock().take()
    }

    /// Relays bytes in both directions until `client` and the origin have both ended their streams, or no byte was sent
    /// for `silence_max`. If the future is dropped before, the tunnel can be joined to another stream that continues
    /// the client's.
    pub async fn join<S>(&mut self, client: &mut S, silence_max: Duration) -> Result<(), TunnelBroken>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let guard = &mut self.guard;
        let relayed = |len| guard.iter_mut().for_each(|guard| guard.relayed(len));
        let result = self.relay.join(client, &mut self.origin, silence_max, relayed).await;
        if let Some(guard) = self.guard.take() {
            guard.ended(&result);
        }
        result
    }

    /// Whether neither direction has ended.
    pub fn is_open(&self) -> bool {
        self.relay.is_open()
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").finish_non_exhaustive()
    }
}

/// Extensions can be cloned, but a tunnel can be taken only once.
#[derive(Clone)]
struct Laid(Arc<Mutex<Option<Tunnel>>>);

impl Laid {
    fn lock(&self) -> MutexGuard<'_, Option<Tunnel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The most bytes that are read at a time: the content of one TLS record.
const PIECE_LEN: usize = 16 << 10;

/// Relays the bytes of a tunnel between a client's stream and an origin's. It holds the bytes between the two.
#[derive(Debug, Default)]
pub struct TunnelRelay {
    /// From the client to the origin.
    up: Direction,
    /// From the origin to the client.
    down: Direction,
    silence: Silence,
}

/// One direction of a relay.
#[derive(Debug, Default)]
struct Direction {
    phase: DirectionPhase,
    /// Bytes that were read and not written. Empty while nothing comes.
    piece: Bytes,
}

#[derive(Debug, Default)]
enum DirectionPhase {
    #[default]
    Reading,
    /// `piece` is being written, and its length was this.
    Writing(usize),
    /// A piece of this length is written.
    Flushing(usize),
    /// The source has ended.
    Ending,
    Ended,
}

/// The side of a direction at fault.
enum Side {
    From(io::Error),
    To(io::Error),
}

impl TunnelRelay {
    /// A relay whose client still has to get these bytes, which another relay has read from the origin.
    pub fn with_unwritten(to_client: Bytes) -> Self {
        let phase =
            if to_client.is_empty() { DirectionPhase::Reading } else { DirectionPhase::Writing(to_client.len()) };
        Self { down: Direction { phase, piece: to_client }, ..Self::default() }
    }

    /// Whether neither direction has ended.
    pub fn is_open(&self) -> bool {
        [&self.up, &self.down]
            .iter()
            .all(|direction| !matches!(direction.phase, DirectionPhase::Ending | DirectionPhase::Ended))
    }

    /// The bytes that were read from the client and not written to the origin, and those of the other direction.
    pub fn unwritten(&self) -> [&[u8]; 2] {
        [&self.up.piece, &self.down.piece]
    }

    /// Relays until both streams have ended, or no byte was sent for `silence_max`. Calls `relayed` with the length of
    /// each piece that the client has got. If the future is dropped before, the relay can go on later.
    pub async fn join<C, O>(
        &mut self,
        client: &mut C,
        origin: &mut O,
        silence_max: Duration,
        mut relayed: impl FnMut(usize),
    ) -> Result<(), TunnelBroken>
    where
        C: AsyncRead + AsyncWrite + Unpin,
        O: AsyncRead + AsyncWrite + Unpin,
    {
        let Self { up, down, silence } = self;
        let both = poll_fn(|cx| {
            let up = up.poll(client, origin, silence, |_| {}, cx).map_err(|side| match side {
                Side::From(error) => TunnelBroken::Client(error),
                Side::To(error) => TunnelBroken::Origin(error),
            })?;
            let down = down.poll(origin, client, silence, &mut relayed, cx).map_err(|side| match side {
                Side::From(error) => TunnelBroken::Origin(error),
                Side::To(error) => TunnelBroken::Client(error),
            })?;
            if up.is_ready() && down.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
        });
        tokio::select! {
            result = both => result,
            () = silence.lasts(silence_max) => Err(TunnelBroken::Silent(silence_max)),
        }
    }
}

impl Direction {
    /// Relays this direction to its end, and ends the other side. Calls `relayed` with the length of each piece.
    fn poll<R, W>(
        &mut self,
        from: &mut R,
        to: &mut W,
        silence: &Silence,
        mut relayed: impl FnMut(usize),
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Side>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        loop {
            self.phase = match self.phase {
                DirectionPhase::Reading => {
                    // Allocated for each attempt, so that an idle tunnel holds no buffer.
                    let mut piece = BytesMut::with_capacity(PIECE_LEN);
                    let len = ready!(poll_read_buf(Pin::new(&mut *from), cx, &mut piece)).map_err(Side::From)?;
                    silence.end();
                    self.piece = piece.freeze();
                    if len == 0 { DirectionPhase::Ending } else { DirectionPhase::Writing(len) }
                }
                DirectionPhase::Writing(len) if self.piece.is_empty() => {
                    self.piece = Bytes::new();
                    DirectionPhase::Flushing(len)
                }
                DirectionPhase::Writing(len) => {
                    let written = ready!(Pin::new(&mut *to).poll_write(cx, &self.piece)).map_err(Side::To)?;
                    if written == 0 {
                        return Poll::Ready(Err(Side::To(io::ErrorKind::WriteZero.into())));
                    }
                    self.piece.advance(written);
                    DirectionPhase::Writing(len)
                }
                DirectionPhase::Flushing(len) => {
                    ready!(Pin::new(&mut *to).poll_flush(cx)).map_err(Side::To)?;
                    silence.end();
                    relayed(len);
                    DirectionPhase::Reading
                }
                DirectionPhase::Ending => {
                    ready!(Pin::new(&mut *to).poll_shutdown(cx)).map_err(Side::To)?;
                    DirectionPhase::Ended
                }
                DirectionPhase::Ended => return Poll::Ready(Ok(())),
            }
        }
    }
}

/// Measures the time without a byte.
#[derive(Debug)]
struct Silence {
    begun: Instant,
    /// The time of the last byte, in milliseconds from `begun`.
    last_ms: AtomicU64,
}

impl Default for Silence {
    fn default() -> Self {
        Self { begun: Instant::now(), last_ms: AtomicU64::new(0) }
    }
}

impl Silence {
    /// Called when bytes are relayed. The time begins again.
    fn end(&self) {
        self.last_ms.store(self.begun.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Waits until no byte was relayed for `max`.
    async fn lasts(&self, max: Duration) {
        loop {
            let due = self.begun + Duration::from_millis(self.last_ms.load(Ordering::Relaxed)) + max;
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_counts_from_what_was_carried_last() {
        let (silence, begun, max) = (Silence::default(), Instant::now(), Duration::from_mins(1));
        let talk = async {
            for _ in 0..3 {
                sleep(Duration::from_secs(50)).await;
                silence.end();
            }
        };
        tokio::join!(talk, silence.lasts(max));
        assert_eq!(begun.elapsed().as_secs(), 3 * 50 + 60);
    }
}
