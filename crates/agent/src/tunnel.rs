//! Connections, and streams of HTTP/2, that HTTP has left: tunnels to an origin.
//!
//! A connection that is one stays where it is, also in a drain, until it ends: its other end is this node's connection to an
//! origin. An end that nobody has announced, such as silence for too long, is no clean end for the client either. Over HTTP/2 the
//! library ends a stream cleanly all the same; `WebSocket` says by itself how it ends.

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
use watari_wire::{Leave, StayReason};

use crate::Shared;
use crate::live::About;
use crate::metrics::Counted;
use crate::places::Place;
use crate::requests::OpenStream;
use crate::speak::{HttpError, Spoken, stays};

/// A tunnel that an origin has agreed to.
pub(crate) struct Tunnel {
    origin: watari_proxy::Tunnel,
    silence_max: Duration,
    /// It is a request in progress.
    _place: Place,
    _counted: Counted,
}

impl Tunnel {
    pub(crate) fn new(shared: &Shared, origin: watari_proxy::Tunnel, place: Place) -> Self {
        let silence_max = shared.limits().tunnel_timeout;
        Self { origin, silence_max, _place: place, _counted: Counted::one_more(&shared.metrics.tunnels) }
    }

    /// Serves a connection as a tunnel until it ends. Whoever wants it to leave is told that it stays.
    pub(crate) async fn on_connection(
        self,
        shared: &Shared,
        about: &About,
        mut stream: Box<TlsStream<TcpStream>>,
        leaves: &mut mpsc::Receiver<Box<Leave>>,
    ) -> Spoken {
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
        Spoken::Ended(stream, result.map_err(HttpError::from))
    }

    /// Serves a stream of HTTP/2 as a tunnel, once it is one.
    pub(crate) async fn on_stream(self, upgrading: OnUpgrade, _open: OpenStream) {
        // Where the connection has ended meanwhile, so has the stream.
        let Ok(stream) = upgrading.await else { return };
        if let Err(error) = self.join(TokioIo::new(stream)).await {
            tracing::debug!(%error, cause = std::error::Error::source(&error), "tunnel ended");
        }
    }

    async fn join(self, client: impl AsyncRead + AsyncWrite + Send) -> Result<(), TunnelBroken> {
        self.origin.join(client, self.silence_max).await
    }
}

/// Where a tunnel waits until the response that announces it has been sent.
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
