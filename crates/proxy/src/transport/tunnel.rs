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
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Extensions, Response};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use crate::transport::http1::Switched;

/// The origin's side of a tunnel. Dropping it closes the connection to the origin.
pub struct Tunnel {
    origin: Switched,
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
        Self { origin, _permit: permit, guard: None }
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
    /// for `silence_max`. Uses a buffer of 16 KiB for each direction.
    pub async fn join<S>(self, client: S, silence_max: Duration) -> Result<(), TunnelBroken>
    where
        S: AsyncRead + AsyncWrite + Send,
    {
        let (silence, mut guard) = (Silence::new(), self.guard);
        let (from_client, to_client) = tokio::io::split(client);
        let (from_origin, to_origin) = tokio::io::split(self.origin);
        let (client, origin) = (TunnelBroken::Client, TunnelBroken::Origin);
        let up = carry((from_client, client), (to_origin, origin), &silence, |_| {});
        let relayed = |len| guard.iter_mut().for_each(|guard| guard.relayed(len));
        let down = carry((from_origin, origin), (to_client, client), &silence, relayed);
        let result = tokio::select! {
            ended = async { tokio::try_join!(up, down) } => ended.map(|_| ()),
            () = silence.lasts(silence_max) => Err(TunnelBroken::Silent(silence_max)),
        };
        if let Some(guard) = guard {
            guard.ended(&result);
        }
        result
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

/// One end of a direction, and the error if it fails.
type End<S> = (S, fn(io::Error) -> TunnelBroken);

/// The size of the buffer, in bytes: the content of one TLS record.
const PIECE_LEN: usize = 16 << 10;

/// Relays one direction to its end, and ends the other side. Calls `carried` with the length of each piece.
async fn carry<R, W>(
    from: End<R>,
    to: End<W>,
    silence: &Silence,
    mut carried: impl FnMut(usize),
) -> Result<(), TunnelBroken>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let ((mut reader, unread), (mut writer, unwritten)) = (from, to);
    let mut piece = vec![0; PIECE_LEN];
    loop {
        let len = reader.read(&mut piece).await.map_err(unread)?;
        silence.end();
        if len == 0 {
            return writer.shutdown().await.map_err(unwritten);
        }
        writer.write_all(&piece[..len]).await.map_err(unwritten)?;
        writer.flush().await.map_err(unwritten)?;
        silence.end();
        carried(len);
    }
}

/// Measures the time without a byte.
struct Silence {
    begun: Instant,
    /// The time of the last byte, in milliseconds from `begun`.
    last_ms: AtomicU64,
}

impl Silence {
    fn new() -> Self {
        Self { begun: Instant::now(), last_ms: AtomicU64::new(0) }
    }

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
        let (silence, begun, max) = (Silence::new(), Instant::now(), Duration::from_mins(1));
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
