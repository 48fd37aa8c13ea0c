//! Relays connections and HTTP/2 streams that have become tunnels to an origin.
//!
//! A connection that is a tunnel never moves, not even in a drain, because its other end is this node's connection to
//! an origin. An end without an announcement, such as an idle timeout, is not a clean end for the client either. On
//! HTTP/2, the library ends the stream cleanly all the same, but `WebSocket` has its own end.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use watari_proxy::TunnelBroken;
use watari_stream::TlsStream;
use watari_values::StayReason;
use watari_wire::Leave;

use crate::AgentShared;
use crate::live::About;
use crate::metrics::Counted;
use crate::places::Place;
use crate::requests::OpenStream;
use crate::serve_http::{HttpEnd, HttpError, stays};

/// A tunnel that an origin has accepted.
pub(crate) struct Tunnel {
    origin: watari_proxy::Tunnel,
    silence_max: Duration,
    /// The tunnel's request slot.
    _place: Place,
    _counted: Counted,
}

impl Tunnel {
    pub(crate) fn new(shared: &AgentShared, origin: watari_proxy::Tunnel, place: Place) -> Self {
        let silence_max = shared.limits().tunnel_timeout;
        Self { origin, silence_max, _place: place, _counted: Counted::one_more(&shared.metrics.tunnels) }
    }

    /// Serves a connection as a tunnel until it ends. Requests to leave are answered with [`StayReason::Tunnel`].
    pub(crate) async fn on_connection(
        self,
        shared: &AgentShared,
        about: &About,
        mut stream: Box<TlsStream<TcpStream>>,
        leaves: &mut mpsc::Receiver<Box<Leave>>,
    ) -> HttpEnd {
        let result = {
            let mut joined = pin!(self.join(&mut *stream));
            loop {
                stays(shared, about, StayReason::Tunnel);
                tokio::select! {
                    result = &mut joined => break result,
                    Some(_) = leaves.recv() => {}
                }
            }
        };
        HttpEnd::Ended(stream, result.map_err(HttpError::from))
    }

    /// Serves an HTTP/2 stream as a tunnel, once the response is sent.
    pub(crate) async fn on_stream(self, upgrading: OnUpgrade, _open: OpenStream) {
        // If the connection has ended in the meantime, so has the stream.
        let Ok(stream) = upgrading.await else { return };
        if let Err(error) = self.join(TokioIo::new(stream)).await {
            tracing::debug!(%error, cause = std::error::Error::source(&error), "tunnel ended");
        }
    }

    async fn join(self, client: impl AsyncRead + AsyncWrite + Send) -> Result<(), TunnelBroken> {
        self.origin.join(client, self.silence_max).await
    }
}

/// Holds a tunnel until the response that announces it has been sent.
#[derive(Clone, Default)]
pub(crate) struct Agreed(Arc<Mutex<Option<Box<Tunnel>>>>);

impl Agreed {
    pub(crate) fn set(&self, tunnel: Option<Box<Tunnel>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = tunnel;
    }

    pub(crate) fn take(&self) -> Option<Box<Tunnel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn is_some(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}
